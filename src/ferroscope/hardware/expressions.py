"""The semantics of the search query language, separate from its syntax and execution.

A query is a condition on a node. ``nic.speed >= 25G`` matches if any NIC of the node is that fast;
``nic[speed >= 25G and vendor == intel]`` if one NIC satisfies both; ``count(disk[type == nvme]) >= 4`` counts. An
unknown value satisfies no comparison, neither ``==`` nor ``!=``; ``not`` is plain negation. ``state == available``
checks the node itself, a bare word all its values. The function ``matches`` is the reference.
"""

from __future__ import annotations

import fnmatch
import operator
from collections.abc import Callable, Sequence
from typing import Any as Found
from typing import Final, Literal

import msgspec

from ferroscope.core import bmc_access
from ferroscope.core.model import Node
from ferroscope.hardware.search_index import IndexRow
from ferroscope_client.hardware.readings import Kind
from ferroscope_client.hardware.search_fields import LABEL

Comparison = Literal["==", "!=", "<", "<=", ">", ">="]
COMPARE: Final[dict[str, Callable[[float, float], bool]]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


class Number(msgspec.Struct, frozen=True, tag=True):
    """Compares a numeric field of the part with ``value``."""

    column: str
    op: Comparison
    value: float


class Text(msgspec.Struct, frozen=True, tag=True):
    """The part's text is one of ``values``; ``negated``: it is known and not one of them."""

    column: str
    values: tuple[str, ...]
    negated: bool = False


class Glob(msgspec.Struct, frozen=True, tag=True):
    """The part's text matches the pattern: ``*`` any characters, ``?`` one character."""

    column: str
    pattern: str


class Known(msgspec.Struct, frozen=True, tag=True):
    """The part's field has a value."""

    column: str


class Not(msgspec.Struct, frozen=True, tag=True):
    """Negation."""

    of: Query


class All(msgspec.Struct, frozen=True, tag=True):
    """Conjunction."""

    of: tuple[Query, ...]


class Any(msgspec.Struct, frozen=True, tag=True):
    """Disjunction."""

    of: tuple[Query, ...]


class Some(msgspec.Struct, frozen=True, tag=True):
    """The node has a part of this kind that satisfies ``of``; None: any part."""

    kind: Kind
    of: Query | None = None


class Count(msgspec.Struct, frozen=True, tag=True):
    """Compares the number of such parts with ``value``."""

    some: Some
    op: Comparison
    value: float


class Own(msgspec.Struct, frozen=True, tag=True):
    """A condition on the node itself: columns are fields of ``Node``, its ``attributes``, and ``label.KEY``.

    Texts are compared in lower case.
    """

    of: Query


class Word(msgspec.Struct, frozen=True, tag=True):
    """The text occurs in the texts of a part, in ``WORDS`` of the node, its BMC's address, or the start of its UUID."""

    text: str


Query = Number | Text | Glob | Known | Not | All | Any | Some | Count | Own | Word

TEXTS: Final = ("t1", "t2", "t3", "t4", "t5", "t6", "t7")
WORDS: Final = ("name", "owner", "resource_class", "driver")


def about_hardware(query: Query) -> bool:
    """Whether the query is about parts; then nodes that were never inspected do not match."""
    match query:
        case Not(of):
            return about_hardware(of)
        case All(of) | Any(of):
            return any(about_hardware(part) for part in of)
    return isinstance(query, Some | Count)


def matches(query: Query, rows: Sequence[IndexRow], node: Node) -> bool:
    """Whether the node with these rows matches the query: the reference for every store."""
    match query:
        case Not(of):
            return not matches(of, rows, node)
        case All(of):
            return all(matches(part, rows, node) for part in of)
        case Any(of):
            return any(matches(part, rows, node) for part in of)
        case Own(of):
            return _holds(of, lambda column: _own_value(node, column))
        case Word(text):
            texts = [getattr(row, column) for row in rows for column in TEXTS]
            texts += [str(getattr(node, name) or "").lower() for name in WORDS]
            texts += bmc_access.literal_addresses(node.driver_info)
            return node.uuid.startswith(text) or any(text in candidate for candidate in texts if candidate)
        case Some():
            return any(_is_row(query, row) for row in rows)
        case Count(some, op, value):
            return COMPARE[op](sum(_is_row(some, row) for row in rows), value)
    raise TypeError(f"{type(query).__name__} is a condition on a part, not on a node")


def _is_row(some: Some, row: IndexRow) -> bool:
    return row.kind == some.kind and (some.of is None or _holds(some.of, lambda column: getattr(row, column)))


def _own_value(node: Node, column: str) -> object:
    kind, dot, key = column.partition(".")
    if dot and kind == LABEL:
        return next((value.lower() for name, value in sorted(node.labels.items()) if name.lower() == key), None)
    value = getattr(node, column) if column in node.__struct_fields__ else bool(node.attributes.get(column))
    return value.lower() if isinstance(value, str) else value


def _holds(query: Query, read_column: Callable[[str], Found]) -> bool:
    match query:
        case Not(of):
            return not _holds(of, read_column)
        case All(of):
            return all(_holds(part, read_column) for part in of)
        case Any(of):
            return any(_holds(part, read_column) for part in of)
        case Some() | Count() | Own() | Word():
            raise TypeError("parts have no parts")
    value = read_column(query.column)
    if value is None or isinstance(query, Known):
        return value is not None
    match query:
        case Number(_, op, wanted):
            return COMPARE[op](value, wanted)
        case Text(_, values, negated):
            return (value in values) is not negated
        case Glob(_, pattern):
            return fnmatch.fnmatchcase(value, pattern.replace("[", "[[]"))
