"""The errors of the databases: which of them to retry, what they say to people, and which constraint was violated."""

from __future__ import annotations

import errno
import os
import re
import shutil
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal

from sqlalchemy import URL, Table
from sqlalchemy.exc import DBAPIError, IntegrityError, InterfaceError, OperationalError

from ferroscope.contracts.errors import ConflictError, StoreUnavailableError
from ferroscope_client.core.database_fault import DatabaseFault

# Messages about database errors. They never contain a credential.

_MAX_MESSAGE_CHARACTERS: Final = 200
# If a password was not percent-encoded in the URL, part of it is parsed as the host, which drivers quote.
_BEFORE_AT: Final = re.compile(r"""(?<![^\s"'])[^\s"']+@(?=[^\s"'])""")


def to_unavailable_error(url: URL, error: DBAPIError) -> StoreUnavailableError:
    """Return the error with its fault and why; for SQLite with the file name, which its own message lacks."""
    file = f" ({url.database}{_why_not_writable(url.database)})" if url.get_backend_name() == "sqlite" else ""
    message = f"{described(error)}{file}"
    fault = read_fault(error, message)
    return StoreUnavailableError(f"{fault.summary}: {message}", fault)


def _why_not_writable(database: str | None) -> str:
    """Return what the kernel says, which to SQLite is a "disk I/O error" only; "" if the place is writable, with room.

    It is asked with the lock file: another file descriptor of the database's own, closed, would release all its locks.
    """
    try:
        with suppress(FileNotFoundError):
            os.close(os.open(f"{database}-writelock", os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW))
        usage = shutil.disk_usage(Path(database or "").parent)
    except OSError as exc:
        return f": {exc.strerror}"
    return f": {os.strerror(errno.ENOSPC)}" if usage.total and not usage.free else ""


def described(error: DBAPIError) -> str:
    """Return the first line of the driver's or server's message, with its error code if there is one."""
    original: Any = error.orig
    arguments: list[Any] = list(getattr(original, "args", ()))
    number = getattr(original, "sqlstate", None)
    text = str(original)
    if len(arguments) > 1 and isinstance(arguments[0], int):  # MariaDB's driver
        number, text = arguments[0], str(arguments[1])
    line = _BEFORE_AT.sub("******@", next(iter(text.strip().splitlines()), ""))[:_MAX_MESSAGE_CHARACTERS]
    return (line or type(original).__name__) + (f" ({number})" if number else "")


# What to do about an error.

ErrorClass = Literal["busy", "unavailable", "other"]

_PG_BUSY: Final = {"40001", "40P01", "55P03"}
# The server's own trouble: no connection, no resources, an administrator's command, a failed disk or file.
_PG_CLASSES: Final = ("08", "53", "57", "58")
# A table or schema is missing, or access is denied, while a backup is restored or an administrator changes something.
_PG_ABSENT: Final = {"3F000", "42501", "42P01"}
_PG_DAMAGED: Final = {"XX001", "XX002"}
_PG_UNAVAILABLE: Final = {"25006", "25P03", "25P04"} | _PG_ABSENT | _PG_DAMAGED
_MYSQL_BUSY: Final = {1205, 1213, 1020, 1412}  # the last one: a table was altered since the snapshot of this read
_MYSQL_DENIED: Final = {1044, 1045, 1142, 1143, 1226, 1820}  # also: the user's limit is reached, its password expired
_MYSQL_ABSENT: Final = {1046, 1049, 1146, 1932}
_MYSQL_BROKEN: Final = {1026, 1030, 1034, 1036, 1037, 1038, 1041, 1194, 1317, 1712}  # disk, memory, table; KILL QUERY
_MYSQL_GONE: Final = {1021, 1040, 1053, 1114, 1290, 1792, 1836, 1927, 1969, 2002, 2003, 2006, 2013, 2055, 3024}
# Of a Galera node: it is not part of the primary component (1047), or left it during COMMIT, whose outcome is unknown.
_GALERA_LEFT: Final = 1180
# The same number reports a COMMIT that lost a conflict, with the system's or the storage engine's number of a deadlock;
# it was rolled back.
_DEADLOCK_CODE: Final = 1213
_LOST_CONFLICT: Final = re.compile(r"Got error (35|149)\b")
_GALERA_GONE: Final = {1047, _GALERA_LEFT}
_MYSQL_UNAVAILABLE: Final = _MYSQL_GONE | _MYSQL_DENIED | _MYSQL_ABSENT | _MYSQL_BROKEN | _GALERA_GONE
# The server accepts no writes, but another one at the same address may: behind a load balancer, or in a list of hosts.
_ELSEWHERE: Final = {"25006", 1290, 1792, 1836} | _GALERA_GONE
# The file is damaged, or something else was written there.
_SQLITE_BROKEN: Final = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_SQLITE_BUSY: Final = ("database is locked", "database table is locked", "database schema is locked")


