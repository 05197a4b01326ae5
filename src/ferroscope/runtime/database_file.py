"""Where the database is, and whether SQLite's file is still the one that was opened.

What is written to a deleted file is lost at the end; what is written to another one than yesterday's is not missed
until somebody looks for it. So the start says which one it is, and names one that earlier releases would have taken.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from sqlalchemy import make_url

from ferroscope.config import load
from ferroscope.config.options import DatabaseSettings
from ferroscope.db.engine import DatabaseUrlError, checked


def file_of(settings: DatabaseSettings) -> Path | None:
    """Return SQLite's file; None for another database, and for what is no URL, which opening it explains."""
    try:
        url = checked(settings.connection)
    except DatabaseUrlError:
        return None
    return Path(url.database) if url.get_backend_name() == "sqlite" and url.database else None


def missing(settings: DatabaseSettings) -> Path | None:
    """Return SQLite's file if it is not there yet: whoever only looks must not make it."""
    path = file_of(settings)
    return None if path is None or path.exists() else path


def place(settings: DatabaseSettings) -> str:
    """Return where the database is, without user, password and options; for a URL that can be used."""
    url = make_url(settings.connection)
    if not url.host:
        file = file_of(settings)
        return f"{url.get_backend_name()} {url.database if file is None else file.absolute()}"
    port = f":{url.port}" if url.port else ""
    return f"{url.get_backend_name()} {url.database} at {url.host}{port}"


def make_directory(settings: DatabaseSettings) -> None:
    """Make the directory of the default place, where it is missing; ``OSError``."""
    file = file_of(settings)
    if file is not None and file == load.default_database():
        # The system's is shared with what boot hosts serve; the file itself is for its owner alone.
        file.parent.mkdir(mode=0o755 if file.parent == load.STATE_DIRECTORY else 0o700, parents=True, exist_ok=True)


def left_behind(settings: DatabaseSettings) -> Path | None:
    """Return the file in the working directory that earlier releases used by default, where it is not the one used."""
    file, old = file_of(settings), Path(load.DATABASE_NAME).absolute()
    if file is None or file != load.default_database() or not old.is_file():
        return None
    return None if file.exists() and file.samefile(old) else old


def announce(settings: DatabaseSettings, log: Any) -> None:
    """Say where the database is, and which one is not used any more."""
    log.info("database", place=place(settings))
    if old := left_behind(settings):
        log.warning(
            "this directory has the database of an earlier release, which is not used; "
            f"to go on with it: --database sqlite:///{old}, or stop the service and move it",
            old=str(old),
            to=str(file_of(settings)),
        )


def watched(settings: DatabaseSettings) -> Callable[[], str]:
    """Return what says, from now on, what has become of the file; "" as long as it is the same one."""
    path = file_of(settings)
    if path is None:
        return lambda: ""
    opened = _identity(path)

    def look() -> str:
        present = _identity(path)
        if present == opened:
            return ""
        what = "was deleted" if present is None else "was replaced by another one"
        return f"the database's file {path} {what}; what is written now would be lost"

    return look


def _identity(path: Path) -> tuple[int, int] | None:
    """Return which file this is; it stays taken for as long as a connection has it open."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino
