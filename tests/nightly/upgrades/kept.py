"""What is kept of each release: a database with work in progress and a configuration, both made by that release.

``python -m tests.nightly.upgrades.kept WHEEL`` makes them with the wheel of a release, before it is published. Nothing
of it is changed afterwards: it is what users have.
"""

from __future__ import annotations

import gzip
import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from tests.support.releases import Site, install

RELEASES: Final = Path(__file__).parent / "releases"
# Nodes by what their newest inspection is doing.
FINISHED: Final = tuple(f"finished-{number}" for number in range(6))
WAITING: Final = tuple(f"waiting-{number}" for number in range(4))
QUEUED: Final = tuple(f"queued-{number}" for number in range(3))
_MORE: Final = """\
[inspector]
add_ports = all
retention_number = 7
"""
_RULE: Final[dict[str, Any]] = {
    "description": "kept",
    "conditions": [{"op": "is-true", "args": {"value": "{inventory[memory][physical_mb]}"}}],
    "actions": [{"op": "set-attribute", "args": {"path": "/extra/kept", "value": "yes"}}],
}


def versions() -> list[str]:
    """Return the releases of which something is kept."""
    return sorted(one.name for one in RELEASES.iterdir())


def restore(version: str, directory: Path) -> str:
    """Make the database of a release again in a directory; return its URL."""
    path = directory / "kept.db"
    statements = gzip.decompress((RELEASES / version / "sqlite.sql.gz").read_bytes()).decode()
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(statements)
        connection.execute("PRAGMA journal_mode = WAL")
    return f"sqlite:///{path}"


def configuration(version: str) -> str:
    """Return the configuration of a release, with places for ``url`` and ``port``."""
    return (RELEASES / version / "ferroscope.conf").read_text()


def make(wheel: Path) -> Path:
    """Let a release work, end it in the middle, and keep what it leaves; return the directory."""
    version = wheel.name.split("-")[1]
    with tempfile.TemporaryDirectory(prefix="ferroscope-kept-") as name:
        place = Path(name)
        site = Site(place, f"sqlite:///{place}/kept.db", install(wheel, place / "venv"))
        with site.conf.open("a") as file:
            file.write(_MORE)
        try:
            _work(site)
        finally:
            site.close()
        target = RELEASES / version
        target.mkdir(parents=True, exist_ok=True)
        text = site.conf.read_text().replace(str(site.port), "{port}").replace(f"sqlite:///{place}/kept.db", "{url}")
        (target / "ferroscope.conf").write_text(text)
        with closing(sqlite3.connect(place / "kept.db")) as connection:
            statements = "\n".join(connection.iterdump())
        (target / "sqlite.sql.gz").write_bytes(gzip.compress(statements.encode(), mtime=0))
    return target


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
