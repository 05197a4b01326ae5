"""The tests' own servers: harm can be done to them, and nothing of them outlives a test run."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import OperationalError

from tests import ROOT
from tests.support import databases, keeper
from tests.support.daemons import MissingServerError, Postgresql
from tests.support.processes import PATIENCE, is_running, tree, until
from tests.support.servers import Server


@pytest.fixture(scope="module", params=["postgresql", "mariadb"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """Give a server of each kind, which each test leaves running."""
    own = Server(request.param, f"{request.param}-{os.getpid()}-servers")
    yield own
    own.discard()


@pytest.mark.parametrize("change", [None, "row", "schema"])
def test_a_test_leaves_nothing_to_the_next_one(server: Server, change: str | None) -> None:
    with databases.fresh(server) as url:
        engine = create_engine(url)
        with engine.begin() as connection:
            if change == "row":
                connection.execute(text("INSERT INTO bmc_addresses (address, node) VALUES ('192.0.2.1', 'node')"))
            elif change == "schema":
                connection.execute(text("DROP TABLE bmc_addresses"))
        open_still = engine.connect()
        open_still.execute(text("SELECT COUNT(*) FROM nodes"))
    with databases.fresh(server) as again:
        with pytest.raises(OperationalError):
            open_still.execute(text("SELECT COUNT(*) FROM nodes"))
        engine.dispose()
        assert (again == url) == (change != "schema")
        engine = create_engine(again)
        with engine.connect() as connection:
            assert connection.execute(text("SELECT COUNT(*) FROM bmc_addresses")).scalar() == 0
        engine.dispose()


def test_the_keeper_survives_a_caller_that_hangs_up_before_its_answer(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        listener.listen()
        with socket.socket(socket.AF_UNIX) as caller:
            caller.connect(str(tmp_path / "socket"))
            caller.sendall(b'{"verb": "start", "name": "x", "kind": "none"}\n')
        keeper._serve(keeper.Keeper(tmp_path), listener)


def test_a_missing_server_is_an_error_that_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr(Path, "glob", lambda *_: iter(()))
    with pytest.raises(MissingServerError, match="or run: make test"):
        Postgresql()


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
def test_no_server_outlives_an_interrupted_test_run(tmp_path: Path, end: signal.Signals) -> None:
    noted = tmp_path / "noted"
    test = tmp_path / "test_waits.py"
    test.write_text(
        "import pathlib, time\n"
        "def test_waits(postgresql_url, shared_postgresql):\n"
        f"    path = pathlib.Path({str(noted)!r})\n"
        "    path.with_suffix('.new').write_text(f'{shared_postgresql.pid} {shared_postgresql.directory}')\n"
        "    path.with_suffix('.new').rename(path)\n"
        "    time.sleep(100)\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "-p", "no:cacheprovider", str(test)]
    run = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        assert until(noted.exists)
        pid, directory = noted.read_text().split()
        server = tree(int(pid))
        assert len(server) > 1
    finally:
        run.send_signal(end)
        run.wait(PATIENCE)
    assert until(lambda: not any(is_running(member) for member in server))
    assert until(lambda: not Path(directory).parent.exists())
