"""Every module of the benchmarks can be imported, so that a rename that breaks one shows."""

from __future__ import annotations

import importlib
from pathlib import Path

import bench

_MODULES = sorted(path.stem for path in Path(bench.__file__).parent.glob("*.py") if not path.stem.startswith("__"))


def test_the_modules_of_the_benchmarks_can_be_imported() -> None:
    for module in _MODULES:
        importlib.import_module(f"bench.{module}")
