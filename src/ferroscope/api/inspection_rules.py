"""Inspection rules in the Bare Metal API: list, show, create, change, delete.

It shows every stored rule, those of the Introspection API too. Source: the Bare Metal API reference.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from ferroscope.api import paging, patch, rule_input, rule_view, scalars
from ferroscope.api.call import Call, NoQuery, Reply
from ferroscope.api.context import ApiContext
from ferroscope.api.documented import Limit, SortDir, Uuid
from ferroscope.api.errors import BadRequestError, MissingError, StateConflictError
from ferroscope.api.patch import Operation
from ferroscope.api.rule_input import Phase, RuleCreate, RuleSettable
from ferroscope.api.rule_view import RuleField, RuleSortKey
from ferroscope.contracts.store import Query, Transaction
from ferroscope.core.model import Rule, RuleDialect
from ferroscope.core.values import is_uuid
from ferroscope.rules.data import MAX_RULES

# python-ironicclient's "unset" says these of single items.
_ALIASES: Final = {"/condition/": "/conditions/", "/action/": "/actions/"}


class RuleQuery(msgspec.Struct, frozen=True):
    """Query of GET /v1/inspection_rules/{rule}."""

    fields: list[RuleField] | None = None


class RuleListQuery(msgspec.Struct, frozen=True):
    """Query of GET /v1/inspection_rules."""

    detail: bool | None = None
    fields: list[RuleField] | None = None
    limit: Limit | None = None
    marker: Uuid | None = None
    phase: Phase | None = None
    sort_dir: SortDir = "asc"
    sort_key: RuleSortKey = "id"


def list_rules(context: ApiContext, call: Call[RuleListQuery, None]) -> Reply:
    """List inspection rules, in the order of their creation unless another one is asked for."""
    asked = call.query
    fields = rule_view.chosen(asked.fields, asked.detail, rule_view.DEFAULT_FIELDS)
    size = paging.page_size(asked.limit, context.settings.api.max_limit)
    query = Query(
        filters={} if asked.phase is None else {"phase": asked.phase},
        marker=paging.marker(asked.marker),
        sort_key=paging.sort_field(asked.sort_key, rule_view.SORT_FIELDS),
        descending=paging.descending(asked.sort_dir),
    )
    rules, more = context.store.read(lambda tx: paging.read(tx.rules.list, query, size))
    body: dict[str, Any] = {"inspection_rules": [rule_view.bare_metal(rule, fields, call.url) for rule in rules]}
    if more:
        body["next"] = paging.next_link(call.url, "inspection_rules", asked, size, rules[-1].uuid)
    return Reply(200, body)


def get_rule(context: ApiContext, call: Call[RuleQuery, None]) -> Reply:
    """Show an inspection rule."""
    fields = rule_view.chosen(call.query.fields, None, rule_view.FIELDS)
    uuid = rule_uuid(call)
    return Reply(200, rule_view.bare_metal(context.store.read(lambda tx: tx.rules.get(uuid)), fields, call.url))


def create_rule(context: ApiContext, call: Call[NoQuery, RuleCreate]) -> Reply:
    """Create an inspection rule."""
    uuid = scalars.uuid("uuid", call.body.uuid) if call.body.uuid else context.new_uuid()
    rule = store_new(context, Rule(uuid=uuid, **rule_input.fields_of(call.body, RuleDialect.BARE_METAL)))
    location = {"Location": f"{call.url}/v1/inspection_rules/{uuid}"}
    return Reply(201, rule_view.bare_metal(rule, rule_view.FIELDS, call.url), location)


def update_rule(context: ApiContext, call: Call[NoQuery, list[Operation]]) -> Reply:
    """Change an inspection rule by a JSON patch."""
    uuid = rule_uuid(call)
    operations = [_spelt_out(operation) for operation in call.body]

    def work(tx: Transaction) -> Rule:
        rule = tx.rules.get(uuid)
        document = {name: getattr(rule, name) for name in rule_input.PATCHABLE}
        max_depth = context.settings.api.max_json_depth
        values = patch.apply(document, operations, rule_input.PATCHABLE, max_depth=max_depth)
        try:
            body = msgspec.convert(document | values, RuleSettable)
        except msgspec.ValidationError as exc:
            raise BadRequestError(f"The patched rule does not fit: {exc}. GET /openapi.json has its schema.") from None
        changed = msgspec.structs.replace(rule, **rule_input.fields_of(body, rule.dialect))
        if rule.sensitive and not changed.sensitive:
            raise BadRequestError(
                "A sensitive rule stays so: what it hides would be shown. Delete it and make another."
            )
        rule_input.checked(changed)
        return tx.rules.update(changed)

    return Reply(200, rule_view.bare_metal(context.store.write(work), rule_view.FIELDS, call.url))


def delete_rule(context: ApiContext, call: Call[NoQuery, None]) -> Reply:
    """Delete an inspection rule."""
    uuid = rule_uuid(call)
    context.store.write(lambda tx: tx.rules.remove(uuid))
    return Reply(204)


def delete_rules(context: ApiContext, _call: Call[NoQuery, None]) -> Reply:
    """Delete all inspection rules, those of the Introspection API too."""
    context.store.write(lambda tx: tx.rules.remove_all())
    return Reply(204)


def store_new(context: ApiContext, rule: Rule) -> Rule:
    """Check and store a new rule; return it as it is stored."""
    rule_input.checked(rule)

    def work(tx: Transaction) -> Rule:
        if len(tx.rules.list(Query(limit=MAX_RULES))) >= MAX_RULES:
            raise StateConflictError(f"There are {MAX_RULES} rules already; delete some that are not needed any more.")
        tx.rules.add(rule)
        return tx.rules.get(rule.uuid)

    return context.store.write(work)


def rule_uuid(call: Call[Any, Any]) -> str:
    """Return the UUID of the rule that the path names."""
    given = call.path["rule"]
    if not is_uuid(given):
        raise MissingError(f"Rule {scalars.shown(given)} could not be found: a rule is named by its UUID.")
    return scalars.uuid("rule", given)


def _spelt_out(operation: Operation) -> Operation:
    for short, full in _ALIASES.items():
        if operation.path.startswith(short):
            return msgspec.structs.replace(operation, path=full + operation.path.removeprefix(short))
    return operation
