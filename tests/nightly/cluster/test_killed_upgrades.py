"""An upgrade of the schema that is killed at any statement, each time in a database of its own, and the next one."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support import databases, upgrades
from tests.support.servers import Server


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def server(request: pytest.FixtureRequest) -> Iterator[Server | None]:
    if request.param == "sqlite":
        yield None
        return
    own = Server(request.param, f"{request.param}-{os.getpid()}-upgrades")
    yield own
    own.discard()


@contextmanager
def empty(server: Server | None, directory: Path, number: int) -> Iterator[str]:
    if server is None:
        yield f"sqlite:///{directory}/{number}.db"
        return
    with databases.fresh(server, migrated=False) as url:
        yield url


@pytest.mark.timeout(1500)
@pytest.mark.parametrize("filled", [False, True])
def test_the_next_upgrade_completes_what_was_killed(server: Server | None, tmp_path: Path, *, filled: bool) -> None:
    with upgrades.next_release(tmp_path):
        _kill_everywhere(server, tmp_path, filled=filled)


def _kill_everywhere(server: Server | None, tmp_path: Path, *, filled: bool) -> None:
    with empty(server, tmp_path, 0) as url:
        upgrades.upgrade(url)
        expected = upgrades.schema(url)
    for number in itertools.count(1):
        with empty(server, tmp_path, number) as url:
            before = upgrades.fill(url) if filled else {}
            if not upgrades.killed(url, number):
                break
            upgrades.upgrade(url)
            assert upgrades.schema(url) == expected
            assert upgrades.rows(url, of=before) == before
    assert number > (10 if filled else 50)
