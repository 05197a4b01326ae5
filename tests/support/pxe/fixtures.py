"""A boot network with three hosts, for one test; a failure shows the logs of its processes."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.pxe.lab import Lab

_SHOWN: Final = 3000  # the last characters of each log


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    """Give the networks and the hosts; nothing runs on them yet."""
    with Lab(tmp_path) as built:
        yield built


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """Add the end of every log in the test's directory to the report of a failure."""
    report = yield
    directory = getattr(item, "funcargs", {}).get("tmp_path")
    if report.failed and directory is not None:
        for log in sorted(Path(directory).rglob("*.log")):
            text = log.read_text(errors="replace")[-_SHOWN:]
            report.sections.append((f"{log.relative_to(directory)}, last lines", text))
    return report
