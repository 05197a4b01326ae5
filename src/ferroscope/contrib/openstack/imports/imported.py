"""Shared by all imports from other services: the report, dry runs, rules, and chassis."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Literal, TypeVar

import msgspec

from ferroscope.contracts.errors import ConflictError, NotFoundError
from ferroscope.contracts.store import Packed, Part, Query, packed
from ferroscope.core.model import Chassis, Rule
from ferroscope.db import Store, Transaction
from ferroscope.hardware.search_index import Learned, learn
from ferroscope.rules.data import InvalidRuleError
from ferroscope.rules.engine import compile_rule
from ferroscope_client.core import json_safety

# Passes items on, one by one, to show the progress.
Track = Callable[[Iterable[Any]], Iterator[Any]]

T = TypeVar("T")

Result = Literal[
    "imported",
    "created",
    "already imported",
    "in progress",
    "started",
    "unknown",
    "skipped",
    "rolled back",
    "changed since",
]

_PROCESSED: Final[tuple[Part, ...]] = ("inventory", "plugin_data")
PLURALS: Final = {"node": "nodes", "rule": "rules", "chassis": "chassis"}


class ImportItem(msgspec.Struct, frozen=True):
    """The result for one node, rule or chassis of the source; ``detail``: why, or what to do.

    ``started_at`` and ``manage_boot`` are those of an introspection that is in progress there.
    """

    kind: Literal["node", "rule", "chassis"]
    uuid: str
    result: Result
    detail: str = ""
    started_at: float | None = None
    manage_boot: bool | None = None


class ImportedData(msgspec.Struct, frozen=True):
    """The data of a machine as stored here, and its search data; None if it was not processed."""

    parts: dict[Part, Packed]
    learned: Learned | None

    @classmethod
    def of(cls, parts: dict[Part, bytes]) -> ImportedData:
        """Return the precomputed data for a transaction."""
        largest = json_safety.MAX_DERIVED
        processed = [json_safety.decode(parts[part], max_containers=largest) for part in _PROCESSED if part in parts]
        return cls(packed(parts), learn(*processed) if len(processed) == len(_PROCESSED) else None)


class _DryRunError(Exception):
    """Rolls a transaction back; ``item`` is what it would have done."""

    def __init__(self, item: ImportItem) -> None:
        self.item = item
        super().__init__(item.result)


def counts(items: list[ImportItem]) -> dict[str, int]:
    """Return how often each result occurs, such as ``nodes imported``."""
    return dict(Counter(f"{PLURALS[item.kind]} {item.result}" for item in items))


def write(store: Store, work: Callable[[Transaction], T], *, dry_run: bool) -> T:
    """Run ``work``; roll it back again in a dry run."""

    def dry(tx: Transaction) -> T:
        raise _DryRunError(work(tx))  # type: ignore[arg-type]

    try:
        return store.write(dry if dry_run else work)
    except _DryRunError as exc:
        return exc.item  # type: ignore[return-value]


def add_rule(store: Store, rule: Rule, *, dry_run: bool) -> ImportItem:
    """Store a rule, unless it exists or is not valid here."""
    try:
        compile_rule(rule)
    except InvalidRuleError as exc:
        return ImportItem("rule", rule.uuid, "skipped", f"it is not valid here: {'; '.join(exc.problems[:5])}")

    def work(tx: Transaction) -> ImportItem:
        try:
            same = _same(tx.rules.get(rule.uuid), rule)
        except NotFoundError:
            tx.rules.add(rule)
            return ImportItem("rule", rule.uuid, "imported")
        if same:
            return ImportItem("rule", rule.uuid, "already imported")
        return ImportItem("rule", rule.uuid, "skipped", "a rule with this UUID exists and differs")

    try:
        return write(store, work, dry_run=dry_run)
    except ConflictError as exc:
        return ImportItem("rule", rule.uuid, "skipped", str(exc))


def remove_rule(tx: Transaction, rule: Rule) -> ImportItem | None:
    """Undo the import of a rule; None if it was not imported."""
    try:
        stored = tx.rules.get(rule.uuid)
    except NotFoundError:
        return None
    if not _same(stored, rule):
        return ImportItem("rule", rule.uuid, "changed since", "the rule was changed after the import; it is kept")
    tx.rules.remove(rule.uuid)
    return ImportItem("rule", rule.uuid, "rolled back")


def add_chassis(store: Store, chassis: Chassis, *, dry_run: bool) -> ImportItem:
    """Store a chassis, unless it exists."""

    def work(tx: Transaction) -> ImportItem:
        try:
            stored = tx.chassis.get(chassis.uuid)
        except NotFoundError:
            tx.chassis.add(chassis)
            return ImportItem("chassis", chassis.uuid, "imported")
        if _same_chassis(stored, chassis):
            return ImportItem("chassis", chassis.uuid, "already imported")
        return ImportItem("chassis", chassis.uuid, "skipped", "a chassis with this UUID exists and differs")

    return write(store, work, dry_run=dry_run)


def remove_chassis(tx: Transaction, chassis: Chassis, gone: set[str]) -> ImportItem | None:
    """Undo the import of a chassis; None if it was not imported. ``gone``: nodes that are rolled back, too."""
    try:
        stored = tx.chassis.get(chassis.uuid, lock=True)
    except NotFoundError:
        return None
    if not _same_chassis(stored, chassis):
        return ImportItem(
            "chassis", chassis.uuid, "changed since", "the chassis was changed after the import; it is kept"
        )
    nodes = tx.nodes.list(Query(filters={"chassis_uuid": chassis.uuid}, limit=len(gone) + 1))
    if any(node.uuid not in gone for node in nodes):
        return ImportItem("chassis", chassis.uuid, "changed since", "the chassis has nodes; it is kept")
    tx.chassis.remove(chassis.uuid)
    return ImportItem("chassis", chassis.uuid, "rolled back")


def _same_chassis(stored: Chassis, chassis: Chassis) -> bool:
    return stored.updated_at is None and (stored.description, stored.extra) == (chassis.description, chassis.extra)


def _same(stored: Rule, rule: Rule) -> bool:
    return stored.updated_at is None and all(
        getattr(stored, name) == getattr(rule, name)
        for name in ("dialect", "description", "priority", "phase", "sensitive", "scope", "conditions", "actions")
    )
