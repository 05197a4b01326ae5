"""Inspection rules, and expectations of the hardware, in SQL.

Every change first updates the only row of ``rule_revisions``. Its lock serializes changes, so none is
committed under a revision that a worker may already have read.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from sqlalchemy import bindparam, delete, insert, select, update

from ferroscope.contracts.errors import ConflictError, NotFoundError
from ferroscope.contracts.store import Later, Query
from ferroscope.core.model import Rule, RuleDialect
from ferroscope.db import schema
from ferroscope.db.mapping import Mapper, add, page, sizes
from ferroscope.db.session import Repository
from ferroscope_client.core import json_safety
from ferroscope_client.core.expectation import Expectation

_RULE = Mapper(Rule, schema.rules)

_r, _v = schema.rules.c, schema.rule_revisions.c

_REVISION = select(_v.revision).where(_v.id == bindparam("ident"))
_CHANGED = update(schema.rule_revisions).where(_v.id == bindparam("ident")).values(revision=_v.revision + 1)
_FIRST = insert(schema.rule_revisions)
_INSERT = insert(schema.rules)
_SELECT = select(*_RULE.columns).where(_r.uuid == bindparam("ident"))
_UPDATE = (
    update(schema.rules)
    .where(_r.uuid == bindparam("_uuid"))
    .values({name: bindparam(name) for name in Rule.__struct_fields__ if name not in ("uuid", "created_at")})
)
_DELETE = delete(schema.rules).where(_r.uuid == bindparam("ident"))
_DELETE_DIALECT = delete(schema.rules).where(_r.dialect == bindparam("dialect"))
_DELETE_ALL = delete(schema.rules)


class Rules(Repository):
    """The rules that were created through an API; the configuration's rules are not stored."""

    def add(self, rule: Rule) -> None:
        """Store a new rule; ``ConflictError`` if its UUID is in use."""
        self.changed()
        row = _RULE.to_row(rule)
        row["created_at"] = rule.created_at or self._tx.now
        # uuid is the only constraint
        self._tx.ask(_INSERT, row, failed=lambda _: ConflictError("uuid", rule.uuid))

    def get(self, uuid: str) -> Rule:
        """Return the rule; ``NotFoundError``."""
        row = self._tx.run(_SELECT, {"ident": uuid}).first()
        if row is None:
            raise NotFoundError("rule", uuid)
        return _RULE.from_row(row)

    def update(self, rule: Rule) -> Rule:
        """Save all fields and return the rule with its new ``updated_at``; ``NotFoundError``."""
        self._tx.written.check("rule", rule.uuid, rule.updated_at)
        self.changed()
        changed = msgspec.structs.replace(rule, updated_at=self._tx.now)
        row = _RULE.to_row(changed) | {"_uuid": rule.uuid}
        del row["uuid"], row["created_at"]
        if self._tx.run(_UPDATE, row).rowcount == 0:
            raise NotFoundError("rule", rule.uuid)
        self._tx.written.note("rule", rule.uuid, changed.updated_at)
        return changed

    def remove(self, uuid: str) -> None:
        """Delete the rule; ``NotFoundError``."""
        self.changed()
        if self._tx.run(_DELETE, {"ident": uuid}).rowcount == 0:
            raise NotFoundError("rule", uuid)

    def remove_all(self, dialect: RuleDialect | None = None) -> int:
        """Delete all rules, or those of one dialect; return their number."""
        self.changed()
        if dialect is None:
            return int(self._tx.run(_DELETE_ALL).rowcount)
        return int(self._tx.run(_DELETE_DIALECT, {"dialect": dialect.value}).rowcount)

    def list(self, query: Query) -> Sequence[Rule]:
        """Return one page of rules."""
        return page(self._tx, _RULE, query)

    def sizes(self, query: Query) -> Sequence[int]:
        """Return, without reading them, the bytes of the documents and long texts of each item of the page."""
        return sizes(self._tx, _RULE, query)

    def revision(self) -> int:
        """Return the revision, which every change of any rule increases."""
        return self.revision_later().get()

    def revision_later(self) -> Later[int]:
        """Like ``revision``, but read later; see ``Later``."""
        asked = self._tx.ask(_REVISION, {"ident": 1})
        return Later(lambda: next((int(row[0]) for row in asked.answer()), 0))

    def changed(self) -> None:
        """Increase the revision."""
        if self._tx.run(_CHANGED, {"ident": 1}).rowcount == 0:
            self._tx.run(_FIRST, {"id": 1, "revision": 1})


_e = schema.expectations.c
_EXPECTED = select(_e.document).order_by(_e.position)
_FORGET = delete(schema.expectations)


class Expectations(Repository):
    """What hardware is expected of which nodes; changes increase the revision of the rules."""

    def list(self) -> Sequence[Expectation]:
        """Return all, in their order."""
        return [json_safety.decode_own(row[0], Expectation) for row in self._tx.run(_EXPECTED)]

    def replace(self, expectations: Sequence[Expectation]) -> None:
        """Store these instead of all others; their names are different."""
        Rules(self._tx).changed()
        self._tx.run(_FORGET)
        rows = [
            (expectation.name, at, msgspec.json.encode(expectation).decode())
            for at, expectation in enumerate(expectations)
        ]
        add(self._tx, schema.expectations, ("name", "position", "document"), rows)
