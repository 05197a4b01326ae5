"""Rows to structs and back: documents are JSON text, enums are their values, and
where the database has no booleans these are numbers.

A value that the enum does not have was written by a newer release: it stays the text that it is, so that
one such row keeps nobody from reading the others.

A column and its field are called the same. Rows are read by position, in the order of ``columns``.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar, get_type_hints

import msgspec
from sqlalchemy import Column, Table

S = TypeVar("S", bound=msgspec.Struct)

_encoder = msgspec.json.Encoder()
_decode = msgspec.json.decode


class Mapper(Generic[S]):
    """Maps one struct type to the rows of its table; built once per type."""

    def __init__(self, struct: type[S], table: Table) -> None:
        self.struct = struct
        self.fields = struct.__struct_fields__
        self.columns: tuple[Column[Any], ...] = tuple(table.c[name] for name in self.fields)
        hints = get_type_hints(struct)
        kinds = [hints[name] for name in self.fields]
        self._documents = [i for i, kind in enumerate(kinds) if getattr(kind, "__origin__", None) in (dict, list)]
        self._booleans = [i for i, kind in enumerate(kinds) if kind is bool]
        self._enums = [(i, {str(one): one for one in kind}) for i, kind in enumerate(kinds) if _is_enum(kind)]

    def to_row(self, item: S) -> dict[str, Any]:
        """Return the column values of ``item`` by name."""
        row = {name: getattr(item, name) for name in self.fields}
        for index in self._documents:
            name = self.fields[index]
            row[name] = _encoder.encode(row[name]).decode()
        return row

    def from_row(self, row: Any) -> S:
        """Return the struct for a row of ``columns``."""
        values = list(row)
        for index in self._documents:
            text = values[index]
            values[index] = {} if text in ("{}", None) else _decode(text)
        for index in self._booleans:
            values[index] = bool(values[index])
        for index, known in self._enums:
            values[index] = known.get(values[index], values[index])
        return self.struct(**dict(zip(self.fields, values, strict=True)))


def _is_enum(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, str) and kind is not str
