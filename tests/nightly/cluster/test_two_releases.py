"""The release before and this one at work at once on one database, as while processes are upgraded one after another.

The release before is a real one: a commit of this repository's history, unpacked and run with the same Python. Before
the first release it is the one that changed the first migration last (ADR 034): no earlier one knows this schema.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sqlalchemy import Connection, text

from ferroscope.config.options import DatabaseSettings
from ferroscope.db.engine import build_engine
from tests import ROOT
from tests.support import examples
from tests.support.installation import Played
from tests.support.processes import PATIENCE, free_port, until

FIRST = "src/ferroscope/db/migrations/versions/0001_first.py"
NODES = 30
_SETTINGS = """
[database]
connection = {url}
[api]
host = 127.0.0.1
bare_metal_port = {port}
introspection_port = 0
[drivers]
enabled = fake-hardware
[worker]
threads = 2
"""


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory with the packages of the release before."""
    if _git("rev-parse", "--is-shallow-repository").strip() == b"true":
        pytest.fail(
            "the release before is not in this clone, which is shallow; get it with: git fetch --unshallow",
            pytrace=False,
        )
    commit = _git("log", "--max-count=1", "--format=%H", "--", FIRST).decode().strip()
    directory = tmp_path_factory.mktemp("before")
    packed = _git("archive", commit, "src", "pyproject.toml")
    subprocess.run(["tar", "-x"], input=packed, cwd=directory, check=True)
    _declare(directory)
    return directory / "src"


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=True).stdout


def _declare(directory: Path) -> None:
    """Let the release before have its own entry points: this one's may name modules that it does not know."""
    project = tomllib.loads((directory / "pyproject.toml").read_text())["project"]
    installed = directory / "src" / f"{project['name']}-0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 0\n")
    lines = []
    for group, found in project.get("entry-points", {}).items():
        lines += [f"[{group}]", *(f"{name} = {where}" for name, where in found.items())]
    (installed / "entry_points.txt").write_text("\n".join(lines) + "\n")


class Site:
    """One database, this release's service, and as many workers of the release before as are started."""

    def __init__(self, directory: Path, url: str, before: Path) -> None:
        self.directory = directory
        self.before = before
        self.port = free_port()
        self.engine = build_engine(DatabaseSettings(connection=url))
        self.played: list[Played] = []
        (directory / "f.conf").write_text(_SETTINGS.format(url=url, port=self.port))

    def old(self, name: str, *arguments: str) -> Played:
        return self._play(name, ["env", f"PYTHONPATH={self.before}", *self._command(*arguments)])

    def new(self, name: str, *arguments: str) -> Played:
        return self._play(name, self._command(*arguments))

    def upgrade(self, done: Played) -> None:
        assert done.process.wait(PATIENCE) == 0, done.said()

    def ask(self, statement: str) -> list[Any]:
        with self.engine.connect() as connection:
            return [tuple(row) for row in connection.execute(text(statement))]

    def call(self, method: str, path: str, body: Any = None) -> Any:
        content = None if body is None else msgspec.json.encode(body)
        headers = {"X-OpenStack-Ironic-API-Version": "1.95", "Content-Type": "application/json"}
        url = f"http://127.0.0.1:{self.port}{path}"
        request = urllib.request.Request(url, data=content, headers=headers, method=method)
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return msgspec.json.decode(answer.read() or b"null")

    def close(self) -> None:
        for one in self.played:
            one.end()
        self.engine.dispose()

    def states(self) -> dict[str, str]:
        nodes = self.call("GET", "/v1/nodes?fields=name,provision_state")["nodes"]
        return {node["name"]: node["provision_state"] for node in nodes}

    def reach(self, names: list[str], state: str) -> None:
        wanted = dict.fromkeys(names, state)
        assert until(lambda: wanted.items() <= self.states().items()), self.states()

    def inspect(self, names: list[str]) -> None:
        """Let these nodes be inspected, each with a machine that calls back."""
        macs = {name: examples.mac() for name in names}
        for name, mac in macs.items():
            node = self.call("POST", "/v1/nodes", {"name": name, "driver": "fake-hardware"})
            self.call("POST", "/v1/ports", {"node_uuid": node["uuid"], "address": mac})
            self.call("PUT", f"/v1/nodes/{name}/states/provision", {"target": "manage"})
        self.reach(names, "manageable")
        for name in names:
            self.call("PUT", f"/v1/nodes/{name}/states/provision", {"target": "inspect"})
        self.reach(names, "inspect wait")
        for mac in macs.values():
            self.call("POST", "/v1/continue_inspection", _callback(mac))
        self.reach(names, "manageable")

    def _command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "ferroscope", *arguments, "-c", "f.conf"]

    def _play(self, name: str, command: list[str]) -> Played:
        self.played.append(Played(name, self.directory, command))
        return self.played[-1]


