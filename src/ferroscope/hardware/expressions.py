"""The query language of searches: what it means, apart from how it is written and where it is run.

A query is a condition on a node. ``nic.speed >= 25G`` means that some NIC of the node is that
fast; ``nic[speed >= 25G and vendor == intel]`` that one and the same NIC is both;
``count(disk[type == nvme]) >= 4`` counts. What is not known satisfies no comparison, neither
``==`` nor ``!=``; ``not`` is plain negation. ``state == available`` asks the node itself, a bare
word everything that is known of it. This module is also the reference: ``matches``.
"""

from __future__ import annotations

import fnmatch
import operator
from collections.abc import Callable, Sequence
from typing import Any as Found
from typing import Final, Literal

import msgspec

from ferroscope.core.model import Node
from ferroscope.hardware.parts import Kind
from ferroscope.hardware.search_index import KINDS, OWN, IndexRow

Comparison = Literal["==", "!=", "<", "<=", ">", ">="]
COMPARE: Final[dict[str, Callable[[float, float], bool]]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


class Number(msgspec.Struct, frozen=True, tag=True):
    """The part's number compares so with ``value``."""

    column: str
    op: Comparison
    value: float


class Text(msgspec.Struct, frozen=True, tag=True):
    """The part's text is one of ``values``; ``negated``: it has one, and that is none of them."""

    column: str
    values: tuple[str, ...]
    negated: bool = False


class Glob(msgspec.Struct, frozen=True, tag=True):
    """The part's text has this form: ``*`` for any characters, ``?`` for one."""

    column: str
    pattern: str


class Known(msgspec.Struct, frozen=True, tag=True):
    """The part has a value there."""

    column: str


class Not(msgspec.Struct, frozen=True, tag=True):
    """Not so."""

    of: Query


class All(msgspec.Struct, frozen=True, tag=True):
    """Each of them."""

    of: tuple[Query, ...]


class Any(msgspec.Struct, frozen=True, tag=True):
    """One of them at least."""

    of: tuple[Query, ...]


class Some(msgspec.Struct, frozen=True, tag=True):
    """The node has a part of this kind for which ``of`` holds; None: a part at all."""

    kind: Kind
    of: Query | None = None


class Count(msgspec.Struct, frozen=True, tag=True):
    """The number of such parts compares so with ``value``."""

    some: Some
    op: Comparison
    value: float


class Own(msgspec.Struct, frozen=True, tag=True):
    """The node itself is so: its columns are the fields of ``Node``; texts are compared in lower case."""

    of: Query


class Word(msgspec.Struct, frozen=True, tag=True):
    """The text is somewhere in what is known: in a text of some part, in ``WORDS`` of the node, or begins its UUID."""

    text: str


Query = Number | Text | Glob | Known | Not | All | Any | Some | Count | Own | Word

TEXTS: Final = ("t1", "t2", "t3", "t4", "t5", "t6", "t7")
WORDS: Final = ("name", "owner", "resource_class", "driver")


def about_hardware(query: Query) -> bool:
    """Whether the query asks for parts; then nodes that were never inspected do not fit, whatever it says."""
    match query:
        case Not(of):
            return about_hardware(of)
        case All(of) | Any(of):
            return any(about_hardware(one) for one in of)
    return isinstance(query, Some | Count)


def matches(query: Query, rows: Sequence[IndexRow], node: Node) -> bool:
    """Whether the query holds for a node with these rows: the meaning to which every store is held."""
    match query:
        case Not(of):
            return not matches(of, rows, node)
        case All(of):
            return all(matches(one, rows, node) for one in of)
        case Any(of):
            return any(matches(one, rows, node) for one in of)
        case Own(of):
            return _holds(of, lambda column: _own(node, column))
        case Word(text):
            texts = [getattr(row, column) for row in rows for column in TEXTS]
            texts += [str(getattr(node, name) or "").lower() for name in WORDS]
            return node.uuid.startswith(text) or any(text in one for one in texts if one)
        case Some():
            return any(_is(query, row) for row in rows)
        case Count(some, op, value):
            return COMPARE[op](sum(_is(some, row) for row in rows), value)
    raise TypeError(f"{type(query).__name__} is a condition on a part, not on a node")


def _is(some: Some, row: IndexRow) -> bool:
    return row.kind == some.kind and (some.of is None or _holds(some.of, lambda column: getattr(row, column)))


def _own(node: Node, column: str) -> object:
    value = getattr(node, column)
    return value.lower() if isinstance(value, str) else value


def _holds(query: Query, of_it: Callable[[str], Found]) -> bool:
    match query:
        case Not(of):
            return not _holds(of, of_it)
        case All(of):
            return all(_holds(one, of_it) for one in of)
        case Any(of):
            return any(_holds(one, of_it) for one in of)
        case Some() | Count() | Own() | Word():
            raise TypeError("parts have no parts")
    value = of_it(query.column)
    if value is None or isinstance(query, Known):
        return value is not None
    match query:
        case Number(_, op, wanted):
            return COMPARE[op](value, wanted)
        case Text(_, values, negated):
            return (value in values) is not negated
        case Glob(_, pattern):
            return fnmatch.fnmatchcase(value, pattern.replace("[", "[[]"))


def fields() -> list[tuple[str, str, str, str]]:
    """Return every field for the reference: how it is written, its type, its unit and what it is."""
    found: list[tuple[str, str, str, str]] = []
    for kind, known in KINDS.items():
        for name, field in known.items():
            written = name if kind == "node" else f"{kind}.{name}"
            type_ = "text" if field.is_text else "yes or no" if field.boolean else "number"
            found.append((written, type_, "" if field.factor != 1.0 else field.unit, field.about))
    for name, field in OWN.items():
        type_ = "text" if field.is_text else "yes or no" if field.boolean else "time"
        found.append((name, type_, "", field.about))
    return found
