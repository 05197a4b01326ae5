"""The release before and this one at work at once on one database, as while processes are upgraded one after another.

The release before is a real one: a commit of this repository's history, unpacked and run with the same Python. Before
the first release it is the one that changed the first migration last (ADR 034): no earlier one knows this schema.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Connection, text

from tests import ROOT
from tests.support.releases import Site, emptied

FIRST = "src/ferroscope/db/migrations/versions/0001_first.py"
NODES = 30


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


@pytest.fixture(params=["sqlite", "postgresql"])
def site(request: pytest.FixtureRequest, tmp_path: Path, before: Path) -> Iterator[Site]:
    url = (
        f"sqlite:///{tmp_path}/f.db"
        if request.param == "sqlite"
        else emptied(request.getfixturevalue("postgresql_url"))
    )
    found = Site(tmp_path, url, ["env", f"PYTHONPATH={before}", sys.executable, "-m", "ferroscope"])
    yield found
    found.close()


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
