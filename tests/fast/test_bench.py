"""Every module of the benchmarks can be imported, so that a rename that breaks one shows."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

import bench
from bench.report import Figure
from bench.trace import Route
from bench.traced import Journey

_MODULES = sorted(path.stem for path in Path(bench.__file__).parent.glob("*.py") if not path.stem.startswith("__"))


def test_the_modules_of_the_benchmarks_can_be_imported() -> None:
    for module in _MODULES:
        importlib.import_module(f"bench.{module}")


def test_a_trace_says_how_often_it_goes_from_file_to_file() -> None:
    steps = [(1, "api/a.py", "f"), (2, "db/b.py", "g"), (3, "db/b.py", "h"), (2, "api/a.py", "f"), (2, "main.py", "m")]
    route = Route.of("x", Journey("x", calls=9, steps=steps))
    assert (route.calls, route.python, route.functions, route.files) == (5, 9, 4, 3)
    assert (route.switches, route.depth, route.db) == (3, 3, 2)


@pytest.mark.parametrize(
    ("target", "missed"), [({}, False), ({"least": 5}, True), ({"least": 4}, False), ({"most": 3}, True)]
)
def test_a_figure_says_whether_its_target_is_missed(target: dict[str, float], missed: bool) -> None:
    assert Figure("x", "sqlite", 4.0, **target).missed is missed
