"""Every module of the benchmarks can be imported, so that a rename that breaks one shows."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

import bench

_MODULES = sorted(path.stem for path in Path(bench.__file__).parent.glob("*.py") if not path.stem.startswith("__"))


@pytest.mark.parametrize("module", _MODULES)
def test_a_module_of_the_benchmarks_can_be_imported(module: str) -> None:
    importlib.import_module(f"bench.{module}")
