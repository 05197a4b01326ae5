"""The location of the database, and whether SQLite's file is still the one that was opened.

Data written to a deleted file is lost when it is closed, and a database at another path than before goes unnoticed
until data is missed. So the start logs the location, and warns of a file that earlier releases would have used.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from ferroscope.config import foreign, load
from ferroscope.config.options import DatabaseSettings
from ferroscope.db.url import DatabaseUrlError, hosts, parse_url

_MOUNTS: Final = Path("/proc/self/mountinfo")
_OCTAL: Final = re.compile(r"\\([0-7]{3})")


def file_of(settings: DatabaseSettings) -> Path | None:
    """Return SQLite's file; None for another database, or for an invalid URL, which is reported when it is opened."""
    try:
        url = parse_url(settings.connection)
    except DatabaseUrlError:
        return None
    return Path(url.database) if url.get_backend_name() == "sqlite" and url.database else None


def missing(settings: DatabaseSettings) -> Path | None:
    """Return SQLite's file if it does not exist; commands that only read must not create it."""
    path = file_of(settings)
    return None if path is None or path.exists() else path


def place(settings: DatabaseSettings) -> str:
    """Return the location of the database, without user, password and options; the URL must be valid."""
    url = parse_url(settings.connection)
    servers = hosts(url)
    if not servers:
        file = file_of(settings)
        return f"{url.get_backend_name()} {url.database if file is None else file.absolute()}"
    return f"{url.get_backend_name()} {url.database} at {', '.join(servers)}"


def make_directory(settings: DatabaseSettings) -> None:
    """Create the default directory if it does not exist; ``OSError``, whose text says what to do."""
    file = file_of(settings)
    if file is None or file != load.default_database():
        return
    try:
        # The system directory as its package makes it; only the owner can read the database file.
        file.parent.mkdir(mode=0o755 if file.parent == load.STATE_DIRECTORY else 0o700, parents=True, exist_ok=True)
    except OSError as exc:
        raise OSError(
            f"cannot create the directory of the database, {file.parent}: {exc.strerror}; "
            "set [database] connection to sqlite:////DIRECTORY/ferroscope.db, or to a database server"
        ) from exc


def refuse_others(settings: DatabaseSettings) -> None:
    """Raise ``PermissionError`` if this is root, and SQLite's file is where its owner decides what root would write."""
    file = file_of(settings)
    if file is None:
        return
    error = PermissionError(
        f"root does not write {file}: others decide what that is, and cannot use what root creates; run it as the "
        "service's user: runuser -u ferroscope -- ferroscope db ..."
    )
    if foreign.is_others(file):
        raise error
    try:
        foreign.refuse(file.parent)
    except PermissionError as exc:
        raise error from exc


def mounted_alone(settings: DatabaseSettings) -> tuple[str, str] | None:
    """Return what is wrong with a file of SQLite that is mounted without its directory, and what to do; or None.

    As with ``docker run -v /srv/f.db:/data/f.db``. SQLite puts its log next to it, and so into a container that is
    removed one day: without it, the database lacks its last commits.
    """
    file = file_of(settings)
    if file is None or str(file.resolve()) not in _mount_points():
        return None
    return (
        f"the database file {file} is mounted without its directory, so {file}-wal, where its last changes are, is not "
        "kept with it",
        f"stop the service, and mount a directory at {file.parent}, with this file in it",
    )


def _mount_points() -> set[str]:
    """Return where anything is mounted, in this process's view; the kernel writes blanks and the like in octal."""
    try:
        lines = _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return set()
    places = [line.split()[4] for line in lines]
    return {_OCTAL.sub(lambda escape: chr(int(escape[1], 8)), place) for place in places}


def left_behind(settings: DatabaseSettings) -> Path | None:
    """Return the file in the working directory that earlier releases used by default, if it is not the one in use."""
    file = file_of(settings)
    if file is None or file != load.default_database():
        return None
    try:
        old = Path(load.DATABASE_NAME).absolute()
    except FileNotFoundError:  # the working directory was deleted, for example to install another release
        return None
    return None if not old.is_file() or (file.exists() and file.samefile(old)) else old


def announce(settings: DatabaseSettings, log: Any) -> None:
    """Log the location of the database, and of one that is no longer used."""
    log.info("database", place=place(settings))
    if old := left_behind(settings):
        log.warning(
            "this directory has a database of an earlier release, which is not used; "
            f"to use it: --database sqlite:///{old}, or stop the service and move it",
            old=str(old),
            to=str(file_of(settings)),
        )


def watched(settings: DatabaseSettings) -> Callable[[], str]:
    """Return a function that says what happened to the file since now; "" while it is the same."""
    path = file_of(settings)
    if path is None:
        return lambda: ""
    opened, real = _identity(path), path.resolve()

    def look() -> str:
        try:
            present = _identity(path)
        except OSError:  # the check is impossible now; the next use reports what is wrong
            return ""
        if present == opened:
            lost = _find_deleted(real)
            return f"{lost}, a part of the database, was deleted; further writes would be lost" if lost else ""
        event = "was deleted" if present is None else "was replaced"
        return f"the database file {path} {event}; further writes would be lost"

    return look


def _find_deleted(path: Path) -> str:
    """Return which of SQLite's auxiliary files was deleted although this process has it open, "" if none was.

    Without its log, a database lacks the last commits after a crash; without the other file, which has the locks of all
    processes, two of them would write at the same time. SQLite itself deletes both only after the last one has closed
    the database.
    """
    auxiliary = {f"{path}{suffix} (deleted)": f"{path}{suffix}" for suffix in ("-wal", "-shm")}
    descriptors = Path("/proc/self/fd")
    for descriptor in descriptors.iterdir() if descriptors.is_dir() else ():
        with suppress(OSError):  # closed meanwhile
            if (name := auxiliary.get(str(descriptor.readlink()))) is not None:
                return name
    return ""


def _identity(path: Path) -> tuple[int, int] | None:
    """Return the identity of the file, which is not reused while a connection has it open."""
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_dev, status.st_ino
