"""Sending several statements in one round trip, for each driver.

SQLite runs in the process, so there is no round trip to save. With PyMySQL the statements are joined into one text,
except on a Galera cluster (see ``joined``). For psycopg see ``pipeline``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, Protocol

import msgspec
from sqlalchemy import Connection

from ferroscope.db.replication import is_galera

Rows = Sequence[Any]
Result = tuple[Rows, int]

# Characters in one packet; the server's limit is ``spellings.PACKET``.
_PACKET: Final = 4 * 1024 * 1024
# The driver's own error numbers.
_CLIENT_ERRORS: Final = range(2000, 3000)


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
