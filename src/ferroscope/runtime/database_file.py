"""Whether SQLite's file is still the one that was opened: what is written to a deleted one is lost at the end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ferroscope.adapters.sql.trouble import DatabaseUrlError, checked
from ferroscope.config.settings import DatabaseSettings


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
