"""A boot network with three hosts, for one test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.pxe.lab import Lab


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    """Give the networks and the hosts; nothing runs on them yet."""
    with Lab(tmp_path) as built:
        yield built
