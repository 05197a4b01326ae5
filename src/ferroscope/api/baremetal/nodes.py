"""Nodes: create, list, show, update, delete. Every write is one transaction. Source: the Bare Metal API reference."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from ferroscope import transition
from ferroscope.api.auth import access
from ferroscope.api.baremetal import drivers, node_bmc, node_filters, node_input, node_places, node_policies, quotas
from ferroscope.api.baremetal.node_fields import (
    BY_NAME,
    DEFAULT_FIELDS,
    SORT_FIELDS,
    Field,
    FieldName,
    NodeStates,
    check_known,
    chosen_fields,
    old_provision_state,
    read_for,
    render,
    reveals,
    select,
    shown_to,
)
from ferroscope.api.baremetal.node_filters import Keep, NodeListQuery
from ferroscope.api.baremetal.node_input import NodeCreate, NodeSettable
from ferroscope.api.errors import BadRequestError, ForbiddenError, NotAcceptableError, StateConflictError
from ferroscope.api.http import decoding, json_patch, paging
from ferroscope.api.http.context import ApiContext
from ferroscope.api.http.decoding import node_ident
from ferroscope.api.http.json_patch import Operation
from ferroscope.api.http.large_lists import Room
from ferroscope.api.http.paging import Page
from ferroscope.api.http.route import NoQuery, Reply, RouteCall
from ferroscope.api.http.schemas import iso
from ferroscope.contracts.errors import NotFoundError
from ferroscope.contracts.store import Query
from ferroscope.core import bmc_access
from ferroscope.core.model import Node
from ferroscope.core.node_changes import ValueSource, sourced_values, update_sources
from ferroscope.core.secrets import references
from ferroscope.db import Transaction
from ferroscope_client.core.json_safety import MAX_DEPTH
from ferroscope_client.core.states import ACTIVE, Provision

_ENROLL_SINCE = 11
_CHASSIS_REMOVED_SINCE = 25
_RAID_SINCE = 12
_BOOT_MODE_SINCE = 75


class NodeQuery(msgspec.Struct, frozen=True):
    """Query of GET /v1/nodes/{node}."""

    fields: list[FieldName] | None = None


class NodePatchQuery(msgspec.Struct, frozen=True):
    """Query of PATCH /v1/nodes/{node}."""

    reset_interfaces: bool | None = None


def list_nodes(context: ApiContext, call: RouteCall[NodeListQuery, None]) -> Reply:
    """List nodes, by default with the basic fields."""
    names = chosen_fields(call.minor, call.query.fields, call.query.detail, DEFAULT_FIELDS)
    return _list(context, call, select(call.minor, names), "nodes")


def list_nodes_detail(context: ApiContext, call: RouteCall[NodeListQuery, None]) -> Reply:
    """List nodes with all fields."""
    if call.query.fields is not None:
        raise BadRequestError("fields is not supported by /v1/nodes/detail; use /v1/nodes.")
    return _list(context, call, select(call.minor, None), "nodes/detail")


def _list(context: ApiContext, call: RouteCall[NodeListQuery, None], fields: tuple[Field, ...], path: str) -> Reply:
    asked = call.query
    node_filters.check_versions(asked, call.minor)
    check_known([asked.sort_key], call.minor)
    size = paging.page_size(asked.limit, context.settings.api.max_limit)
    query = Query(
        filters=node_filters.store_filters(asked),
        present=node_filters.present(asked),
        project=access.scope(context.access.policy, call.identity, "node"),
        marker=paging.marker(asked.marker),
        sort_key=paging.sort_field(asked.sort_key, SORT_FIELDS),
        descending=paging.descending(asked.sort_dir),
        fields=read_for(fields).union(node_filters.columns_read(asked)),
    )
    fits = node_filters.other_filters(asked, context.services.conductor_of)
    read = {*node_filters.fields_read(asked), asked.sort_key}

    def keep(node: Node) -> bool:
        return fits(node) and all(reveals(context.access.policy, call.identity, node, field) for field in read)

    def work(tx: Transaction, room: Room) -> Page:
        if asked.chassis_uuid is not None:
            tx.chassis.get(str(query.filters["chassis_uuid"]))
        return page_of(
            context, call, tx, room, query, size, lambda node: _visible_fields(context, call, node, fields), keep
        )

    page = context.data.read_list(work)
    body: dict[str, object] = {"nodes": page.items}
    if page.last is not None:
        body["next"] = paging.next_link(call.url, path, asked, size, page.last)
    return Reply(200, body)


def views(
    context: ApiContext, call: RouteCall[Any, Any], listed: Iterable[Node], names: Sequence[str]
) -> list[dict[str, Any]]:
    """Return the representations of nodes that the caller may see, with these fields."""
    fields = select(call.minor, names)
    return [_visible_fields(context, call, node, fields) for node in listed if sees(context, call, node)]


def page_of(
    context: ApiContext,
    call: RouteCall[Any, Any],
    tx: Transaction,
    room: Room,
    query: Query,
    size: int,
    show: Callable[[Node], Any],
    keep: Keep = lambda _node: True,
) -> Page:
    """Return a page of the nodes that the caller may see."""
    if query.project is None:
        return paging.page(room, tx.nodes, query, size, show, lambda batch: filter(keep, batch))
    if query.marker is not None and not sees(context, call, tx.nodes.get(query.marker)):
        raise NotFoundError("node", query.marker)

    def keep_visible(batch: Sequence[Node]) -> Iterator[Node]:
        return (node for node in batch if sees(context, call, node) and keep(node))

    return paging.page(room, tx.nodes, query, size, show, keep_visible)


def sees(context: ApiContext, call: RouteCall[Any, Any], node: Node) -> bool:
    """Return whether the caller may see the node."""
    return access.sees(context.access.policy, call.identity, node)


def _visible_fields(
    context: ApiContext, call: RouteCall[Any, Any], node: Node, fields: tuple[Field, ...]
) -> dict[str, Any]:
    shown = drivers.with_interfaces(
        context.settings, node, context.services.drivers, render(node, fields, call.minor, call.url)
    )
    if "conductor" in shown:
        shown["conductor"] = context.services.conductor_of(node)
    return shown_to(context.access.policy, call.identity, node, shown)


def get_node(context: ApiContext, call: RouteCall[NodeQuery, None]) -> Reply:
    """Show one node."""
    fields = select(call.minor, chosen_fields(call.minor, call.query.fields, None, None))
    ident = node_ident(call)
    node = context.data.store.read(lambda tx: tx.nodes.show(ident, read_for(fields)), snapshot=False)
    return Reply(200, _visible_fields(context, call, node, fields))


def get_states(context: ApiContext, call: RouteCall[NoQuery, None]) -> Reply:
    """Show the states of a node only."""
    ident = node_ident(call)
    node = context.data.store.read(lambda tx: tx.nodes.get(ident), snapshot=False)
    raid: dict[str, Any] | UnsetType = {} if call.minor >= _RAID_SINCE else UNSET
    boot = None if call.minor >= _BOOT_MODE_SINCE else UNSET
    shown = shown_to(context.access.policy, call.identity, node, {"last_error": node.last_error})
    states = NodeStates(
        console_enabled=False,
        last_error=shown["last_error"],
        power_state=node.power_state,
        provision_state=old_provision_state(node.provision_state, call.minor),
        provision_updated_at=iso(node.provision_updated_at),
        target_power_state=node.target_power_state,
        target_provision_state=node.target_provision_state,
        raid_config=raid,
        target_raid_config=raid,
        boot_mode=boot,
        secure_boot=boot,
    )
    return Reply(200, states)


def validate_node(context: ApiContext, call: RouteCall[NoQuery, None]) -> Reply:
    """Validate the node's driver_info; does not connect to the BMC."""
    ident = node_ident(call)
    node = context.data.store.read(lambda tx: tx.nodes.get(ident), snapshot=False)
    checks = drivers.interface_checks(context.settings, node, context.services.drivers)
    return Reply(200, drivers.NodeValidation(**checks))


