"""Inspection rules in memory."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ferroscope.adapters.memory.pages import ordering, page
from ferroscope.adapters.memory.rows import Rows
from ferroscope.adapters.memory.tables import copy
from ferroscope.domain.rule import Rule, RuleDialect
from ferroscope.ports.errors import ConflictError, NotFoundError
from ferroscope.ports.store import Query


class MemoryRules:
    """``ports.rules.Rules``; ``now`` is the transaction's time."""

    def __init__(self, rows: Rows, now: float) -> None:
        self._rows = rows
        self._now = now

    def add(self, rule: Rule) -> None:
        if rule.uuid in self._rows.rules:
            raise ConflictError("uuid", rule.uuid)
        self._put(msgspec.structs.replace(rule, created_at=rule.created_at or self._now))

    def get(self, uuid: str) -> Rule:
        return copy(self._stored(uuid))

    def update(self, rule: Rule) -> Rule:
        stored = self._stored(rule.uuid)
        saved = msgspec.structs.replace(rule, updated_at=self._now)
        self._put(msgspec.structs.replace(saved, created_at=stored.created_at))
        return saved

    def remove(self, uuid: str) -> None:
        self._stored(uuid)
        self._drop([uuid])

    def remove_all(self, dialect: RuleDialect | None = None) -> int:
        uuids = [rule.uuid for rule in self._rows.rules.values() if dialect in (None, rule.dialect)]
        self._drop(uuids)
        return len(uuids)

    def list(self, query: Query) -> Sequence[Rule]:
        marker = None if query.marker is None else self._stored(query.marker)
        return page(self._rows.rules.values(), query, marker=marker, key=ordering(query.sort_key, "uuid"))

    def revision(self) -> int:
        return self._rows.rule_revision.get(1) or 0

    def _stored(self, uuid: str) -> Rule:
        rule = self._rows.rules.get(uuid)
        if rule is None:
            raise NotFoundError("rule", uuid)
        return rule

    def _put(self, rule: Rule) -> None:
        self._rows.rules.put(rule.uuid, copy(rule))
        self._changed()

    def _drop(self, uuids: Sequence[str]) -> None:
        for uuid in uuids:
            self._rows.rules.drop(uuid)
        self._changed()

    def _changed(self) -> None:
        self._rows.rule_revision.put(1, self.revision() + 1)
