"""Introspection rules of ironic-inspector's API: create, list, show, delete.

This API lists and deletes its own rules only; the Bare Metal API shows all rules. Source: the Introspection API
reference.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ferroscope.api.baremetal import rule_schema
from ferroscope.api.baremetal.rule_schema import IntrospectionRuleCreate
from ferroscope.api.baremetal.rules import rule_uuid, store_new
from ferroscope.api.http import decoding
from ferroscope.api.http.errors import BadRequestError, StateConflictError
from ferroscope.api.http.route import ApiContext, Call, NoQuery, Reply
from ferroscope.contracts.errors import NotFoundError
from ferroscope.contracts.store import Query, Transaction
from ferroscope.core.model import Rule, RuleDialect

_CREATED_SINCE: Final = 6


def list_rules(context: ApiContext, call: Call[NoQuery, None]) -> Reply:
    """List the introspection rules, without conditions and actions."""
    query = Query(filters={"dialect": str(RuleDialect.INTROSPECTION)})
    rules = context.store.read(lambda tx: tx.rules.list(query))
    views = [rule_schema.introspection(rule, call.url, short=True) for rule in rules]
    return Reply(200, rule_schema.IntrospectionRuleList(rules=views))


def get_rule(context: ApiContext, call: Call[NoQuery, None]) -> Reply:
    """Show an introspection rule."""
    uuid = rule_uuid(call)
    return Reply(200, rule_schema.introspection(context.store.read(lambda tx: _mine(tx, uuid)), call.url, short=False))


def create_rule(context: ApiContext, call: Call[NoQuery, IntrospectionRuleCreate]) -> Reply:
    """Create an introspection rule."""
    uuid = decoding.uuid("uuid", call.body.uuid) if call.body.uuid else context.new_uuid()
    rule = store_new(context, Rule(uuid=uuid, **rule_schema.from_introspection(call.body)))
    status = 201 if call.minor >= _CREATED_SINCE else 200
    return Reply(status, rule_schema.introspection(rule, call.url, short=False))


def put_rule(context: ApiContext, call: Call[NoQuery, IntrospectionRuleCreate]) -> Reply:
    """Create or replace the introspection rule with this UUID.

    PUT and POST are the same: openstacksdk sends one or the other, depending on its version.
    """
    uuid = rule_uuid(call)
    if call.body.uuid is not None and decoding.uuid("uuid", call.body.uuid) != uuid:
        raise BadRequestError("The uuid in the request body differs from the one in the path.")
    rule = Rule(uuid=uuid, **rule_schema.from_introspection(call.body))
    known = context.store.write(lambda tx: _replaced(tx, rule))
    stored = store_new(context, rule) if known is None else known
    return Reply(201 if known is None else 200, rule_schema.introspection(stored, call.url, short=False))


def delete_rule(context: ApiContext, call: Call[NoQuery, None]) -> Reply:
    """Delete an introspection rule."""
    uuid = rule_uuid(call)
    context.store.write(lambda tx: tx.rules.remove(_mine(tx, uuid).uuid))
    return Reply(204)


def delete_rules(context: ApiContext, _call: Call[NoQuery, None]) -> Reply:
    """Delete all introspection rules, but none of the Bare Metal API."""
    context.store.write(lambda tx: tx.rules.remove_all(RuleDialect.INTROSPECTION))
    return Reply(204)


def _mine(tx: Transaction, uuid: str) -> Rule:
    rule = tx.rules.get(uuid)
    if rule.dialect is not RuleDialect.INTROSPECTION:
        raise NotFoundError("rule", uuid)
    return rule


def _replaced(tx: Transaction, rule: Rule) -> Rule | None:
    """Replace an existing rule; keep the fields that this API does not have."""
    try:
        present = tx.rules.get(rule.uuid)
    except NotFoundError:
        return None
    if present.dialect is not RuleDialect.INTROSPECTION:
        raise StateConflictError(f"Rule {rule.uuid} belongs to the Bare Metal API; update it there.")
    rule_schema.checked(rule)
    kept = {"priority": present.priority, "sensitive": present.sensitive, "created_at": present.created_at}
    return tx.rules.update(msgspec.structs.replace(rule, **kept))