def classify(error: DBAPIError) -> ErrorClass:
    """Return whether to retry at once (busy), to raise ``StoreUnavailableError`` (unavailable), or neither."""
    original: Any = error.orig
    if error.connection_invalidated or isinstance(error, InterfaceError) or _of_connecting(error):
        return "unavailable"
    code = _code_of(original)
    if isinstance(code, int):  # MariaDB and MySQL: the code is more specific than the SQLSTATE
        return _by_code(code, _MYSQL_BUSY, _MYSQL_UNAVAILABLE, unavailable=code == 0)
    sqlstate = getattr(original, "sqlstate", None)
    if sqlstate is not None:
        return _by_code(sqlstate, _PG_BUSY, _PG_UNAVAILABLE, unavailable=sqlstate.startswith(_PG_CLASSES))
    if isinstance(error, OperationalError):
        if any(text in str(original) for text in _SQLITE_BUSY):
            return "busy"
        wrong = getattr(original, "sqlite_errorcode", None) == sqlite3.SQLITE_ERROR  # invalid SQL
        return "other" if wrong and "no such table" not in str(original) else "unavailable"
    broken = (getattr(original, "sqlite_errorcode", 0) & 0xFF) in _SQLITE_BROKEN
    return "unavailable" if broken else "other"


_FAULTS: Final[dict[Any, DatabaseFault]] = {
    **dict.fromkeys((sqlite3.SQLITE_FULL, "53100", 1021, 1114), DatabaseFault.FULL),
    **dict.fromkeys((sqlite3.SQLITE_READONLY, "25006", 1290, 1792, 1836), DatabaseFault.READ_ONLY),
    **dict.fromkeys(("53300", "28000", "28P01", "3D000", "42501", 1040, 1049), DatabaseFault.REFUSED),
    **dict.fromkeys(_MYSQL_DENIED, DatabaseFault.REFUSED),
}
# What the kernel says, and servers without a code of their own for it. psycopg has no code of a refused connection.
_FAULT_TEXTS: Final = {
    DatabaseFault.FULL: re.compile(r"No space left|[Dd]isk quota exceeded|errno: (?:28|122)\b"),
    DatabaseFault.READ_ONLY: re.compile("Read-only file system|Permission denied"),
    DatabaseFault.REFUSED: re.compile("[Cc]onnection refused|FATAL:"),
}


def read_fault(error: DBAPIError, message: str) -> DatabaseFault:
    """Return the kind of an error with which the database is unavailable."""
    original: Any = error.orig
    code = getattr(original, "sqlite_errorcode", 0) & 0xFF or _server_code_of(original)
    if code in _FAULTS:
        return _FAULTS[code]
    if classify(error) == "busy":
        return DatabaseFault.LOCKED
    matches = (fault for fault, pattern in _FAULT_TEXTS.items() if pattern.search(message))
    return next(matches, DatabaseFault.UNAVAILABLE)


def _of_connecting(error: DBAPIError) -> bool:
    """Whether there was no connection yet: whatever the server says, our statements are not the reason."""
    return error.statement is None and isinstance(error, OperationalError)


def leaves_open(error: DBAPIError) -> bool:
    """Whether a COMMIT that ended with this error may have taken effect: it was not answered, or not conclusively."""
    original: Any = error.orig
    left = _code_of(original) == _GALERA_LEFT
    return error.connection_invalidated or left or getattr(original, "unreplicated", False)


def is_elsewhere(error: DBAPIError) -> bool:
    """Whether a new connection may lead to where writes are accepted; this one is up, and does not accept them.

    SQLite opens a file that it may not write for reading, and such a connection never writes, whatever comes later.
    """
    original: Any = error.orig
    if (getattr(original, "sqlite_errorcode", 0) & 0xFF) == sqlite3.SQLITE_READONLY:
        return True
    return _server_code_of(original) in _ELSEWHERE


def _server_code_of(original: Any) -> Any:
    """Return the number of an error of MariaDB or MySQL, or the SQLSTATE of another one; None if it has none."""
    code = _code_of(original)
    return code if isinstance(code, int) else getattr(original, "sqlstate", None)


def _code_of(original: Any) -> Any:
    """Return the first argument of the driver's error, which is the number of an error of MariaDB or MySQL."""
    code, *rest = original.args if original is not None and original.args else (None,)
    return _DEADLOCK_CODE if code == _GALERA_LEFT and rest and _LOST_CONFLICT.search(str(rest[0])) else code


def _by_code(code: Any, busy: set[Any], gone: set[Any], *, unavailable: bool) -> ErrorClass:
    if code in busy:
        return "busy"
    return "unavailable" if unavailable or code in gone else "other"


# Constraints.

# MariaDB's message ends with the key, MySQL's with table and key, SQLite's with the column.
_VIOLATED: Final = re.compile(r"(?:for key '(?:[^'.]+\.)?(?P<key>[^'.]+)'|failed: (?P<column>\w+\.\w+))\Z")


def violated_constraint(error: IntegrityError) -> str | None:
    """Return the name of the constraint, or on SQLite ``table.column``; never a value."""
    original: Any = error.orig
    if diagnosis := getattr(original, "diag", None):
        name: str | None = diagnosis.constraint_name
        return name
    match = _VIOLATED.search(str(original.args[-1]))
    return (match["key"] or match["column"]) if match else None


def conflict(error: IntegrityError, row: dict[str, Any], table: Table) -> Exception:
    """Return the ``ConflictError`` for a violated unique constraint; other errors are returned unchanged."""
    violated = violated_constraint(error)
    for column in table.columns:
        if violated in (f"uq_{table.name}_{column.name}", f"{table.name}.{column.name}"):
            return ConflictError(column.name, str(row[column.name]))
    if violated in ("PRIMARY", f"pk_{table.name}"):
        return ConflictError("uuid", str(row["uuid"]))
    return error
