"""A failure shows the logs of all that runs."""

from __future__ import annotations

from tests.support.pxe.fixtures import pytest_runtest_makereport

__all__ = ["pytest_runtest_makereport"]
