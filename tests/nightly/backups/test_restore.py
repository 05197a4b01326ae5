"""A backup that was made while inspections ran is restored, as the page says: nothing of that moment is lost."""

from __future__ import annotations

import re
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import ROOT
from tests.support import databases
from tests.support.processes import until
from tests.support.releases import Site
from tests.support.servers import Server

PAGE = ROOT / "docs/how-to/back-up-and-upgrade.md"
NODES = 40


def _shell(*words: str | Path) -> None:
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def _back_up(server: Server | None, name: str, file: Path) -> None:
    if server is None:
        _shell("sqlite3", name, f".backup {file}")
    elif server.kind == "postgresql":
        _shell("pg_dump", *_postgresql(server), "--format=custom", f"--file={file}", name)
    else:
        _shell("sh", "-c", f"mariadb-dump {' '.join(_mariadb(server))} --single-transaction {name} > {file}")


def _restore(server: Server | None, name: str, file: Path) -> None:
    if server is None:
        _shell("cp", file, name)
    elif server.kind == "postgresql":
        _shell("pg_restore", *_postgresql(server), f"--dbname={name}", "--single-transaction", file)
    else:
        _shell("sh", "-c", f"mariadb {' '.join(_mariadb(server))} {name} < {file}")


def _postgresql(server: Server) -> list[str]:
    return ["--host=127.0.0.1", f"--port={server.port}", "--username=ferroscope"]


def _mariadb(server: Server) -> list[str]:
    return ["--protocol=tcp", "--host=127.0.0.1", f"--port={server.port}", "--user=root"]


class Place:
    """Two databases of one kind: one that is backed up, and an empty one for the backup."""

    def __init__(self, server: Server | None, urls: list[str]) -> None:
        self.server = server
        self.urls = urls

    def name(self, number: int) -> str:
        """Return a database's name; for SQLite, its file."""
        prefix = "sqlite:///" if self.server is None else self.server.url("")
        return self.urls[number].removeprefix(prefix)


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "sqlite":
        yield Place(None, [f"sqlite:///{tmp_path}/{number}.db" for number in range(2)])
        return
    server: Server = request.getfixturevalue(f"shared_{request.param}")
    with databases.fresh(server, migrated=False) as first, databases.fresh(server, migrated=False) as second:
        yield Place(server, [first, second])


class Fleet:
    """Machines that are inspected again and again, each of whose ramdisks calls back as soon as it is waited for."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self.macs = site.enroll([f"n{number}" for number in range(NODES)])
        self.ended = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self) -> Fleet:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _work(self) -> None:
        begun: set[str] = set()
        while not self._stop.is_set():
            for number, (name, state) in enumerate(sorted(self._site.states().items())):
                if state == "manageable":
                    self.ended += name in begun
                    begun.add(name)
                    self._site.begin([name])
                elif state == "inspect wait" and number % 4:  # one in four takes longer
                    self._site.call_back(self.macs[name])


@pytest.mark.timeout(900)
def test_a_backup_of_a_service_at_work_is_restored_and_no_inspection_is_lost(place: Place, tmp_path: Path) -> None:
    file = tmp_path / "backup"
    macs = _run_and_back_up(place, tmp_path, file)
    _restore(place.server, place.name(1), file)
    site = Site(tmp_path, place.urls[1])
    try:
        before = set(site.ask("SELECT uuid FROM inspections"))
        unended = set(site.ask("SELECT uuid FROM inspections WHERE state NOT IN ('finished', 'error')"))
        assert unended, "the backup was made of a service that had nothing to do"
        _go_on(site, macs)
        ended = dict(site.ask("SELECT uuid, state FROM inspections"))
        assert before <= {(one,) for one in ended}
        assert set(ended.values()) <= {"finished", "error"}
        failed = site.ask("SELECT uuid FROM inspections WHERE state = 'error' AND (reason IS NULL OR reason = '')")
        assert failed == []
        assert site.ask("SELECT count(*) FROM requests") == [(0,)]
    finally:
        site.close()


def _run_and_back_up(place: Place, directory: Path, file: Path) -> dict[str, str]:
    site = Site(directory, place.urls[0])
    try:
        site.upgrade(site.new("upgrade", "db", "upgrade"))
        site.new("all", "all").wait_ready()
        with Fleet(site) as fleet:
            assert until(lambda: fleet.ended >= NODES)
            _back_up(place.server, place.name(0), file)
            later = fleet.ended + NODES
            assert until(lambda: fleet.ended >= later)
        return fleet.macs
    finally:
        site.close()  # kills it: what came after the backup is gone


def _go_on(site: Site, macs: dict[str, str]) -> None:
    """Start the service on what was restored, and be the machines that still call back."""
    site.new("restored", "all").wait_ready()

    def quiet() -> bool:
        states = site.states()
        for name, state in states.items():
            if state == "inspect wait":
                site.call_back(macs[name])
        return set(states.values()) <= {"manageable", "inspect failed"}

    assert until(quiet), site.states()


@pytest.mark.parametrize("command", ["sqlite3", "pg_dump", "pg_restore", "mariadb-dump"])
def test_the_page_has_the_commands_that_are_rehearsed_here(command: str) -> None:
    assert re.search(rf"^\$ {command} ", PAGE.read_text(), re.MULTILINE)