def create_node(context: ApiContext, call: RouteCall[NoQuery, NodeCreate]) -> Reply:
    """Enroll a node."""
    body = call.body
    node_input.check_versions(node_input.PATCHABLE, body, call.minor)
    changes = _with_owner(context, call, node_input.changes(body, None, context.services.drivers))
    uuid = decoding.uuid("uuid", body.uuid) if body.uuid else context.process.new_uuid()
    state = Provision.ENROLL if call.minor >= _ENROLL_SINCE else Provision.AVAILABLE

    def work(tx: Transaction) -> Node:
        node = Node(uuid=uuid, provision_state=state, created_at=tx.now, **changes)
        node_policies.require_for_new(context.access.policy, call.identity, node, body)
        node.sources = update_sources({}, node, ValueSource.OPERATOR)
        check_references(context, call, None, node)
        _check_parent(context, call, tx, node)
        _check_chassis(tx, None, node)
        node_places.refuse_shared(context, call, tx, node)
        transition.add_node(tx, node)
        if bmc_addresses := bmc_access.literal_addresses(node.driver_info):
            tx.addresses.set_bmc(uuid, bmc_addresses)
        quotas.check(context, call, tx, node.owner)
        return node

    node = context.data.store.write(work)
    location = {"Location": f"{call.url}/v1/nodes/{uuid}"}
    return Reply(201, _visible_fields(context, call, node, select(call.minor, None)), location)


