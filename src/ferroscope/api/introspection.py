"""The Introspection API: start, status, list, abort, and the data of introspections; and introspection rules.

It is another view of the same nodes: the introspection of a node is its newest inspection. Of the rules, it lists and
deletes only its own; the Bare Metal API shows all rules. Source: the Introspection API reference of ironic-inspector,
and its clients.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any, Final

import msgspec

from ferroscope import transition
from ferroscope.api.auth import access
from ferroscope.api.baremetal import provision, rule_schema, stored_data
from ferroscope.api.baremetal.node_fields import shown_to
from ferroscope.api.baremetal.nodes import page_of
from ferroscope.api.baremetal.rule_schema import IntrospectionRuleCreate
from ferroscope.api.baremetal.rules import rule_uuid, store_new
from ferroscope.api.baremetal.stored_data import introspected_node
from ferroscope.api.errors import BadRequestError, MissingError, StateConflictError
from ferroscope.api.http import decoding, paging
from ferroscope.api.http.context import ApiContext
from ferroscope.api.http.decoding import introspected_ident
from ferroscope.api.http.large_lists import Room
from ferroscope.api.http.route import NoQuery, Reply, RouteCall
from ferroscope.api.http.schemas import ApiLink, IntrospectionState, LimitOrZero, Uuid, iso_micro, own
from ferroscope.contracts.errors import NotFoundError
from ferroscope.contracts.store import Part, Query
from ferroscope.core import introspection_data
from ferroscope.core.delivery import Fail
from ferroscope.core.model import Node, Rule, RuleDialect
from ferroscope.db import Transaction
from ferroscope.rules.data import MAX_RULES
from ferroscope_client.core import json_safety
from ferroscope_client.core.reasons import CANCELED, Reason
from ferroscope_client.core.states import INSPECTED, State

_INTROSPECTED: Final = tuple(map(str, INSPECTED))
_ABORTED: Final = transition.explain(Fail(Reason.ABORTED, CANCELED))
# The answer to an accepted request: an empty object and a newline, as ironic-inspector's tests expect.
_ACCEPTED: Final = b"{}\n"


class StartQuery(msgspec.Struct, frozen=True):
    """Query of POST /v1/introspection/{node}; ``manage_boot`` false: the caller boots the ramdisk."""

    manage_boot: bool = True


class IntrospectionListQuery(msgspec.Struct, frozen=True):
    """Query of GET /v1/introspection; a limit of 0 means the maximum."""

    limit: LimitOrZero | None = None
    marker: Uuid | None = None
    state: list[IntrospectionState] | None = None


class IntrospectionStatus(msgspec.Struct, frozen=True):
    """The status of the newest inspection of a node; ``uuid`` is the node's."""

    uuid: str
    finished: bool
    state: str
    started_at: str | None
    finished_at: str | None
    error: str | None
    links: list[ApiLink]


class IntrospectionList(msgspec.Struct, frozen=True):
    """A page, newest first."""

    introspection: list[IntrospectionStatus]


class EmptyReply(msgspec.Struct, frozen=True):
    """An empty object: the request was accepted."""


def start_introspection(context: ApiContext, call: RouteCall[StartQuery, None]) -> Reply:
    """Start an introspection. Concurrent starts count as one; a start while we wait for the machine restarts it."""
    ident = introspected_ident(call)
    if (attached := context.services.attached) is not None:
        attached.prepare(context, ident, manage_boot=call.query.manage_boot)

    def work(tx: Transaction) -> None:
        node = tx.nodes.get(ident, lock=True)
        provision.start(context, tx, node, manage_boot=call.query.manage_boot)

    context.data.store.write(work)
    return Reply(202, _ACCEPTED)


def get_introspection(context: ApiContext, call: RouteCall[NoQuery, None]) -> Reply:
    """Show the status of the newest introspection of a node."""
    ident = introspected_ident(call)
    return Reply(200, _status(context, call, context.data.store.read(lambda tx: introspected_node(tx, ident)[0])))


def list_introspections(context: ApiContext, call: RouteCall[IntrospectionListQuery, None]) -> Reply:
    """List the newest introspection of each node, newest first."""
    asked = call.query
    query = Query(
        filters={"state": _states(asked.state)},
        limit=_limit(asked.limit, context.settings.api.max_limit),
        marker=paging.marker(asked.marker),
        sort_key="inspection_started_at",
        descending=True,
        project=access.scope(context.access.policy, call.identity, "node"),
    )
    size = query.limit or 0

    def work(tx: Transaction, room: Room) -> paging.Page:
        # This API has no link to a next page, and clients rely on the number of items; each is small.
        return page_of(context, call, tx, room.without_limit(), query, size, lambda node: _status(context, call, node))

    return Reply(200, {"introspection": context.data.read_list(work).items})


