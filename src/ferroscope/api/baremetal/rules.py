"""Inspection rules in the Bare Metal API: list, show, create, update, delete, explain.

All stored rules are visible here, also those of the Introspection API. Source: the Bare Metal API reference.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from ferroscope.api.baremetal import rule_schema, stored_data
from ferroscope.api.baremetal.rule_schema import Phase, RuleCreate, RuleField, RuleSettable, RuleSortKey
from ferroscope.api.errors import BadRequestError, MissingError, StateConflictError
from ferroscope.api.http import decoding, json_patch, paging
from ferroscope.api.http.context import ApiContext, ApiServices, DataAccess
from ferroscope.api.http.json_patch import Operation
from ferroscope.api.http.large_lists import Room
from ferroscope.api.http.route import NoQuery, Reply, RouteCall
from ferroscope.api.http.schemas import Limit, SortDir, Uuid
from ferroscope.contracts.store import Query
from ferroscope.core.model import Document, Node, Port, Rule, RuleDialect
from ferroscope.db import Transaction
from ferroscope.hooks.base import HookError, HookSetupError
from ferroscope.rules import explain, masking
from ferroscope.rules.data import MAX_RULES
from ferroscope.rules.engine import RuleSet
from ferroscope.rules.explain import DryContext
from ferroscope.storage.reader import StoredParts, newest, previous
from ferroscope_client.core import json_safety, values
from ferroscope_client.core.json_safety import MAX_DEPTH
from ferroscope_client.core.values import is_uuid

# python-ironicclient's "unset" uses these paths for single items.
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


def list_rules(context: ApiContext, call: RouteCall[RuleListQuery, None]) -> Reply:
    """List inspection rules, by default in the order of their creation."""
    asked = call.query
    fields = rule_schema.chosen_fields(asked.fields, asked.detail, rule_schema.DEFAULT_FIELDS)
    size = paging.page_size(asked.limit, context.settings.api.max_limit)
    query = Query(
        filters={} if asked.phase is None else {"phase": asked.phase},
        marker=paging.marker(asked.marker),
        sort_key=paging.sort_field(asked.sort_key, rule_schema.SORT_FIELDS),
        descending=paging.descending(asked.sort_dir),
    )

    def work(tx: Transaction, room: Room) -> paging.Page:
        return paging.page(room, tx.rules, query, size, lambda rule: rule_schema.bare_metal(rule, fields, call.url))

    page = context.data.read_list(work)
    body: dict[str, Any] = {"inspection_rules": page.items}
    if page.last is not None:
        body["next"] = paging.next_link(call.url, "inspection_rules", asked, size, page.last)
    return Reply(200, body)


def get_rule(context: ApiContext, call: RouteCall[RuleQuery, None]) -> Reply:
    """Show an inspection rule."""
    fields = rule_schema.chosen_fields(call.query.fields, None, rule_schema.FIELDS)
    uuid = rule_uuid(call)
    return Reply(200, rule_schema.bare_metal(context.data.store.read(lambda tx: tx.rules.get(uuid)), fields, call.url))


def create_rule(context: ApiContext, call: RouteCall[NoQuery, RuleCreate]) -> Reply:
    """Create an inspection rule."""
    uuid = decoding.uuid("uuid", call.body.uuid) if call.body.uuid else context.process.new_uuid()
    rule = store_new(context.data, Rule(uuid=uuid, **rule_schema.fields_of(call.body, RuleDialect.BARE_METAL)))
    location = {"Location": f"{call.url}/v1/inspection_rules/{uuid}"}
    return Reply(201, rule_schema.bare_metal(rule, rule_schema.FIELDS, call.url), location)


def update_rule(context: ApiContext, call: RouteCall[NoQuery, list[Operation]]) -> Reply:
    """Update an inspection rule by a JSON patch."""
    uuid = rule_uuid(call)
    operations = [_spelt_out(operation) for operation in call.body]

    def work(tx: Transaction) -> Rule:
        rule = tx.rules.get(uuid)
        # The document as readers see it. Otherwise a patch could move a secret to a visible argument.
        document = {name: getattr(rule, name) for name in rule_schema.PATCHABLE}
        document |= {name: masking.mask_items(document[name]) for name in ("conditions", "actions")}
        values = json_patch.apply(document, operations, rule_schema.PATCHABLE, max_depth=MAX_DEPTH)
        try:
            body = msgspec.convert(document | values, RuleSettable)
        except msgspec.ValidationError as exc:
            message = f"Invalid rule after the patch: {exc}. GET /openapi.json returns its schema."
            raise BadRequestError(message) from None
        changed = msgspec.structs.replace(rule, **rule_schema.fields_of(body, rule.dialect, rule))
        if rule.sensitive and not changed.sensitive:
            raise BadRequestError(
                "sensitive cannot be unset: that would reveal the rule's conditions and actions. Delete the rule and "
                "create another one."
            )
        rule_schema.compile_checked(changed)
        return tx.rules.update(changed)

    return Reply(200, rule_schema.bare_metal(context.data.store.write(work), rule_schema.FIELDS, call.url))


def delete_rule(context: ApiContext, call: RouteCall[NoQuery, None]) -> Reply:
    """Delete an inspection rule."""
    uuid = rule_uuid(call)
    context.data.store.write(lambda tx: tx.rules.remove(uuid))
    return Reply(204)


def delete_rules(context: ApiContext, _call: RouteCall[NoQuery, None]) -> Reply:
    """Delete all inspection rules, including those of the Introspection API."""
    context.data.store.write(lambda tx: tx.rules.remove_all())
    return Reply(204)


def store_new(data: DataAccess, rule: Rule) -> Rule:
    """Validate and store a new rule; return the stored rule."""
    rule_schema.compile_checked(rule)

    def work(tx: Transaction) -> Rule:
        if len(tx.rules.list(Query(limit=MAX_RULES))) >= MAX_RULES:
            raise StateConflictError(f"The limit of {MAX_RULES} rules is reached; delete some first.")
        tx.rules.add(rule)
        return tx.rules.get(rule.uuid)

    return data.store.write(work)


def rule_uuid(call: RouteCall[Any, Any]) -> str:
    """Return the UUID of the rule in the path."""
    ident = call.path["rule"]
    if not is_uuid(ident):
        raise MissingError(f"Rule {decoding.shown_value(ident)} could not be found: use the rule's UUID.")
    return decoding.uuid("rule", ident)


def _spelt_out(operation: Operation) -> Operation:
    for short, full in _ALIASES.items():
        if operation.path.startswith(short):
            return msgspec.structs.replace(operation, path=full + operation.path.removeprefix(short))
    return operation


# POST /v1/inspection_rules/explain: what rules would do with a node, and why; nothing is stored.
#
# Like reapply, but on copies: it runs the configured hooks on the newest stored raw data, then the rules.

_DRAFT: Final = "00000000-0000-0000-0000-000000000000"


class ExplainRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``rule``: the UUID of a stored or built-in rule; ``draft``: a rule that is not stored. Neither: all rules.

    With the UUID of a stored rule, a draft has the secrets of that rule for their masks.
    """

    node: str
    rule: str | None = None
    draft: RuleCreate | None = None


