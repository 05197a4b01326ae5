"""Values as every database returns them, in one form, checked against what the destination can store.

SQLite stores any value in any column: text in a number's, or longer text than declared. What the destination would
refuse or change is found here, with its place. Values are never quoted: they may be secrets.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import BigInteger, Boolean, Column, Double, Integer, LargeBinary, String, Table

Row = tuple[Any, ...]
_NUL: Final = "\0"
_REPLACEMENT: Final = "\ufffd"


class OddValueError(Exception):
    """The destination cannot store a value; the message says where it is, and why."""


class ColumnLimits(msgspec.Struct, frozen=True):
    """What the destination stores: the bytes of a value at most, and whether text may contain NUL."""

    largest: int | None = None
    nul: bool = True


class Converter:
    """Converts the rows of one table; ``replaced`` counts values in which NUL was replaced."""

    def __init__(self, table: Table, limits: ColumnLimits) -> None:
        self._table = table
        self._limits = limits
        self._checks = [self._check(column) for column in table.columns]
        names = list(table.columns.keys())
        self._key = [names.index(column.name) for column in table.primary_key.columns]
        self.replaced = 0

    def __call__(self, row: Sequence[Any]) -> Row:
        """Return the values in the types of the columns; ``OddValueError``."""
        try:
            return tuple([check(value) for check, value in zip(self._checks, row, strict=True)])
        except _WrongError:
            raise OddValueError(self._place(row)) from None

    def _place(self, row: Sequence[Any]) -> str:
        """Return which value of the row is wrong, and why."""
        for column, check, value in zip(self._table.columns, self._checks, row, strict=True):
            try:
                check(value)
            except _WrongError as exc:
                key = ", ".join(str(row[index])[:80] for index in self._key)
                return f"table {self._table.name}, row {key}, column {column.name}: {exc}"
        raise AssertionError("unreachable")

    def _check(self, column: Column[Any]) -> Callable[[Any], Any]:
        plain, nullable = self._plain(column), bool(column.nullable)

        def check(value: Any) -> Any:
            if value is None:
                if not nullable:
                    raise _WrongError("no value, and one is required")
                return None
            return plain(value)

        return check

    def _plain(self, column: Column[Any]) -> Callable[[Any], Any]:
        kind = column.type
        if isinstance(kind, Boolean):
            return _boolean
        if isinstance(kind, Double):
            return _number
        if isinstance(kind, Integer):
            bits = 63 if isinstance(kind, BigInteger) else 31
            return lambda value: _integer(value, bits)
        if isinstance(kind, LargeBinary):
            return self._bytes
        assert isinstance(kind, String)  # noqa: S101  # the schema has no other types
        length = kind.length
        return lambda value: self._text(value, length)

    def _text(self, value: Any, length: int | None) -> str:
        if type(value) is not str:
            raise _WrongError(f"{_kind(value)}, and text is expected")
        if length is not None and len(value) > length:
            raise _WrongError(f"text of {len(value)} characters, and at most {length} fit")
        if length is None and self._limits.largest is not None:
            self._fits(len(value.encode()))
        if not self._limits.nul and _NUL in value:
            self.replaced += 1
            return value.replace(_NUL, _REPLACEMENT)
        return value

    def _bytes(self, value: Any) -> bytes:
        if not isinstance(value, bytes | bytearray | memoryview):
            raise _WrongError(f"{_kind(value)}, and bytes are expected")
        self._fits(len(value))
        return bytes(value)

    def _fits(self, size: int) -> None:
        # The rest of the packet is the statement.
        if self._limits.largest is not None and size > self._limits.largest - 65_536:
            raise _WrongError(
                f"{size} bytes, and max_allowed_packet of the destination is {self._limits.largest}: raise it"
            )


class _WrongError(Exception):
    pass


def _kind(value: Any) -> str:
    names = {str: "text", int: "a number", float: "a number", bytes: "bytes", bool: "a truth value"}
    return names.get(type(value), type(value).__name__)


def _boolean(value: Any) -> bool:
    if value not in (0, 1):
        raise _WrongError(f"{_kind(value)} other than 0 and 1, and a truth value is expected")
    return bool(value)


def _integer(value: Any, bits: int) -> int:
    if type(value) is not int:
        raise _WrongError(f"{_kind(value)}, and an integer is expected")
    if not -(1 << bits) <= value < 1 << bits:
        raise _WrongError(f"an integer of more than {bits + 1} bits")
    return value


def _number(value: Any) -> Any:
    if type(value) not in (int, float):
        raise _WrongError(f"{_kind(value)}, and a number is expected")
    if not math.isfinite(value):
        raise _WrongError("an infinite number, or none")
    return value + 0.0  # MariaDB does not store the sign of zero


_encode = msgspec.msgpack.Encoder().encode
_CHECKSUM_MODULUS: Final = 1 << 256


class Checksum:
    """Number and checksum of rows in any order: databases sort text differently.

    The checksum is the sum of the SHA-256 digests of all rows.
    """

    def __init__(self) -> None:
        self.rows = 0
        self._sum = 0

    def add(self, rows: Iterable[Row]) -> None:
        for row in rows:
            self.rows += 1
            self._sum += int.from_bytes(hashlib.sha256(_encode(row)).digest())

    @property
    def text(self) -> str:
        return f"{self._sum % _CHECKSUM_MODULUS:064x}"
