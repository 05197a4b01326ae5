"""Sending several statements in one round trip, for each driver.

SQLite runs in the process, so there is no round trip to save. With PyMySQL the statements are joined into one text,
except on a Galera cluster (see ``joined``).
libpq has a pipeline mode, but psycopg's API for it sends statements separately and adapts each parameter by its Python
type, which takes 0.3 ms instead of 0.06 ms for ten statements. So libpq is called directly, through psycopg's wrapper;
parameters are sent as text, and get their types from the statement.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final, Protocol

import msgspec
from sqlalchemy import Connection

from ferroscope.db.postgresql_session import UNREPLICATED
from ferroscope.db.replication import is_galera

Rows = Sequence[Any]
Result = tuple[Rows, int]

# A statement is prepared when it is executed this often on a connection (psycopg's default), up to a maximum number.
_PREPARED_AFTER: Final = 5
_MOST_PREPARED: Final = 200
# Characters in one packet; the server's limit is ``spellings.PACKET``.
_PACKET: Final = 4 * 1024 * 1024
# The driver's own error numbers.
_CLIENT_ERRORS: Final = range(2000, 3000)
_PLACEHOLDER: Final = re.compile(r"%\((\w+)\)s|%%")


class Command(msgspec.Struct, eq=False):
    """A statement for the driver; ``values`` is None if it has no parameters and is not worth preparing.

    ``begins``: it is one of those that begin a transaction, which use no table.
    """

    text: str
    values: Any
    answers: bool
    begins: bool = False


class SendError(Exception):
    """The statement at index ``place`` failed; later ones were not executed. ``cause`` is the driver's error.

    ``results`` are those of the statements before it, as far as they are known. The first ``sent`` statements may have
    been executed, if the connection is broken; those after them certainly were not.
    """

    def __init__(
        self, place: int, cause: Exception, results: Sequence[Result] = (), *, sent: int | None = None
    ) -> None:
        super().__init__(str(cause))
        self.place = place
        self.cause: Any = cause
        self.results = results
        self.sent = place + 1 if sent is None else sent


class Sender(Protocol):
    def __call__(self, connection: Connection, commands: Sequence[Command]) -> list[Result]:
        """Execute the commands in this order; ``SendError``."""


def sender_for(driver: str) -> Sender:
    """Return the sender for a driver, by its name in SQLAlchemy."""
    return {"psycopg": pipelined, "pymysql": joined}.get(driver, one_by_one)


def one_by_one(connection: Connection, commands: Sequence[Command]) -> list[Result]:
    """Execute the statements one by one, with any DB-API driver."""
    driver: Any = connection.connection.dbapi_connection
    cursor, results = driver.cursor(), list[Result]()
    try:
        for command in commands:
            if command.values is None:
                cursor.execute(command.text)
            else:
                cursor.execute(command.text, command.values)
            results.append((cursor.fetchall() if command.answers else (), cursor.rowcount))
    except connection.dialect.loaded_dbapi.Error as exc:
        raise SendError(len(results), exc) from exc
    return results


def joined(connection: Connection, commands: Sequence[Command]) -> list[Result]:
    """Send all statements as one text (``MULTI_STATEMENTS``), or several if they exceed a packet.

    The server stops at the first statement that fails. On a Galera cluster that is not enough: a conflicting commit of
    another node may abort the transaction between two statements of a text. The server then reports no error but
    executes the rest without a transaction, COMMIT included. Only the end of a text reports it, so there each statement
    is a text of its own, from the first one that uses a table.
    """
    from pymysql.constants import COMMAND

    from ferroscope.db.mysql_results import ResultReader

    driver: Any = connection.connection.dbapi_connection
    cursor, results = driver.cursor(), list[Result]()
    texts = [one.text if one.values is None else cursor.mogrify(one.text, one.values) for one in commands]
    last = [is_galera(connection) and not command.begins for command in commands]
    sent = 0
    try:
        for size in _packets(texts, last):
            first = len(results)
            text = ";".join(texts[first : first + size])
            # If this fails, the server has not got the whole text, and executes none of it.
            driver._execute_command(COMMAND.COM_QUERY, text.encode(driver.encoding, "surrogateescape"))
            sent = first + size
            reader = ResultReader(driver)
            for left in reversed(range(size)):
                results.append(reader.next())
                if reader.more is not bool(left):
                    driver._force_close()
                    raise RuntimeError("the server returned a different number of results than statements were sent")
    except driver.Error as exc:
        raise SendError(len(results), exc, sent=len(results) + 1 if _is_answer(exc) else sent) from exc
    return results


def _is_answer(error: Any) -> bool:
    """Whether it is what the server said of a statement, after which it executes no other one of the text."""
    code = error.args[0] if error.args else None
    return isinstance(code, int) and code != 0 and code not in _CLIENT_ERRORS


def _packets(texts: Sequence[str], last: Sequence[bool]) -> Iterator[int]:
    """Yield the number of texts in each packet; a text that is ``last`` ends its packet."""
    number = length = 0
    for text, is_last in zip(texts, last, strict=True):
        if number and length + len(text) > _PACKET:
            yield number
            number = length = 0
        number, length = number + 1, length + len(text)
        if is_last:
            yield number
            number = length = 0
    if number:
        yield number


def pipelined(connection: Connection, commands: Sequence[Command]) -> list[Result]:
    """Send all statements in libpq's pipeline mode, with one sync at the end."""
    import psycopg
    from psycopg import generators

    driver: Any = connection.connection.dbapi_connection
    prepared: dict[str, _Prepared] = connection.info.setdefault("prepared", {})
    pgconn = driver.pgconn

    def exchange() -> Generator[Any, Any, None]:
        yield from generators.send(pgconn)
        for _ in range(expected):
            found.append((yield from generators.fetch_many(pgconn)))
        ended = yield from generators.fetch_many(pgconn)  # the result of the sync
        severity = ended[0].error_field(psycopg.pq.DiagnosticField.SEVERITY_NONLOCALIZED) if ended else None
        if severity == b"ERROR":  # of NOTIFY, whose transaction ends here; COMMIT came before it
            yield from generators.fetch_many(pgconn)

    results, prepared_now, preparing = list[Result](), list[_Prepared](), list[_Prepared | None]()
    found, sent = list[Any](), 0
    connection.info.pop(UNREPLICATED, None)
    try:
        pgconn.enter_pipeline_mode()
        for command in commands:
            sent += 1  # libpq may send it at once
            preparing.append(_send(pgconn, prepared, command))
        prepared_now = [name for name in preparing if name is not None]
        try:
            pgconn.pipeline_sync()
        except psycopg.OperationalError as exc:
            # psycopg says that there is no pipeline, whatever the reason, such as a server that has closed it.
            raise psycopg.OperationalError(pgconn.get_error_message().strip() or str(exc)) from None
        expected = len(commands) + len(prepared_now)
        lost = None
        try:
            driver.wait(exchange())
        except psycopg.OperationalError as exc:
            lost = exc  # what was answered before counts, such as that the server ends the session at this statement
        answers = iter(found)
        for command, name in zip(commands, preparing, strict=True):
            if name is not None:
                _result(driver, connection, next(answers, lost), answers=False)
                prepared_now.remove(name)
            results.append(_result(driver, connection, next(answers, lost), answers=command.answers))
        if UNREPLICATED in connection.info:
            # Somebody has cancelled the wait for the synchronous standby. The server has committed, and says so, but a
            # fail-over would discard it: it must not be acknowledged.
            raise psycopg.OperationalError("the synchronous standby has not confirmed the commit")
    except psycopg.Error as exc:
        for name in prepared_now:  # skipped by the server after the error
            name.ready = False
        place = min(len(results), len(commands) - 1)
        failure = SendError(place, exc, results, sent=place + 1 if exc.sqlstate else sent)
        failure.cause.unreplicated = connection.info.pop(UNREPLICATED, False)
        raise failure from exc
    finally:
        if pgconn.status == psycopg.pq.ConnStatus.OK:
            try:
                pgconn.exit_pipeline_mode()
            except psycopg.OperationalError:
                # The sync was answered with FATAL: the server ends this connection. What it answered before is valid:
                # a COMMIT that it has confirmed must not be reported as failed.
                driver.close()
    return results


