"""Directories into which every player of the installation may go."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(params=["postgresql", "mariadb"])
def server_url(request: pytest.FixtureRequest) -> str:
    """Return the URL of a new, migrated database on each of the database servers in turn."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return the directory of one installation."""
    return tmp_path