def _with_owner(context: ApiContext, call: RouteCall[NoQuery, NodeCreate], changes: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a new node; callers who may only enroll nodes of their own become its owner."""
    policy, identity = context.access.policy, call.identity
    if policy.allows("baremetal:node:create", identity):
        return changes
    project, owner = identity.project_id, changes.get("owner")
    if project is None or owner not in (None, project):
        raise access.forbidden_error(("baremetal:node:create",), identity)
    return changes | {"owner": project}


def update_node(context: ApiContext, call: RouteCall[NodePatchQuery, list[Operation]]) -> Reply:
    """Update a node by a JSON patch; possible at any time, also during an inspection."""
    if call.query.reset_interfaces is not None and call.minor < 45:
        raise NotAcceptableError("reset_interfaces requires API version 1.45.")
    ident = node_ident(call)

    def work(tx: Transaction) -> Node:
        node = tx.nodes.get(ident, lock=True)
        node_policies.require_for_change(context.access.policy, call.identity, node, call.body)
        changed = _patch_node(context, call, node)
        check_references(context, call, node, changed)
        _check_parent(context, call, tx, changed)
        _check_chassis(tx, node, changed)
        node_bmc.check_change(tx, node, changed)
        node_places.refuse_newly_shared(context, call, tx, node, changed)
        if bmc_access.moved_fields(node.driver_info, changed.driver_info):  # a worker resolves host names
            tx.addresses.set_bmc(node.uuid, bmc_access.literal_addresses(changed.driver_info))
        changed.sources = update_sources(sourced_values(node), changed, ValueSource.OPERATOR)
        written = tx.nodes.update(changed)
        quotas.check_growth(context, call, tx, written.owner, node, changed)
        return written

    return Reply(200, _visible_fields(context, call, context.data.store.write(work), select(call.minor, None)))


def _patch_node(context: ApiContext, call: RouteCall[NodePatchQuery, list[Operation]], node: Node) -> Node:
    values = json_patch.apply(node_input.settable(node), call.body, node_input.PATCHABLE, max_depth=MAX_DEPTH)
    if call.query.reset_interfaces:
        if "driver" not in values:
            raise BadRequestError("reset_interfaces requires a change of the driver in the same request.")
        values = {name: None for name in BY_NAME if name.endswith("_interface")} | values
    try:
        body = msgspec.convert({"driver": node.driver} | values, NodeSettable)
    except msgspec.ValidationError as exc:
        raise BadRequestError(f"Invalid node after the patch: {exc}. GET /openapi.json returns its schema.") from None
    check_known(json_patch.written_fields(call.body), call.minor)
    changed = msgspec.structs.replace(node, **node_input.changes(body, node, context.services.drivers))
    if node.chassis_uuid and not changed.chassis_uuid and call.minor < _CHASSIS_REMOVED_SINCE:
        raise NotAcceptableError(f"Removing chassis_uuid requires API version 1.{_CHASSIS_REMOVED_SINCE}.")
    if changed.maintenance != node.maintenance:  # the planned end of an earlier maintenance does not apply to this one
        changed.attributes = {name: value for name, value in changed.attributes.items() if name != "maintenance_until"}
    node_bmc.keep_pending(node, changed, call.body)
    node_input.check_secrets(node, changed, call.body)
    return changed


def check_references(context: ApiContext, call: RouteCall[Any, Any], before: Node | None, after: Node) -> None:
    """Check the right to set references. With a reference, a project could send any secret to a BMC of its own."""
    is_new = before is None or bmc_access.moved_from(before, after)
    if references(after.driver_info) - (set() if before is None or is_new else references(before.driver_info)):
        access.require(context.access.policy, "ferroscope:secret:reference", call.identity, access.target_of(after))


def _check_parent(context: ApiContext, call: RouteCall[Any, Any], tx: Transaction, node: Node) -> None:
    """Replace the parent's name by its UUID; it must exist and be another node."""
    parent = node.attributes.get("parent_node")
    if parent is None:
        return
    try:
        ident = decoding.ident("parent_node", parent)
        parent_node = access.see(context.access.policy, call.identity, tx.nodes.get(ident), ident)
    except NotFoundError:
        raise BadRequestError(f"Invalid parent_node: node {parent} does not exist.") from None
    if parent_node.uuid == node.uuid:
        raise BadRequestError("A node cannot be its own parent.")
    node.attributes["parent_node"] = parent_node.uuid


def _check_chassis(tx: Transaction, before: Node | None, node: Node) -> None:
    """Check that the chassis exists, and keep it until the end of the transaction."""
    uuid = node.chassis_uuid
    if uuid is None or (before is not None and before.chassis_uuid == uuid):
        return
    try:
        tx.chassis.get(uuid, lock=True)
    except NotFoundError:
        raise BadRequestError(f"Invalid chassis_uuid: Chassis {uuid} could not be found; create it first.") from None


def check_unprotected(node: Node) -> None:
    """Raise ``ForbiddenError`` if the node is protected against deletion."""
    if not node.attributes.get("protected"):
        return
    reason = node.attributes.get("protected_reason")
    raise ForbiddenError(
        f"Node {node.uuid} is protected against deletion{f' ({reason})' if reason else ''}; "
        "set protected to false first."
    )


def _check_delete(context: ApiContext, call: RouteCall[NoQuery, None], node: Node) -> None:
    needed = ("baremetal:node:delete", "baremetal:node:delete:self_owned_node")
    target = access.target_of(node)
    if not any(access.may(context.access.policy, name, call.identity, target) for name in needed):
        raise access.forbidden_error(needed, call.identity)


def delete_node(context: ApiContext, call: RouteCall[NoQuery, None]) -> Reply:
    """Delete a node with its ports, inspections and data; not while it is in use."""
    ident = node_ident(call)

    def work(tx: Transaction) -> None:
        node = tx.nodes.get(ident, lock=True)
        _check_delete(context, call, node)
        check_unprotected(node)
        node_bmc.check_unlocked(tx, node)
        if node.state in ACTIVE:
            raise StateConflictError(
                f"Node {node.uuid} is being inspected ({node.state}); abort the inspection first: "
                f'PUT /v1/nodes/{node.uuid}/states/provision with {{"target": "abort"}}.'
            )
        if node.instance_uuid is not None and not node.maintenance:
            raise StateConflictError(
                f"Node {node.uuid} is associated with instance {node.instance_uuid}; remove instance_uuid or set "
                "maintenance first."
            )
        transition.remove_node(tx, node)

    context.data.store.write(work)
    return Reply(204)
