"""The fixtures of simulated boot hosts."""

from __future__ import annotations

from tests.support.pxe.fixtures import lab, pytest_runtest_makereport

__all__ = ["lab", "pytest_runtest_makereport"]