def _callback(mac: str) -> dict[str, Any]:
    nic = {"name": "eth0", "mac_address": mac, "ipv4_address": "192.0.2.1", "lldp": []}
    return {
        "inventory": {
            "interfaces": [nic],
            "cpu": {"architecture": "x86_64", "count": 8},
            "memory": {"physical_mb": 4096},
            "boot": {"pxe_interface": mac},
            "disks": [],
        }
    }


@pytest.fixture(params=["sqlite", "postgresql"])
def site(request: pytest.FixtureRequest, tmp_path: Path, before: Path) -> Iterator[Site]:
    url = (
        f"sqlite:///{tmp_path}/f.db" if request.param == "sqlite" else _empty(request.getfixturevalue("postgresql_url"))
    )
    found = Site(tmp_path, url, before)
    yield found
    found.close()


def _empty(url: str) -> str:
    """Return the URL of a database whose tables are gone."""
    engine = build_engine(DatabaseSettings(connection=url))
    with engine.connect() as connection:
        connection.execute(text("DROP SCHEMA public CASCADE"))
        connection.execute(text("CREATE SCHEMA public"))
    engine.dispose()
    return url


def test_both_releases_carry_out_inspections_and_nothing_is_lost(site: Site) -> None:
    site.upgrade(site.old("upgrade-before", "db", "upgrade"))
    old = site.old("before", "worker")
    old.wait_ready()
    site.upgrade(site.new("upgrade", "db", "upgrade"))
    new = site.new("all", "all")
    new.wait_ready()
    names = [f"n{number}" for number in range(NODES)]
    site.inspect(names)
    ended = site.ask("SELECT state, count(*) FROM inspections GROUP BY state")
    assert ended == [("finished", NODES)]
    assert site.ask("SELECT count(*) FROM requests") == [(0,)]
    workers = {process.split("@")[0] for (process,) in site.ask("SELECT DISTINCT process FROM journal")}
    assert {"worker", "all"} <= workers  # each release has had its part
    assert old.alive
    assert new.alive
    assert old.stop() == 0
    assert new.stop() == 0


def test_what_only_a_newer_release_knows_harms_nobody_and_waits(site: Site) -> None:
    site.upgrade(site.new("upgrade", "db", "upgrade"))
    workers = site.new("workers", "worker", "--processes", "2")
    api = site.new("all", "all")
    api.wait_ready()
    site.inspect(["strange", "waits", "n0"])
    with site.engine.connect() as connection:
        _from_the_future(connection)
    children = workers.children()
    site.inspect(["n1", "n2"])
    assert site.ask("SELECT event, attempt, holder FROM requests") == [("polish", 0, None)] * 2
    assert site.states()["strange"] == "polishing"
    assert site.call("GET", "/v1/nodes/strange")["provision_state"] == "polishing"
    assert workers.children() == children
    assert api.alive


def _from_the_future(connection: Connection) -> None:
    """Put an event and a version of requests, and a state, that this release has never heard of."""
    connection.execute(
        text("UPDATE nodes SET state = 'polishing', provision_state = 'polishing' WHERE name = 'strange'")
    )
    for version in (1, 99):
        connection.execute(
            text(
                "INSERT INTO requests (node, event, payload, version, attempt, begun, progress, created_at, due_at) "
                "SELECT uuid, 'polish', '{}', :version, 0, false, '{}', 1, 0 FROM nodes WHERE name = 'waits'"
            ),
            {"version": version},
        )