def abort_introspection(context: ApiContext, call: RouteCall[NoQuery, None]) -> Reply:
    """Abort the introspection of a node."""
    ident = introspected_ident(call)
    context.data.store.write(lambda tx: provision.abort(context, tx, introspected_node(tx, ident, lock=True)[0]))
    return Reply(202, _ACCEPTED)


def _status(context: ApiContext, call: RouteCall[Any, Any], node: Node) -> IntrospectionStatus:
    shown = shown_to(context.access.policy, call.identity, node, {"last_error": node.last_error})
    return IntrospectionStatus(
        uuid=node.uuid,
        finished=node.inspection_finished_at is not None,
        state=str(node.state),
        started_at=iso_micro(node.inspection_started_at),
        finished_at=iso_micro(node.inspection_finished_at),
        error=_error(shown["last_error"]) if node.state is State.ERROR else None,
        links=own(call.url, f"introspection/{node.uuid}"),
    )


def _error(last_error: str | None) -> str | None:
    """Return the error as this API shows it: clients compare the text of an abort."""
    return CANCELED if last_error == _ABORTED else last_error


def _states(asked: list[str] | None) -> tuple[str, ...]:
    unknown = sorted(set(asked or ()) - set(_INTROSPECTED))
    if unknown:
        raise BadRequestError(
            f"Invalid state(s) {', '.join(decoding.shown_value(state) for state in unknown[:8])}; "
            f"supported: {', '.join(_INTROSPECTED)}."
        )
    return tuple(asked) if asked else _INTROSPECTED


def _limit(limit: int | None, maximum: int) -> int:
    if limit is not None and not 0 <= limit <= maximum:
        raise BadRequestError(f"Invalid limit {limit}: it must be between 0 and {maximum}.")
    return limit or maximum


# The data of an introspection


class IntrospectionData(msgspec.Struct, frozen=True):
    """The inventory, with all other data from the ramdisk and hooks as additional keys."""

    inventory: dict[str, Any]


def get_data(context: ApiContext, call: RouteCall[NoQuery, None]) -> Reply:
    """Return the processed data of the newest introspection that has data."""
    return _data_of(context, call, stored_data.PROCESSED, "plugin_data", with_client_keys)


def get_unprocessed_data(context: ApiContext, call: RouteCall[NoQuery, None]) -> Reply:
    """Return the data of the newest introspection that has data, as the ramdisk sent it."""
    return _data_of(context, call, stored_data.UNPROCESSED, "unprocessed")


def reapply(context: ApiContext, call: RouteCall[NoQuery, None]) -> Reply:
    """Process the stored data, or the given data, again."""
    stored_data.submit(context, call, introspected_ident(call))
    return Reply(202, _ACCEPTED)


def with_client_keys(parts: dict[Part, bytes]) -> bytes:
    """Return the plugin data with the keys that ironic-inspector adds to it, which its clients read."""
    inventory = _read(
        json_safety.decode_own(parts["inventory"], dict[str, msgspec.Raw]), introspection_data.OF_INVENTORY
    )
    extra = json_safety.decode_own(parts["plugin_data"], dict[str, msgspec.Raw])
    for key, value in introspection_data.names(inventory, _read(extra, introspection_data.OF_PLUGIN_DATA)).items():
        extra[key] = msgspec.Raw(msgspec.json.encode(value))
    return msgspec.json.encode(extra)


def _read(document: dict[str, msgspec.Raw], keys: Container[str]) -> dict[str, Any]:
    """Return the document with these ``keys`` decoded; the others, which may be large, are not."""
    return {key: json_safety.decode_own(raw) if key in keys else raw for key, raw in document.items()}


def _data_of(
    context: ApiContext,
    call: RouteCall[NoQuery, None],
    parts: tuple[Part, ...],
    beside: Part,
    translate: Callable[[dict[Part, bytes]], bytes] | None = None,
) -> Reply:
    ident = introspected_ident(call)
    node, stored = stored_data.of_node(context.data, lambda tx: introspected_node(tx, ident)[0], parts)
    data_parts = stored_data.require_parts(node, stored)
    if translate is not None:
        data_parts = {**data_parts, beside: translate(data_parts)}
    return Reply(200, stored_data.merge_inventory(data_parts, beside))