class _StoredNode(msgspec.Struct, frozen=True):
    node: Node
    ports: list[Port]
    data: StoredParts
    rules: RuleSet


def explain_rules(context: ApiContext, call: RouteCall[NoQuery, ExplainRequest]) -> Reply:
    """Show what rules would change on a node with its stored data, and the result of each condition."""
    asked = call.body
    ident = decoding.ident("node", asked.node)
    if asked.draft is not None and asked.rule is not None:
        raise BadRequestError("rule and draft are mutually exclusive.")
    stored = context.data.store.read(lambda tx: _find(context.services, tx, ident))
    rules = _choose_rules(stored.rules, asked.rule) if asked.draft is None else _draft(asked.draft, stored.rules)
    dry = DryContext(
        stored.node,
        stored.ports,
        elsewhere=lambda macs: _elsewhere(context.data, stored.node, tuple(macs)),
        find_node_by_name=lambda name: _find_by_name(context.data, stored.node, name),
        previous=lambda: _previous(context.data, stored.data.inspection),
    )
    parts = context.data.archive.fetch(stored.data)
    try:
        inventory, unprocessed = (json_safety.decode_clean(parts[name]) for name in ("inventory", "unprocessed"))
        plugin_data = context.services.pipeline().run(dry, inventory, unprocessed, owned=True)
    except json_safety.JsonTooLargeError as exc:
        raise StateConflictError(f"The node's data is too large to process: {exc}.") from None
    except HookError as exc:
        raise StateConflictError(f"A hook fails on the node's data, so no rule would run: {exc.message}") from None
    except HookSetupError as exc:
        raise StateConflictError(f"This api process cannot load the configured hooks: {exc}") from None
    explanation = explain.explain(
        rules,
        dry,
        inventory,
        plugin_data,
        mask=context.settings.inspection_rules.mask_secrets,
        drivers=context.settings.drivers.enabled,
    )
    return Reply(200, explanation)


