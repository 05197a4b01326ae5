"""The inspection rules in the store; part of ``ports.store.Transaction``.

The revision tells a worker that what it has compiled is old, for the price of one small query.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from ferroscope.core.model import Rule, RuleDialect

if TYPE_CHECKING:
    from ferroscope.ports.store import Query


class Rules(Protocol):
    """Every rule that was made through an API; those of the configuration are not stored."""

    def add(self, rule: Rule) -> None:
        """Store a new rule; ``ConflictError`` where its uuid is taken."""

    def get(self, uuid: str) -> Rule:
        """``NotFoundError`` where there is none."""

    def update(self, rule: Rule) -> Rule:
        """Save all fields and return the rule with its new ``updated_at``; ``NotFoundError``."""

    def remove(self, uuid: str) -> None:
        """Delete the rule; ``NotFoundError``."""

    def remove_all(self, dialect: RuleDialect | None = None) -> int:
        """Delete all rules, or those of one dialect; return how many."""

    def list(self, query: Query) -> Sequence[Rule]:
        """Return one page of rules."""

    def revision(self) -> int:
        """Return a number that grows whenever any rule is added, changed or removed."""
