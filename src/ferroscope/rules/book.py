"""The rules of a process: compiled once for each revision of what is stored, together with the built-in ones."""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from ferroscope.contracts.store import Query, Transaction
from ferroscope.core.model import Rule
from ferroscope.rules.compile import CompiledRule, compile_rule
from ferroscope.rules.conditions import Condition, Seen
from ferroscope.rules.data import Data
from ferroscope.rules.engine import RuleSet
from ferroscope.rules.errors import InvalidRuleError, RuleError

_log = structlog.get_logger(__name__)


class RuleBook:
    """One instance serves all threads: a rule set is replaced as a whole, never changed."""

    def __init__(self, built_in: Sequence[CompiledRule] = ()) -> None:
        self._built_in = tuple(built_in)
        self._current: RuleSet | None = None

    def current(self, tx: Transaction) -> RuleSet:
        """Return the rules as this transaction sees them: one small query, unless they have changed."""
        revision = tx.rules.revision()
        known = self._current
        if known is not None and known.revision == revision:
            return known
        stored = [_compiled(rule) for rule in tx.rules.list(Query())]
        self._current = found = RuleSet.of(revision, (*stored, *self._built_in))
        return found


class _Broken:
    """The only condition of a rule that was stored once and is not understood any more: it says so."""

    def __init__(self, problem: str) -> None:
        self._problem = problem

    def holds(self, data: Data, seen: list[Seen] | None = None) -> bool:
        raise RuleError(f"this version cannot read it: {self._problem}")


def _compiled(rule: Rule) -> CompiledRule:
    """A stored rule was valid when it was stored; should it not be any more, nobody may be inspected without it."""
    try:
        return compile_rule(rule)
    except InvalidRuleError as exc:
        _log.error("a stored rule is not valid any more", rule=rule.uuid)
        broken: Condition = _Broken(str(exc))
        return CompiledRule(rule, (broken,), ())
