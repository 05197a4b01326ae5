"""Every module of the benchmarks can be imported, so that a rename that breaks one shows."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

import bench
from bench.report import Figure
from tests import ROOT
from tests.support import misses

_MODULES = sorted(path.stem for path in Path(bench.__file__).parent.glob("*.py") if not path.stem.startswith("__"))


def test_the_modules_of_the_benchmarks_can_be_imported() -> None:
    for module in _MODULES:
        importlib.import_module(f"bench.{module}")


@pytest.mark.parametrize(
    ("target", "missed"), [({}, False), ({"least": 5}, True), ({"least": 4}, False), ({"most": 3}, True)]
)
def test_a_figure_says_whether_its_target_is_missed(target: dict[str, float], missed: bool) -> None:
    assert Figure("x", "sqlite", 4.0, **target).missed is missed


def test_the_picture_of_an_inspections_way_names_files_that_exist() -> None:
    page = (ROOT / "docs/explanation/architecture.md").read_text(encoding="utf-8")
    picture = page.split("flowchart TB")[1].split("```")[0]
    rows = re.findall(r"<br/>([\w./]+)/ ([\w, ]+)", picture)
    files = [f"{package}/{name}.py" for package, names in rows for name in names.split(", ")]
    assert len(files) > 40
    misses.none(
        file
        for file in files
        if not any((ROOT / package / file).exists() for package in ("src/ferroscope", "client/src"))
    )
