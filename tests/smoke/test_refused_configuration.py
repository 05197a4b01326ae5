"""A process whose configuration cannot be used ends at once: it has won no lease, and taken no port."""

from __future__ import annotations

import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from ferroscope_client.errors import Exit
from tests.support import databases
from tests.support.processes import PATIENCE

_TABLES = ("members", "leases", "lease_epochs")


class Host:
    """A host whose port is in use: whoever tries to take it says so, instead of what is wrong."""

    def __init__(self, directory: Path, port: int) -> None:
        self.directory = directory
        self._port = port

    def start(self, text: str, *words: str) -> subprocess.CompletedProcess[str]:
        file = self.directory / "ferroscope.conf"
        file.write_text(
            f"[api]\nhost = 127.0.0.1\nbare_metal_port = {self._port}\nintrospection_port = 0\n"
            + text.replace("DIR", str(self.directory))
        )
        return subprocess.run(
            [sys.executable, "-m", "ferroscope", *words, "-c", str(file)],
            capture_output=True, text=True, check=False, timeout=PATIENCE,
        )  # fmt: skip


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        yield Host(tmp_path, taken.getsockname()[1])


def _rows(url: str) -> dict[str, int]:
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as opened:
        return {table: opened.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in _TABLES}


@pytest.mark.parametrize("words", [("all",), ("api",), ("api", "--processes", "2")], ids=" ".join)
def test_a_file_that_cannot_be_used_is_said_before_a_lease_is_won_or_a_port_is_taken(
    host: Host, words: tuple[str, ...]
) -> None:
    url = databases.sqlite(host.directory)
    login = "auth_strategy = http_basic\nhttp_basic_auth_user_file = DIR/none\n"
    policy = "[oslo_policy]\npolicy_file = DIR/none.yaml\n"
    done = host.start(login + policy, *words, "--database", url)
    assert done.returncode == Exit.CONFIGURATION, done.stderr
    assert "[api] http_basic_auth_user_file" in done.stderr
    assert "[oslo_policy] policy_file" in done.stderr
    assert set(_rows(url).values()) == {0}
