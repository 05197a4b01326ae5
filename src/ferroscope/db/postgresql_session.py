"""A session of PostgreSQL, before it is used: on a server that can serve us, with a time limit for each answer.

What would fail later, or be wrong without a word, is refused while connecting; the message says what to do.
"""

from __future__ import annotations

import select
import time
from functools import cache, partial
from typing import Any, Final

# A connection's: the server has given up waiting for its synchronous standby.
UNREPLICATED: Final = "unreplicated"
# The class of the warning that a commit is not on the synchronous standby; its text is translated. No statement of
# ours causes other warnings.
_NOT_REPLICATED: Final = {"01000", "57P01"}
_POOLER: Final = (
    "its sessions do not keep our time limits, as behind a connection pooler such as PgBouncer; "
    "set [database] connection to PostgreSQL itself: each process pools its own connections"
)
# What a pooler says to settings that it does not know; PostgreSQL knows all of ours.
_UNSUPPORTED: Final = "unsupported startup parameter"
_LIMIT: Final = "SELECT EXTRACT(EPOCH FROM CAST(current_setting('statement_timeout') AS interval))"


def connect(limit: float, _dialect: Any, _record: Any, _arguments: Any, parameters: Any) -> Any:
    """Return a connection whose statements are limited to so many seconds; ``psycopg.OperationalError``."""
    import psycopg

    try:
        connection = _connection_type(limit * 2).connect(**parameters, autocommit=True)
    except psycopg.OperationalError as exc:
        if _UNSUPPORTED in str(exc):
            raise psycopg.OperationalError(_POOLER) from exc
        raise
    try:
        refused = _refused(connection, limit)
    except BaseException:
        connection.close()
        raise
    if refused:
        connection.close()
        raise psycopg.OperationalError(refused)
    return connection


def _refused(connection: Any, limit: float) -> str:
    """Return why this server cannot be used, or ""."""
    if connection.pgconn.parameter_status(b"in_hot_standby") == b"on":
        return "the server is a standby: it has not been promoted"
    encoding = (connection.pgconn.parameter_status(b"server_encoding") or b"UTF8").decode()
    if encoding != "UTF8":
        return (
            f"the database has the encoding {encoding}, which cannot store every text; "
            "create it anew: CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE template0"
        )
    # Settings of a session are lost on a pooler's way, and so are prepared statements and LISTEN.
    (seconds,) = connection.execute(_LIMIT).fetchone()
    return "" if abs(float(seconds) - limit) < 0.001 else _POOLER


@cache
def _connection_type(answer_timeout: float) -> Any:
    """Return a subclass of psycopg's connection that waits at most ``answer_timeout`` seconds for each answer.

    The server's own timeouts work only while its processes run, and TCP's only if its kernel is silent too. A server
    whose processes hang (failed disk, SIGSTOP) is detected only by this timeout.
    """
    import psycopg
    from psycopg.pq import TransactionStatus

    class TimedConnection(psycopg.Connection[Any]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            self.answer_timeout = answer_timeout
            self._socket = select.poll()
            self._socket.register(self.pgconn.socket, select.POLLIN)

        def wait_until_readable(self, deadline: float) -> None:
            """Return when the server has sent something; ``OperationalError`` at this time of the monotonic clock."""
            left = deadline - time.monotonic()
            if left <= 0 or not self._socket.poll(left * 1000):
                self.pgconn.finish()  # a late answer must not be read as the next statement's
                raise psycopg.OperationalError(f"the server has not answered for {answer_timeout:g} s")

        def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
            try:
                return super().wait(gen, interval, answer_timeout if timeout is None else timeout)
            except psycopg.OperationalError:
                if timeout is None and self.pgconn.transaction_status == TransactionStatus.ACTIVE:
                    self.pgconn.finish()  # a late answer must not be read as the next statement's
                raise

    return TimedConnection


def prepare(connection: Any, record: Any) -> None:
    """Replace NUL, which PostgreSQL cannot store in text, with U+FFFD; ramdisks do send it.

    Also note when the server gives up waiting for its synchronous standby: see ``pipeline``.
    """
    connection.add_notice_handler(partial(_noticed, record.info))
    from psycopg.types.string import StrDumper, StrDumperUnknown, StrDumperVarchar

    for dumper in (StrDumperVarchar, StrDumper, StrDumperUnknown):
        connection.adapters.register_dumper(str, _without_nul(dumper))


def _noticed(info: dict[str, Any], notice: Any) -> None:
    if notice.severity_nonlocalized == "WARNING" and notice.sqlstate in _NOT_REPLICATED:
        info[UNREPLICATED] = True


@cache
def _without_nul(dumper: Any) -> Any:
    def dump(self: Any, text: str) -> Any:
        return dumper.dump(self, text.replace("\0", "\ufffd") if "\0" in text else text)

    return type(dumper.__name__, (dumper,), {"dump": dump})
