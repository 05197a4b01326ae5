"""Expected hardware: the machines that each expectation concerns, and how a machine deviates from it. Pure.

A condition is one of the query language of ``search``; an expectation chooses nodes by their labels and names.
"""

from __future__ import annotations

import fnmatch
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from ferroscope.core import model as level
from ferroscope.core.model import Document, Node
from ferroscope.hardware import expressions
from ferroscope.hardware.expressions import Query
from ferroscope.hardware.query import QueryError, parse
from ferroscope.hardware.search_index import IndexRow
from ferroscope_client.core import labels
from ferroscope_client.core.expectation import Expectation, Severity
from ferroscope_client.core.reasons import Reason
from ferroscope_client.core.values import many
from ferroscope_client.hardware.search_fields import KINDS, OWN, IndexedField

MAX_EXPECTATIONS: Final = 500
_MAX_LISTED_ITEMS: Final = 5
# Deviations of a node that are kept.
_MAX_DEVIATIONS: Final = 200
_BYTES_PER_GIB: Final = 2**30


class Deviation(msgspec.Struct, frozen=True):
    """A condition that does not hold, and the machine's actual values."""

    expectation: str
    severity: Severity
    condition: str
    found: str


class ExpectationError(ValueError):
    """The expectation is invalid; the message says which one and why."""


class CompiledExpectation(msgspec.Struct, frozen=True):
    """``selector`` None: all nodes."""

    expectation: Expectation
    selector: labels.Selector | None
    conditions: tuple[tuple[str, Query], ...]

    def concerns(self, node: Node) -> bool:
        """Whether the expectation concerns the node."""
        if self.selector is not None and not self.selector.fits(node.labels):
            return False
        return fnmatch.fnmatchcase(node.name or "", self.expectation.names)


def compile_expectation(expectation: Expectation) -> CompiledExpectation:
    """Return the expectation, parsed; ``ExpectationError``."""
    try:
        selector = labels.selector(expectation.nodes) if expectation.nodes.strip() else None
        conditions = tuple((text, parse(text)) for text in expectation.expect)
    except (labels.LabelError, QueryError) as exc:
        raise ExpectationError(f"expectation {expectation.name[:80]!r}: {exc}") from None
    if any(_is_about_deviations(query) for _, query in conditions):
        raise ExpectationError(f"expectation {expectation.name[:80]!r}: it cannot be about whether machines deviate")
    return CompiledExpectation(expectation, selector, conditions)


def check(expectations: Sequence[Expectation]) -> tuple[CompiledExpectation, ...]:
    """Return all expectations, parsed; ``ExpectationError`` if one is invalid, or two have one name."""
    if len(expectations) > MAX_EXPECTATIONS:
        raise ExpectationError(f"{many(len(expectations), 'expectation')} are more than {MAX_EXPECTATIONS:,}")
    twice = [name for name, count in Counter(expectation.name for expectation in expectations).items() if count > 1]
    if twice:
        raise ExpectationError(f"several expectations have the name {twice[0][:80]!r}")
    return tuple(compile_expectation(expectation) for expectation in expectations)


def deviations(expected: Iterable[CompiledExpectation], rows: Sequence[IndexRow], node: Node) -> list[Deviation]:
    """Return how the machine with these rows of the search index deviates from the expectations of the node."""
    all_deviations = (
        Deviation(compiled.expectation.name, compiled.expectation.severity, text, describe_compared(query, rows, node))
        for compiled in expected
        if compiled.concerns(node)
        for text, query in compiled.conditions
        if not expressions.matches(query, rows, node)
    )
    return list(itertools.islice(all_deviations, _MAX_DEVIATIONS))


KEY: Final = "deviations"
"""Where a node has them, in its ``attributes``."""


def with_deviations(node: Node, deviations: list[Document]) -> Node | None:
    """Return the node with these deviations; None if they have not changed."""
    if node.attributes.get(KEY, []) == deviations:
        return None
    rest = {name: value for name, value in node.attributes.items() if name != KEY}
    return msgspec.structs.replace(node, attributes=rest | ({KEY: deviations} if deviations else {}))


