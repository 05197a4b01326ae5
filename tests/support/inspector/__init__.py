"""Databases of ironic-inspector 12.5.0, made and filled by ironic-inspector itself, from ``.inspector-venv``."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final

from tests import ROOT
from tests.support.servers import made_once
from tests.support.speed import slowness

_VENV: Final = ROOT / ".inspector-venv" / "bin"
PYTHON: Final = _VENV / "python"
# What a real ironic-inspector stored of a machine, as processed.json and unprocessed.json.
DATA: Final = Path(__file__).parent
_DRIVERS: Final = {"postgresql": "postgresql+psycopg2", "mysql": "mysql+pymysql"}
# The nodes that produce.py makes, by what has become of their introspection; UNKNOWN has finished.
FINISHED, CANCELED, WAITING, UNKNOWN, FAILED = (
    f"{number}1111111-1111-4111-8111-111111111111" for number in range(1, 6)
)
RULE: Final = "aaaaaaaa-1111-4111-8111-111111111111"
PATH_NOT_SUPPORTED: Final = "bbbbbbbb-1111-4111-8111-111111111111"


def configure(connection: str, conf: Path, stored: str = "store_data = database\n") -> None:
    """``stored``: the rest of the section ``[processing]``, and further ones."""
    family, _, rest = connection.partition("://")
    connection = f"{_DRIVERS.get(family.partition('+')[0], family)}://{rest}"
    conf.write_text(f"[database]\nconnection = {connection}\n[processing]\n{stored}")


def fill(conf: Path) -> None:
    """Let ironic-inspector create its schema in the database of this configuration, and fill it."""
    for program, *arguments in (
        ("ironic-inspector-dbsync", "--config-file", conf, "upgrade"),
        ("python", DATA / "produce.py", conf, DATA),
    ):
        done = subprocess.run(
            [_VENV / program, *arguments], capture_output=True, text=True, timeout=600 * slowness(), check=False
        )
        assert done.returncode == 0, done.stderr[-3000:]


def filled_sqlite(directory: Path) -> Path:
    """Return a copy of a filled SQLite database."""

    def make(path: Path) -> None:
        conf = path.with_suffix(".conf")
        configure(f"sqlite:///{path}", conf)
        fill(conf)

    return Path(shutil.copyfile(made_once("inspector.db", make), directory / "inspector.db"))
