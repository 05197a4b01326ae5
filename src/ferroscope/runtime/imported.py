"""What all imports from other services have in common: the report, dry runs, and rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Literal, TypeVar

import msgspec

from ferroscope.contracts.errors import ConflictError, NotFoundError
from ferroscope.contracts.store import Store, Transaction
from ferroscope.core.model import Rule
from ferroscope.rules.data import InvalidRuleError
from ferroscope.rules.engine import compile_rule

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


class Item(msgspec.Struct, frozen=True):
    """What becomes of one node or rule of the source; ``detail``: why, or what to do.

    ``started_at`` and ``manage_boot`` are those of an introspection that is in progress there.
    """

    kind: Literal["node", "rule"]
    uuid: str
    result: Result
    detail: str = ""
    started_at: float | None = None
    manage_boot: bool | None = None


class _DryRunError(Exception):
    """Rolls a transaction back; ``item`` is what it would have done."""

    def __init__(self, item: Item) -> None:
        self.item = item
        super().__init__(item.result)


def counts(items: list[Item]) -> dict[str, int]:
    """Return how often each result occurs, such as ``nodes imported``."""
    return dict(Counter(f"{item.kind}s {item.result}" for item in items))


def write(store: Store, work: Callable[[Transaction], T], *, dry_run: bool) -> T:
    """Run ``work``; roll it back again in a dry run."""

    def dry(tx: Transaction) -> T:
        raise _DryRunError(work(tx))  # type: ignore[arg-type]

    try:
        return store.write(dry if dry_run else work)
    except _DryRunError as exc:
        return exc.item  # type: ignore[return-value]


def add_rule(store: Store, rule: Rule, *, dry_run: bool) -> Item:
    """Store a rule, unless it exists or is not valid here."""
    try:
        compile_rule(rule)
    except InvalidRuleError as exc:
        return Item("rule", rule.uuid, "skipped", f"it is not valid here: {'; '.join(exc.problems[:5])}")

    def work(tx: Transaction) -> Item:
        try:
            same = _same(tx.rules.get(rule.uuid), rule)
        except NotFoundError:
            tx.rules.add(rule)
            return Item("rule", rule.uuid, "imported")
        if same:
            return Item("rule", rule.uuid, "already imported")
        return Item("rule", rule.uuid, "skipped", "a rule with this UUID exists and differs")

    try:
        return write(store, work, dry_run=dry_run)
    except ConflictError as exc:
        return Item("rule", rule.uuid, "skipped", str(exc))


def remove_rule(tx: Transaction, rule: Rule) -> Item | None:
    """Undo the import of a rule; None if it was not imported."""
    try:
        stored = tx.rules.get(rule.uuid)
    except NotFoundError:
        return None
    if not _same(stored, rule):
        return Item("rule", rule.uuid, "changed since", "the rule was changed after the import; it is kept")
    tx.rules.remove(rule.uuid)
    return Item("rule", rule.uuid, "rolled back")


def _same(stored: Rule, rule: Rule) -> bool:
    return stored.updated_at is None and all(
        getattr(stored, name) == getattr(rule, name)
        for name in ("dialect", "description", "priority", "phase", "sensitive", "scope", "conditions", "actions")
    )