_CREATED_SINCE: Final = 6


def list_rules(context: ApiContext, call: RouteCall[NoQuery, None]) -> Reply:
    """List the introspection rules, without conditions and actions."""
    query = Query(filters={"dialect": str(RuleDialect.INTROSPECTION)})

    def work(tx: Transaction, room: Room) -> paging.Page:
        return paging.page(
            room.without_limit(),
            tx.rules,
            query,
            MAX_RULES,
            lambda rule: rule_schema.introspection(rule, call.url, short=True),
        )

    return Reply(200, {"rules": context.data.read_list(work).items})


def get_rule(context: ApiContext, call: RouteCall[NoQuery, None]) -> Reply:
    """Show an introspection rule."""
    uuid = _rule_ident(call)
    return Reply(
        200, rule_schema.introspection(context.data.store.read(lambda tx: _mine(tx, uuid)), call.url, short=False)
    )


def create_rule(context: ApiContext, call: RouteCall[NoQuery, IntrospectionRuleCreate]) -> Reply:
    """Create an introspection rule."""
    uuid = decoding.uuid("uuid", call.body.uuid) if call.body.uuid else context.process.new_uuid()
    fields = rule_schema.with_secrets_of(None, rule_schema.from_introspection(call.body))
    rule = store_new(context.data, Rule(uuid=uuid, **fields))
    status = 201 if call.minor >= _CREATED_SINCE else 200
    return Reply(status, rule_schema.introspection(rule, call.url, short=False))


def put_rule(context: ApiContext, call: RouteCall[NoQuery, IntrospectionRuleCreate]) -> Reply:
    """Create or replace the introspection rule with this UUID.

    PUT and POST are the same: openstacksdk sends one or the other, depending on its version.
    """
    uuid = rule_uuid(call)
    if call.body.uuid is not None and decoding.uuid("uuid", call.body.uuid) != uuid:
        raise BadRequestError("The uuid in the request body differs from the one in the path.")
    fields = rule_schema.from_introspection(call.body)
    replaced = context.data.store.write(lambda tx: _replace_rule(tx, uuid, fields))
    stored = replaced or store_new(context.data, Rule(uuid=uuid, **rule_schema.with_secrets_of(None, fields)))
    return Reply(201 if replaced is None else 200, rule_schema.introspection(stored, call.url, short=False))


def delete_rule(context: ApiContext, call: RouteCall[NoQuery, None]) -> Reply:
    """Delete an introspection rule."""
    uuid = _rule_ident(call)
    context.data.store.write(lambda tx: tx.rules.remove(_mine(tx, uuid).uuid))
    return Reply(204)


def delete_rules(context: ApiContext, _call: RouteCall[NoQuery, None]) -> Reply:
    """Delete all introspection rules, but none of the Bare Metal API."""
    context.data.store.write(lambda tx: tx.rules.remove_all(RuleDialect.INTROSPECTION))
    return Reply(204)


def _rule_ident(call: RouteCall[NoQuery, None]) -> str:
    try:
        return rule_uuid(call)
    except MissingError:
        raise _no_rule(call.path["rule"]) from None


def _mine(tx: Transaction, uuid: str) -> Rule:
    try:
        rule = tx.rules.get(uuid)
    except NotFoundError:
        raise _no_rule(uuid) from None
    if rule.dialect is not RuleDialect.INTROSPECTION:
        raise _no_rule(uuid)
    return rule


def _no_rule(ident: str) -> MissingError:
    """Return the error in ironic-inspector's words, which its client's tests look for."""
    return MissingError(f"Rule {ident[:255]} was not found")


def _replace_rule(tx: Transaction, uuid: str, fields: dict[str, Any]) -> Rule | None:
    """Replace an existing rule; keep the fields that this API does not have."""
    try:
        present = tx.rules.get(uuid)
    except NotFoundError:
        return None
    if present.dialect is not RuleDialect.INTROSPECTION:
        raise StateConflictError(f"Rule {uuid} belongs to the Bare Metal API; update it there.")
    rule = Rule(uuid=uuid, **rule_schema.with_secrets_of(present, fields))
    rule_schema.compile_checked(rule)
    kept = {"priority": present.priority, "sensitive": present.sensitive, "created_at": present.created_at}
    return tx.rules.update(msgspec.structs.replace(rule, **kept))
