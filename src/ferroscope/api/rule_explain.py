"""POST /v1/inspection_rules/explain: what rules would do with a node, and why; nothing is stored.

It does what reapply would do, on copies: the configured hooks on the newest stored raw data, then the rules.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from ferroscope.api import rule_input, scalars, stored_data
from ferroscope.api.call import Call, NoQuery, Reply
from ferroscope.api.context import ApiContext
from ferroscope.api.errors import BadRequestError, MissingError, StateConflictError
from ferroscope.api.rule_input import RuleCreate
from ferroscope.contracts.store import Query, Transaction
from ferroscope.core import json_safety, values
from ferroscope.core.model import Document, Node, Port, Rule, RuleDialect
from ferroscope.hooks.base import HookError, HookSetupError
from ferroscope.rules import explain
from ferroscope.rules.engine import RuleSet
from ferroscope.rules.explain import DryContext
from ferroscope.storage.reader import Found, newest, previous

_DRAFT: Final = "00000000-0000-0000-0000-000000000000"


class ExplainRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``rule``: the UUID of a stored or built-in rule; ``draft``: a rule that is not stored. Neither: all rules."""

    node: str
    rule: str | None = None
    draft: RuleCreate | None = None


class _Found(msgspec.Struct, frozen=True):
    node: Node
    ports: list[Port]
    data: Found
    rules: RuleSet


def explain_rules(context: ApiContext, call: Call[NoQuery, ExplainRequest]) -> Reply:
    """Show what rules would change on a node with its stored data, and which condition gave what."""
    asked = call.body
    ident = scalars.ident("node", asked.node)
    draft = None if asked.draft is None else _draft(asked.draft)
    if draft is not None and asked.rule is not None:
        raise BadRequestError("Give either rule or draft, not both.")
    found = context.store.read(lambda tx: _find(context, tx, ident))
    rules = draft or _chosen(found.rules, asked.rule)
    dry = DryContext(
        found.node,
        found.ports,
        elsewhere=lambda macs: _elsewhere(context, found.node, tuple(macs)),
        named=lambda name: _named(context, found.node, name),
        previous=lambda: _previous(context, found.data.inspection),
    )
    parts = context.archive.fetch(found.data)
    try:
        inventory, unprocessed = json_safety.decode(parts["inventory"]), json_safety.decode(parts["unprocessed"])
        plugin_data = context.pipeline().run(dry, inventory, unprocessed, owned=True)
    except json_safety.TooManyContainersError as exc:
        raise StateConflictError(f"The node's data is too large to be processed: {exc}.") from None
    except HookError as exc:
        raise StateConflictError(
            f"The hooks refuse the node's data, so no rule would be asked: {exc.message}"
        ) from None
    except HookSetupError as exc:
        raise StateConflictError(f"This api process cannot run the configured hooks: {exc}") from None
    told = explain.explain(
        rules,
        dry,
        inventory,
        plugin_data,
        mask=context.settings.inspection_rules.mask_secrets,
        drivers=context.settings.drivers.enabled,
    )
    return Reply(200, told)


def _draft(body: RuleCreate) -> RuleSet:
    uuid = scalars.uuid("uuid", body.uuid) if body.uuid else _DRAFT
    rule = Rule(uuid=uuid, **rule_input.fields_of(body, RuleDialect.BARE_METAL))
    return RuleSet.of(0, [rule_input.checked(rule)])


def _find(context: ApiContext, tx: Transaction, ident: str) -> _Found:
    node = tx.nodes.get(ident)
    data = newest(tx, node, stored_data.UNPROCESSED)
    if data is None:
        raise MissingError(f"Node {ident} has no stored inspection data; inspect it first.")
    ports = list(tx.ports.list(Query(filters={"node": node.uuid})))
    return _Found(node, ports, data, context.rules.current(tx))


def _chosen(rules: RuleSet, uuid: str | None) -> RuleSet:
    if uuid is None:
        return rules
    wanted = scalars.uuid("rule", uuid) if values.is_uuid(uuid) else uuid
    found = tuple(rule for rule in rules.rules if rule.rule.uuid == wanted)
    if not found:
        raise MissingError(f"Rule {scalars.shown(uuid)} could not be found.")
    return RuleSet(rules.revision, found)


def _elsewhere(context: ApiContext, node: Node, macs: tuple[str, ...]) -> dict[str, str]:
    if not macs:
        return {}
    found = context.store.read(lambda tx: tx.ports.list(Query(filters={"address": macs})))
    return {port.address: port.node for port in found if port.node != node.uuid}


def _named(context: ApiContext, node: Node, name: str) -> str | None:
    found = context.store.read(lambda tx: tx.nodes.list(Query(filters={"name": name})))
    return next((one.uuid for one in found if one.uuid != node.uuid), None)


def _previous(context: ApiContext, inspection: str) -> Document | None:
    """Return the inventory that a reapply of this inspection would find to be the previous one."""

    def find(tx: Transaction) -> Found | None:
        one = tx.inspections.get(inspection)
        return previous(tx, one.node, one, ("inventory",))

    found = context.store.read(find)
    stored = None if found is None else context.archive.fetch(found).get("inventory")
    return None if stored is None else _decoded(stored)


def _decoded(stored: bytes) -> Any:
    return msgspec.json.decode(stored, type=dict[str, Any])
