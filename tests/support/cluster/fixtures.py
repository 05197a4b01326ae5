"""What tests of whole clusters share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return the directory of one installation, into which every player of it may go."""
    return tmp_path