def _draft(body: RuleCreate, stored: RuleSet) -> RuleSet:
    uuid = decoding.uuid("uuid", body.uuid) if body.uuid else _DRAFT
    former = next((compiled.rule for compiled in stored.rules if compiled.rule.uuid == uuid), None)
    rule = Rule(uuid=uuid, **rule_schema.fields_of(body, RuleDialect.BARE_METAL, former))
    return RuleSet.of(0, [rule_schema.compile_checked(rule)])


def _find(services: ApiServices, tx: Transaction, ident: str) -> _StoredNode:
    node = tx.nodes.get(ident)
    data = newest(tx, node, stored_data.UNPROCESSED)
    if data is None:
        raise MissingError(f"Node {ident} has no stored inspection data; inspect it first.")
    ports = list(tx.ports.list(Query(filters={"node": node.uuid})))
    return _StoredNode(node, ports, data, services.rules.current(tx))


def _choose_rules(rules: RuleSet, uuid: str | None) -> RuleSet:
    if uuid is None:
        return rules
    wanted = decoding.uuid("rule", uuid) if values.is_uuid(uuid) else uuid
    matches = tuple(rule for rule in rules.rules if rule.rule.uuid == wanted)
    if not matches:
        raise MissingError(f"Rule {decoding.shown_value(uuid)} could not be found.")
    return RuleSet(rules.revision, matches)


def _elsewhere(data: DataAccess, node: Node, macs: tuple[str, ...]) -> dict[str, str]:
    if not macs:
        return {}
    ports = data.store.read(lambda tx: tx.ports.list(Query(filters={"address": macs})))
    return {port.address: port.node for port in ports if port.node != node.uuid}


def _find_by_name(data: DataAccess, node: Node, name: str) -> str | None:
    nodes = data.store.read(lambda tx: tx.nodes.list(Query(filters={"name": name})))
    return next((node_with_name.uuid for node_with_name in nodes if node_with_name.uuid != node.uuid), None)


def _previous(data: DataAccess, inspection: str) -> Document | None:
    """Return the inventory that a reapply of this inspection would use as the previous one."""

    def find(tx: Transaction) -> StoredParts | None:
        reapplied = tx.inspections.get(inspection)
        return previous(tx, reapplied.node, reapplied, ("inventory",))

    location = data.store.read(find)
    stored = None if location is None else data.archive.fetch(location).get("inventory")
    return None if stored is None else _decode_document(stored)


def _decode_document(stored: bytes) -> Any:
    return json_safety.decode(stored, dict[str, Any])