class _Prepared:
    """A statement on one connection: how often it was executed, and whether the server has prepared it."""

    __slots__ = ("name", "ready", "used")

    def __init__(self, number: int) -> None:
        self.name = f"f{number}".encode()
        self.used = 0
        self.ready = False


def _send(pgconn: Any, prepared: dict[str, _Prepared], command: Command) -> _Prepared | None:
    """Add the statement to the pipeline; return its entry if a PREPARE was added before it."""
    text, values = command.text, command.values
    if values is None:
        pgconn.send_query_params(text.encode(), None)
        return None
    numbered, names = _numbered(text)
    texts, formats = list[bytes | None](), list[bool]()
    for name in names:
        value = values[name]
        formats.append(isinstance(value, bytes))  # format 1 is binary: bytes are sent unchanged
        if isinstance(value, str):
            # PostgreSQL cannot store NUL, which ramdisks do send: it becomes U+FFFD.
            texts.append((value.replace("\0", "\ufffd") if "\0" in value else value).encode())
        elif isinstance(value, bool):
            texts.append(b"t" if value else b"f")
        elif value is None or isinstance(value, bytes):
            texts.append(value)
        else:  # a number
            texts.append(repr(value).encode())
    known = prepared.get(text)
    if known is None:
        if len(prepared) >= _MOST_PREPARED:
            pgconn.send_query_params(numbered, texts, param_formats=formats)
            return None
        known = prepared[text] = _Prepared(len(prepared))
    known.used += 1
    if known.ready or known.used < _PREPARED_AFTER:
        new = None
    else:
        pgconn.send_prepare(known.name, numbered)
        new, known.ready = known, True
    if known.ready:
        pgconn.send_query_prepared(known.name, texts, param_formats=formats)
    else:
        pgconn.send_query_params(numbered, texts, param_formats=formats)
    return new


@lru_cache(maxsize=4096)
def _numbered(text: str) -> tuple[bytes, tuple[str, ...]]:
    """Return the text with ``$1`` instead of ``%(name)s``, and the names in the order of their numbers."""
    names: dict[str, int] = {}

    def number(found: re.Match[str]) -> str:
        name = found[1]
        return "%" if name is None else f"${names.setdefault(name, len(names) + 1)}"

    return _PLACEHOLDER.sub(number, text).encode(), tuple(names)


def _result(driver: Any, connection: Connection, found: Any, *, answers: bool) -> Result:
    """Return the result of a statement; raise psycopg's error if it failed, or was ``found`` instead of an answer."""
    from psycopg import errors, pq

    if isinstance(found, Exception):
        raise found
    result = found[0]
    if result.status not in (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK):
        raise errors.error_from_result(result)
    count = result.command_tuples or 0
    if not answers:
        return (), count
    transformer = connection.info.get("transformer")
    if transformer is None:
        from psycopg.adapt import Transformer

        transformer = connection.info["transformer"] = Transformer(driver)
    transformer.set_pgresult(result)
    return transformer.load_rows(0, result.ntuples, tuple), count
