"""SQLite's file: its owner's only from the start, and never opened beside SQLite while this process has it open."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from ferroscope.config.options import DatabaseSettings
from ferroscope.db.engine import build_engine


def held(file: Path) -> int:
    """Return how many locks this process holds on the file."""
    inode = file.stat().st_ino
    owned = (line.split() for line in Path("/proc/locks").read_text().splitlines())
    return sum(
        words[4] == str(os.getpid()) and words[5].endswith(f":{inode}") for words in owned if words[1] == "POSIX"
    )


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run the test with this mask of the process."""
    before = os.umask(request.param)
    yield
    os.umask(before)


@pytest.mark.usefixtures("umask")
def test_another_connection_leaves_the_locks_of_those_that_are_open(tmp_path: Path) -> None:
    file = tmp_path / "made.db"
    engine = build_engine(DatabaseSettings(connection=f"sqlite:///{file}"))
    with engine.connect() as first:
        first.execute(text("CREATE TABLE one (x)"))
        first.execute(text("SELECT * FROM one")).all()
        before = held(file)
        assert before > 0
        with engine.connect() as second:
            assert held(file) >= before
            second.execute(text("SELECT * FROM one")).all()
    engine.dispose()
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}
