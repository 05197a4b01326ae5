"""Each release's data is upgraded and its work goes on; its processes work beside this one's; and the way back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ferroscope.db import migrate
from tests.nightly.upgrades.kept import FINISHED, KINDS, QUEUED, WAITING, configuration, restore, versions
from tests.support.releases import Site, built, emptied, install

NODES = 20


@pytest.fixture(scope="module", params=versions())
def version(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture(scope="module")
def release(version: str, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return the command of the release, installed from its wheel."""
    directory = tmp_path_factory.mktemp("release")
    return install(built(version, directory), directory / "venv")


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of a database that is empty."""
    sqlite = request.param == "sqlite"
    return f"sqlite:///{tmp_path}/f.db" if sqlite else emptied(request.getfixturevalue("postgresql_url"))


@pytest.fixture
def kept(version: str, release: list[str], tmp_path: Path, url: str) -> Iterator[Site]:
    """Give a site with the database and the configuration that the release has left."""
    restore(version, url)
    site = Site(tmp_path, url, release)
    site.conf.write_text(configuration(version).format(url=url, port=site.port))
    yield site
    site.close()


@pytest.fixture
def both(tmp_path: Path, release: list[str], url: str) -> Iterator[Site]:
    site = Site(tmp_path, url, release)
    yield site
    site.close()


def test_what_a_release_has_left_is_upgraded_and_its_work_goes_on(kept: Site) -> None:
    kept.upgrade(kept.new("upgrade", "db", "upgrade"))
    everything = kept.new("all", "all")
    everything.wait_ready()
    _complete(kept)
    for name in FINISHED:
        assert kept.call("GET", f"/v1/nodes/{name}/inventory")["inventory"]["memory"]["physical_mb"] == 4096
    # Its rule is applied by this release.
    assert kept.call("GET", f"/v1/nodes/{QUEUED[0]}")["extra"]["kept"] == "yes"
    assert everything.stop() == 0


def test_a_release_and_this_one_carry_out_inspections_and_nothing_is_lost(both: Site) -> None:
    both.upgrade(both.old("upgrade-before", "db", "upgrade"))
    old_api, old = both.old("api-before", "api"), both.old("before", "worker")
    for one in (old_api, old):
        one.wait_ready()
    names = [f"n{number}" for number in range(NODES)]
    macs = both.enroll(names)
    both.begin(names[: NODES // 2])  # by the release's api, and perhaps by its worker
    both.upgrade(both.new("upgrade", "db", "upgrade"))
    new = both.new("worker", "worker")
    new.wait_ready()
    both.begin(names[NODES // 2 :])
    both.reach(names, "inspect wait")
    for name in names[: NODES // 2]:
        both.call_back(macs[name])
    # The api is replaced, and then the worker: what it held is delivered again, or was done.
    assert old_api.stop() == 0
    api = both.new("api", "api")
    api.wait_ready()
    old.kill()
    for name in names[NODES // 2 :]:
        both.call_back(macs[name])
    both.reach(names, "manageable")
    assert both.ask("SELECT state, count(*) FROM inspections GROUP BY state") == [("finished", NODES)]
    assert both.ask("SELECT count(*) FROM requests") == [(0,)]
    assert new.stop() == 0
    assert api.stop() == 0


def test_the_way_back_is_open_while_the_schema_is_the_same_and_else_the_backup(
    kept: Site, version: str, url: str
) -> None:
    theirs = kept.ask("SELECT version_num FROM alembic_version")[0][0]
    kept.upgrade(kept.new("upgrade", "db", "upgrade"))
    new = kept.new("new", "all")
    new.wait_ready()
    new.kill()
    if theirs != migrate.HEAD:
        refused = kept.old("refused", "api")
        assert refused.process.wait(60) != 0
        assert theirs in refused.output()
        restore(version, url)
    old = kept.old("back", "all")
    old.wait_ready()
    _complete(kept)
    assert old.stop() == 0


def _complete(site: Site) -> None:
    """Let the machines of all inspections in progress call back; none is lost."""
    site.reach([*WAITING, *QUEUED], "inspect wait")
    macs = dict(site.ask("SELECT nodes.name, ports.address FROM nodes JOIN ports ON ports.node = nodes.uuid"))
    for name in (*WAITING, *QUEUED):
        site.call_back(macs[name])
    site.reach([*FINISHED, *WAITING, *QUEUED], "manageable")
    ended = dict(site.ask("SELECT state, count(*) FROM inspections GROUP BY state"))
    assert ended == {"finished": len(FINISHED) + len(WAITING) + len(QUEUED)}
    assert site.ask("SELECT count(*) FROM requests") == [(0,)]
