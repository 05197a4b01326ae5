"""MariaDB and MySQL: several statements are sent as one text.

All nodes of a Galera cluster accept writes, and each commit is certified against those of the other nodes: a
transaction that changed the same row loses with a deadlock error, and is retried. Four things differ from a single
server:

* A node applies the others' commits later. With ``wsrep_sync_wait`` a transaction begins when everything is applied
  that was committed anywhere before, so a process sees its own writes on whichever node it reads.
* ``SELECT ... FOR UPDATE`` locks on one node only, and is not certified. The row must be written: see ``nodes``.
* A transaction that loses between two statements of one text is reported at the end of the text only, after the rest of
  it was executed. So each statement is sent by itself: see ``send``.
* A node without the majority refuses everything with error 1047; the connection must be opened again.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from typing import Any, Final

import pymysql
from pymysql.constants import CR
from sqlalchemy import URL, Connection, Engine, event

from ferroscope.config.options import DatabaseSettings
from ferroscope.db.connections import GALERA
from ferroscope.db.executor import (
    ANSWER_GRACE_SECONDS,
    COMMIT,
    KEEPALIVE,
    NOW,
    CommandError,
    Result,
    SqlCommand,
    begins,
)
from ferroscope.remote.resolver import UnresolvedError, resolve

# PyMySQL's client flags: count the rows that matched, not those that changed; and accept several statements in one
# text (see ``send``).
_FOUND_ROWS: Final = 1 << 1
_MULTI_STATEMENTS: Final = 1 << 16
# Characters in one packet.
_MAX_PACKET_BYTES: Final = 4 * 1024 * 1024
# MariaDB's default limit of one packet, in bytes.
_MIN_PACKET_BYTES: Final = 16 * 1024 * 1024
_ASKED: Final = "SHOW GLOBAL VARIABLES WHERE variable_name IN ('wsrep_on', 'max_allowed_packet')"
# Bit 1: the beginning of a transaction, and a SELECT outside of one. Each of our transactions begins explicitly.
_CAUSAL: Final = "SET SESSION wsrep_sync_wait = 1"
_PACKET_TOO_BIG: Final = 1153  # the server's own number for it
# The driver's own error numbers.
_CLIENT_ERRORS: Final = range(2000, 3000)
# Those after which the server has not got the whole text, and executes none of it.
_NOT_SENT: Final = (0, CR.CR_SERVER_GONE_ERROR)


def connect_arguments(url: URL, settings: DatabaseSettings) -> tuple[URL, dict[str, Any]]:
    """Return the URL with its driver, and the arguments of a connection."""
    return url if "+" in url.drivername else url.set(drivername="mysql+pymysql"), session_arguments(settings)


def session_arguments(settings: DatabaseSettings) -> dict[str, Any]:
    """Return the arguments of a connection, with a time limit for each wait."""
    seconds = max(1, int(settings.statement_timeout))
    # Only MariaDB executes the text in /*M! */. A session that is idle within a transaction must not keep its locks:
    # its host may have failed, or its process may be stopped.
    session = (
        "SET SESSION time_zone='+00:00',"
        f" innodb_lock_wait_timeout={seconds},"
        f" /*M!100301 max_statement_time={seconds}, idle_transaction_timeout={seconds}, */"
        " sql_mode='STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION';"
        " SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"
    )
    return {
        "charset": "utf8mb4",
        "client_flag": _FOUND_ROWS | _MULTI_STATEMENTS,
        "connect_timeout": settings.connect_timeout,
        "read_timeout": seconds + ANSWER_GRACE_SECONDS,
        "write_timeout": seconds + ANSWER_GRACE_SECONDS,
        "init_command": session,
    }


def listen(engine: Engine, settings: DatabaseSettings) -> None:
    """Prepare each new connection of the engine."""
    event.listen(engine, "connect", _prepare)
    event.listen(engine, "do_connect", connect)
    event.listen(engine, "connect", partial(_keep_alive, settings.statement_timeout))


def _prepare(connection: Any, record: Any) -> None:
    """Refuse a server that would refuse the largest statements: callbacks would fail one day, and nothing else."""
    cursor = connection.cursor()
    cursor.execute(_ASKED)
    variables = dict(cursor.fetchall())  # a server without Galera's interface, such as MySQL, has one of the two
    if (largest := int(variables["max_allowed_packet"])) < _MIN_PACKET_BYTES:
        raise connection.OperationalError(
            _PACKET_TOO_BIG,
            f"max_allowed_packet of the server is {largest}, and large inventories need {_MIN_PACKET_BYTES}; set "
            f"max_allowed_packet = {_MIN_PACKET_BYTES // 1024 // 1024}M in its configuration",
        )
    if variables.get("wsrep_on") == "ON":
        cursor.execute(_CAUSAL)
        record.info[GALERA] = True
    cursor.close()


def _keep_alive(statement_timeout: float, connection: Any, _record: Any) -> None:
    """Have the kernel do what libpq is told to by ``KEEPALIVE``: PyMySQL leaves it to the host's two hours.

    A firewall or NAT that drops what is idle would let the next statement wait for its time limit.
    """
    sock = connection._sock
    if sock.family == socket.AF_UNIX:
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        (socket.TCP_KEEPIDLE, KEEPALIVE["keepalives_idle"]),
        (socket.TCP_KEEPINTVL, KEEPALIVE["keepalives_interval"]),
        (socket.TCP_KEEPCNT, KEEPALIVE["keepalives_count"]),
        (socket.TCP_USER_TIMEOUT, int(statement_timeout * 1000)),
    ):
        sock.setsockopt(socket.IPPROTO_TCP, option, value)


def connect(_dialect: Any, _record: Any, _arguments: Any, parameters: dict[str, Any]) -> Any:
    """Return a connection, for which the look-up of the server's name counts as connecting; ``OperationalError``."""
    host, seconds = parameters.get("host"), parameters["connect_timeout"]
    if not host or {"unix_socket", "bind_address"} & parameters.keys():
        return None  # as the driver does it
    driver = pymysql.Connection(**parameters, defer_connect=True)
    deadline = time.monotonic() + seconds
    try:
        addresses = resolve(host, seconds)
        for number, address in enumerate(addresses):
            try:
                left = max(deadline - time.monotonic(), 0.001) / (len(addresses) - number)
                opened = socket.create_connection((address, driver.port), left)
                break
            except OSError as exc:
                failure: Exception = exc
        else:
            raise failure
    except (OSError, UnresolvedError) as exc:
        text = f"Can't connect to MySQL server on {host!r} ({exc})"
        raise pymysql.err.OperationalError(CR.CR_CONN_HOST_ERROR, text) from exc
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    driver.connect(opened)
    return driver


