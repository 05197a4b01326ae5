"""MariaDB and MySQL: several statements are sent as one text, and the response to it is read here.

PyMySQL decodes the complete description of every column of every result, about 400 in an inspection, which takes more
CPU time than decoding the rows. They are read by position here, so only a column's type and character set matter.
Source: https://mariadb.com/docs/server/reference/clientserver-protocol/4-server-response-packets
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, Final

from pymysql import err
from pymysql.connections import TEXT_TYPES
from pymysql.constants import COMMAND
from pymysql.converters import decoders
from sqlalchemy import Connection

from ferroscope.db.executor import Command, CommandError, Result, Rows
from ferroscope.db.replication import is_galera

# Characters in one packet; the server's limit is ``spellings.PACKET``.
_PACKET: Final = 4 * 1024 * 1024
# The driver's own error numbers.
_CLIENT_ERRORS: Final = range(2000, 3000)
# The first byte of a packet says what it is; in a row it is the length of the first value.
_OK, _LOCAL_FILE, _END, _ERROR = 0x00, 0xFB, 0xFE, 0xFF
_LONGEST_END: Final = 8  # bytes; a longer packet that begins like the end of a result is a row
# A packet of this length is continued by the next one.
_LONGEST_PACKET: Final = 0xFFFFFF
_NULL: Final = 0xFB
# The number of bytes of a length, by the byte before them; a smaller byte is itself the length.
_WIDTHS: Final = {0xFC: 2, 0xFD: 3, 0xFE: 8}
_MORE_RESULTS: Final = 0x0008
# The character set of bytes that are not text.
_BINARY: Final = b"\x3f\x00"
_LOST_CONNECTION: Final = 2013
_CHUNK: Final = 65536


def joined(connection: Connection, commands: Sequence[Command]) -> list[Result]:
    """Send all statements as one text (``MULTI_STATEMENTS``), or several if they exceed a packet.

    The server stops at the first statement that fails. On a Galera cluster that is not enough: a conflicting commit of
    another node may abort the transaction between two statements of a text. The server then reports no error but
    executes the rest without a transaction, COMMIT included. Only the end of a text reports it, so there each statement
    is a text of its own, from the first one that uses a table.
    """
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
        raise CommandError(len(results), exc, sent=len(results) + 1 if _is_answer(exc) else sent) from exc
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


class ResultReader:
    """The results of one text, in their order. ``driver`` is PyMySQL's connection, which has just sent the text.

    Raises PyMySQL's exceptions. If the response cannot be read to its end, the connection is closed: the rest would be
    taken for the response to the next text.
    """

    def __init__(self, driver: Any) -> None:
        self.more = True  # whether another result follows
        self._driver = driver
        self._buffer = b""
        self._read_to = 0
        self._sequence = 1
        driver._sock.settimeout(driver._read_timeout)

    def next(self) -> tuple[Rows, int]:
        """Return the rows of the next result, and their number; for a write, that of the rows affected."""
        try:
            return self._next()
        except err.MySQLError:
            raise
        except BaseException:
            self._driver._force_close()
            raise

    def _next(self) -> tuple[Rows, int]:
        packet = self._packet()
        if packet[0] == _OK:
            affected, at = _length(packet, 1)
            _, at = _length(packet, at)  # the ID of the inserted row
            self._end(packet, at)
            return (), affected
        if packet[0] == _LOCAL_FILE:
            raise self._lost("the server asked for a file")
        columns, _ = _length(packet, 0)
        converters = [_converter_of(self._packet()) for _ in range(columns)]
        self._packet()  # the end of the columns
        rows = []
        while not _is_end(packet := self._packet()):
            rows.append(_row(packet, converters))
        self._end(packet, 3)
        return rows, len(rows)

    def _end(self, packet: bytes, at: int) -> None:
        """Read the server's status, which begins at the byte ``at``."""
        self.more = bool(int.from_bytes(packet[at : at + 2], "little") & _MORE_RESULTS)

    def _packet(self) -> bytes:
        """Return the next packet without its header; raise the error if it is one."""
        packet = part = self._part()
        while len(part) == _LONGEST_PACKET:
            part = self._part()
            packet += part
        if packet[0] == _ERROR:
            self.more = False
            err.raise_mysql_exception(packet)
        return packet

    def _part(self) -> bytes:
        while True:
            start = self._read_to + 4
            if len(self._buffer) >= start:
                end = start + int.from_bytes(self._buffer[start - 4 : start - 1], "little")
                if len(self._buffer) >= end:
                    break
            self._receive()
        if self._buffer[start - 1] != self._sequence:  # a server that shuts down begins at 0 again
            raise self._lost("a packet is missing")
        self._sequence = (self._sequence + 1) % 256
        self._read_to = end
        return self._buffer[start:end]

    def _receive(self) -> None:
        """Read more into the buffer, and drop what was used."""
        try:
            received = self._driver._sock.recv(_CHUNK)
        except OSError as exc:
            raise self._lost(str(exc)) from exc
        if not received:
            raise self._lost("the server closed it")
        self._buffer = self._buffer[self._read_to :] + received
        self._read_to = 0

    def _lost(self, why: str) -> err.OperationalError:
        self._driver._force_close()
        return err.OperationalError(_LOST_CONNECTION, f"Lost connection to MySQL server during query ({why})")


def _is_end(packet: bytes) -> bool:
    return packet[0] == _END and len(packet) <= _LONGEST_END


def _length(packet: bytes, at: int) -> tuple[int, int]:
    """Return the number of variable length at the byte ``at``, and where it ends."""
    first = packet[at]
    if first < _NULL:
        return first, at + 1
    end = at + 1 + _WIDTHS[first]
    return int.from_bytes(packet[at + 1 : end], "little"), end


def _row(packet: bytes, converters: Sequence[Callable[[bytes], Any]]) -> tuple[Any, ...]:
    row, at = list[Any](), 0
    for convert in converters:
        length = packet[at]
        if length == _NULL:
            row.append(None)
            at += 1
            continue
        if length < _NULL:
            at += 1
        else:
            length, at = _length(packet, at)
        row.append(convert(packet[at : at + length]))
        at += length
    return tuple(row)


def _converter_of(column: bytes) -> Callable[[bytes], Any]:
    # A description ends with the character set (2 bytes), length (4), type (1), flags (2), decimals (1), filler (2).
    return _converter(column[-6], binary=column[-12:-10] == _BINARY)


@cache
def _converter(kind: int, *, binary: bool) -> Callable[[bytes], Any]:
    """Return what turns a value of this type, as text, into Python's; as PyMySQL does."""
    if kind in TEXT_TYPES:
        return bytes if binary else bytes.decode
    convert = decoders.get(kind, str)
    return convert if convert in (int, float) else lambda value: convert(value.decode())
