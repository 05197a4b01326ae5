"""What is kept of each release: databases with work in progress and a configuration, all made by that release.

``python -m tests.nightly.upgrades.kept WHEEL`` makes them with the wheel of a release, before it is published. Nothing
of it is changed afterwards: it is what users have.
"""

from __future__ import annotations

import gzip
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

from sqlalchemy import make_url

from tests.support import databases
from tests.support.releases import Site, emptied, install

KINDS: Final = ("sqlite", "postgresql")
RELEASES: Final = Path(__file__).parent / "releases"
# Nodes by what their newest inspection is doing.
FINISHED: Final = tuple(f"finished-{number}" for number in range(6))
WAITING: Final = tuple(f"waiting-{number}" for number in range(4))
QUEUED: Final = tuple(f"queued-{number}" for number in range(3))
# What waits is older each day, and is not to time out.
_MORE: Final = """\
[inspector]
add_ports = all
retention_number = 7
timeout_period = 0
"""
_RULE: Final[dict[str, Any]] = {
    "description": "kept",
    "conditions": [{"op": "is-true", "args": {"value": "{inventory[memory][physical_mb]}"}}],
    "actions": [{"op": "set-attribute", "args": {"path": "/extra/kept", "value": "yes"}}],
}


def versions() -> list[str]:
    """Return the releases of which something is kept."""
    return sorted(one.name for one in RELEASES.iterdir())


def restore(version: str, url: str) -> None:
    """Make the database of a release again at a URL; what is there is lost."""
    kind = make_url(url).get_backend_name()
    statements = gzip.decompress((RELEASES / version / f"{kind}.sql.gz").read_bytes())
    if kind == "postgresql":
        subprocess.run(
            ["psql", "--no-psqlrc", "--quiet", "--output=/dev/null", "--set=ON_ERROR_STOP=1", _libpq(emptied(url))],
            input=statements, check=True,
        )  # fmt: skip
        return
    path = _file(url)
    for old in path.parent.glob(f"{path.name}*"):
        old.unlink()
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(statements.decode())
        connection.execute("PRAGMA journal_mode = WAL")


def configuration(version: str) -> str:
    """Return the configuration of a release, with places for ``url`` and ``port``."""
    return (RELEASES / version / "ferroscope.conf").read_text()


def make(wheel: Path) -> Path:
    """Let a release work on each kind of database, end it in the middle, and keep what it leaves; return where."""
    target = RELEASES / wheel.name.split("-")[1]
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="ferroscope-kept-") as name:
        command = install(wheel, Path(name) / "venv")
        for kind in KINDS:
            place = Path(name) / kind
            place.mkdir()
            with _database(kind, place) as url:
                text = _leave(Site(place, url, command)).replace(url, "{url}")
                (target / f"{kind}.sql.gz").write_bytes(gzip.compress(_dumped(url), mtime=0))
            (target / "ferroscope.conf").write_text(text)  # the same for each
    return target


@contextmanager
def _database(kind: str, place: Path) -> Iterator[str]:
    """Give the URL of an empty database; of a server, for as long as it is needed."""
    if kind == "sqlite":
        yield f"sqlite:///{place}/kept.db"
        return
    with databases.private(kind, migrated=False) as (url, _):
        yield url


def _dumped(url: str) -> bytes:
    if url.startswith("sqlite:"):
        with closing(sqlite3.connect(_file(url))) as connection:
            return "\n".join(connection.iterdump()).encode()
    command = ["pg_dump", "--no-owner", "--no-privileges", _libpq(url)]
    return subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout


def _file(url: str) -> Path:
    return Path(url.removeprefix("sqlite:///"))


def _libpq(url: str) -> str:
    return make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)


def _leave(site: Site) -> str:
    """Let a release work, and end it in the middle; return its configuration, with a place for the port."""
    with site.conf.open("a") as file:
        file.write(_MORE)
    try:
        _work(site)
    finally:
        site.close()
    return site.conf.read_text().replace(str(site.port), "{port}")


def _work(site: Site) -> None:
    site.upgrade(site.old("upgrade", "db", "upgrade"))
    everything = site.old("all", "all")
    everything.wait_ready()
    site.call("POST", "/v1/inspection_rules", _RULE)
    site.inspect(list(FINISHED))
    site.enroll([*WAITING, *QUEUED])
    site.begin(list(WAITING))
    site.reach(list(WAITING), "inspect wait")
    everything.stop()
    api = site.old("api", "api")  # without a worker, requests stay where they are
    api.wait_ready()
    site.begin(list(QUEUED))
    api.stop()


if __name__ == "__main__":
    print(make(Path(sys.argv[1])))