def timeline_entry(deviations: Sequence[Document]) -> tuple[str, level.Severity, str | None]:
    """Return the timeline's entry on these deviations: message, severity and reason."""
    if not deviations:
        return "the hardware is as expected again", level.Severity.INFO, None
    first = "; ".join(
        f"{deviation['condition']} ({deviation['expectation']}; found {deviation['found']})"
        for deviation in deviations[:_MAX_LISTED_ITEMS]
    )
    more = f"; and {len(deviations) - _MAX_LISTED_ITEMS} more" if len(deviations) > _MAX_LISTED_ITEMS else ""
    return f"the hardware is not as expected: {first}{more}", level.Severity.WARNING, Reason.HARDWARE_DEVIATES


def describe_compared(query: Query, rows: Sequence[IndexRow], node: Node) -> str:
    """Return the machine's values of the fields that the query compares."""
    return "; ".join(dict.fromkeys(_compared_values(query, rows, node))) or "no such data"


def _compared_values(query: Query, rows: Sequence[IndexRow], node: Node) -> Iterator[str]:
    match query:
        case expressions.Not(of):
            yield from _compared_values(of, rows, node)
        case expressions.All(of) | expressions.Any(of):
            for part in of:
                yield from _compared_values(part, rows, node)
        case expressions.Count(some, _, _):
            number = sum(expressions.matches(some, [row], node) for row in rows)
            yield f"{number} of {sum(row.kind == some.kind for row in rows)} fit"
            yield from _compared_values(some, rows, node)
        case expressions.Some(kind, of):
            parts = [row for row in rows if row.kind == kind]
            if not parts:
                yield f"no {kind}"
            for column in dict.fromkeys(_columns(of)) if parts else ():
                name, field = _field_of(KINDS[kind], column)
                values = Counter(_format(getattr(row, column), field, binary=kind in ("node", "dimm")) for row in parts)
                yield f"{name if kind == 'node' else f'{kind}.{name}'}: {_join_values(values)}"
        case expressions.Own(of):
            for column in dict.fromkeys(_columns(of)):
                name = next((name for name, field in OWN.items() if field.column == column), column)
                yield f"{name}: {getattr(node, column, None) if column in node.__struct_fields__ else 'not so'}"


_ENDS_OF_CABLES: Final = frozenset(KINDS["nic"][name].column for name in ("switch", "port"))


def is_about_wiring(condition: str) -> bool:
    """Whether a condition is about the switch or the port to which a NIC is connected."""
    try:
        return _is_about_wiring(parse(condition))
    except QueryError:
        return False  # one of an earlier release


def _is_about_wiring(query: Query) -> bool:
    return any(part == "nic" and column in _ENDS_OF_CABLES for part, column in _fields(query))


def _is_about_deviations(query: Query) -> bool:
    return ("", KEY) in _fields(query)


def _fields(query: Query) -> Iterator[tuple[str, str]]:
    """Yield the kind of part and the column of each comparison; the kind is empty for the node itself."""
    match query:
        case expressions.Not(of):
            yield from _fields(of)
        case expressions.All(of) | expressions.Any(of):
            for part in of:
                yield from _fields(part)
        case expressions.Count(some, _, _):
            yield from _fields(some)
        case expressions.Some(kind, of):
            yield from ((kind, column) for column in _columns(of))
        case expressions.Own(of):
            yield from (("", column) for column in _columns(of))


def _columns(query: Query | None) -> Iterator[str]:
    match query:
        case expressions.Not(of):
            yield from _columns(of)
        case expressions.All(of) | expressions.Any(of):
            for part in of:
                yield from _columns(part)
        case expressions.Number() | expressions.Text() | expressions.Glob() | expressions.Known():
            yield query.column


def _field_of(fields: Any, column: str) -> tuple[str, IndexedField]:
    """Return the first field with this column, which has no unit of its own."""
    return next((name, field) for name, field in fields.items() if field.column == column)


def _join_values(values: Counter[str]) -> str:
    listed = [value if count == 1 else f"{count} x {value}" for value, count in values.most_common(_MAX_LISTED_ITEMS)]
    return ", ".join(listed) + (" ..." if len(values) > _MAX_LISTED_ITEMS else "")


def _format(value: Any, field: IndexedField, *, binary: bool) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, str):
        return value
    if field.boolean:
        return "yes" if value else "no"
    if field.unit == "bytes":
        return f"{value / _BYTES_PER_GIB:.4g}GiB" if binary else f"{value / 1e9:.4g}GB"
    return f"{value / 1e9:.4g}G" if field.unit and value >= 1e8 else f"{value:.10g}"