_NOW: Final = f"SELECT {NOW['mysql']}"
# A write has the session's isolation level, READ COMMITTED. All statements of a read see the same snapshot.
_WRITE: Final = begins("START TRANSACTION", _NOW)
_READ: Final = begins("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", "START TRANSACTION READ ONLY", _NOW)


def opening(write: bool, _durable: bool, snapshot: bool, /) -> Sequence[SqlCommand]:
    """Return the statements that begin a transaction, or the last of them for a read without ``snapshot``."""
    return _WRITE if write else _READ if snapshot else _READ[-1:]


def closing(_woken: Collection[str], /) -> Sequence[SqlCommand]:
    """Return the statement that ends a transaction; nothing else is told to other processes."""
    return (COMMIT,)


def send(connection: Connection, commands: Sequence[SqlCommand]) -> list[Result]:
    """Send all statements as one text (``MULTI_STATEMENTS``), or several if they exceed a packet.

    The server stops at the first statement that fails. On a Galera cluster that is not enough: a conflicting commit of
    another node may abort the transaction between two statements of a text. The server then reports no error but
    executes the rest without a transaction, COMMIT included. Only the end of a text reports it, so there each statement
    is a text of its own, from the first one that uses a table.
    """
    driver: Any = connection.connection.dbapi_connection
    cursor, results = driver.cursor(), list[Result]()
    texts = [
        command.text if command.values is None else cursor.mogrify(command.text, command.values) for command in commands
    ]
    last = [GALERA in connection.info and not command.begins for command in commands]
    sent = 0
    try:
        for size in _packets(texts, last):
            first, sent = len(results), len(results) + size
            text = ";".join(texts[first:sent]).encode(driver.encoding, "surrogateescape")
            for result in _execute(cursor, text, size):
                results.append(result)  # those before an error count
    except driver.Error as exc:
        if exc.args and exc.args[0] in _NOT_SENT:
            sent = len(results)
        raise CommandError(len(results), exc, sent=len(results) + 1 if _is_answer(exc) else sent) from exc
    except BaseException:
        connection.invalidate()  # the rest would be taken for the response to the next text
        raise
    return results


def _execute(cursor: Any, text: bytes, size: int) -> Iterator[Result]:
    """Yield the result of each of the ``size`` statements of a text."""
    cursor.execute(text)
    has_more, number = True, 0
    while has_more:
        yield cursor.fetchall() if cursor.description else (), cursor.rowcount
        has_more, number = cursor.nextset(), number + 1
    if number != size:
        raise RuntimeError(f"the server returned {number} results for {size} statements")


def _is_answer(error: Any) -> bool:
    """Whether it is what the server said of a statement, after which it executes no other one of the text."""
    code = error.args[0] if error.args else None
    return isinstance(code, int) and code != 0 and code not in _CLIENT_ERRORS


def _packets(texts: Sequence[str], last: Sequence[bool]) -> Iterator[int]:
    """Yield the number of texts in each packet; a text that is ``last`` ends its packet."""
    number = length = 0
    for text, is_last in zip(texts, last, strict=True):
        if number and length + len(text) > _MAX_PACKET_BYTES:
            yield number
            number = length = 0
        number, length = number + 1, length + len(text)
        if is_last:
            yield number
            number = length = 0
    if number:
        yield number
