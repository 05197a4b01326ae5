"""The nodes themselves: enrol, list, show, change, delete.

Every write is one transaction. Source: the Bare Metal API reference.
"""

from __future__ import annotations

import msgspec

from ferroscope.api import node_filters, node_input, paging, patch, scalars
from ferroscope.api.call import Call, NoQuery, Reply
from ferroscope.api.context import ApiContext
from ferroscope.api.errors import BadRequestError, ForbiddenError, NotAcceptableError, StateConflictError
from ferroscope.api.idents import node_ident
from ferroscope.api.node_fields import BY_NAME, SORT_FIELDS, Field, FieldName
from ferroscope.api.node_filters import NodeListQuery
from ferroscope.api.node_input import NodeCreate, NodeSettable
from ferroscope.api.node_view import DEFAULT_FIELDS, check_known, chosen_fields, render, select
from ferroscope.api.patch import Operation
from ferroscope.contracts.errors import NotFoundError
from ferroscope.contracts.store import Query, Transaction
from ferroscope.core import bmc_access
from ferroscope.core.model import Node
from ferroscope.core.states import ACTIVE, Provision

_ENROLL_SINCE = 11


class NodeQuery(msgspec.Struct, frozen=True):
    """Query of GET /v1/nodes/{node}."""

    fields: list[FieldName] | None = None


class NodePatchQuery(msgspec.Struct, frozen=True):
    """Query of PATCH /v1/nodes/{node}."""

    reset_interfaces: bool | None = None


def list_nodes(context: ApiContext, call: Call[NodeListQuery, None]) -> Reply:
    """List nodes, with the basic fields unless others are asked for."""
    names = chosen_fields(call.minor, call.query.fields, call.query.detail, DEFAULT_FIELDS)
    return _list(context, call, select(call.minor, names), "nodes")


def list_nodes_detail(context: ApiContext, call: Call[NodeListQuery, None]) -> Reply:
    """List nodes with all fields."""
    if call.query.fields is not None:
        raise BadRequestError("fields cannot be chosen for /v1/nodes/detail; use /v1/nodes.")
    return _list(context, call, select(call.minor, None), "nodes/detail")


def _list(context: ApiContext, call: Call[NodeListQuery, None], fields: tuple[Field, ...], path: str) -> Reply:
    asked = call.query
    node_filters.check_versions(asked, call.minor)
    check_known([asked.sort_key], call.minor)
    size = paging.page_size(asked.limit, context.settings.api.max_limit)
    query = Query(
        filters=node_filters.stored(asked),
        marker=paging.marker(asked.marker),
        sort_key=paging.sort_field(asked.sort_key, SORT_FIELDS),
        descending=paging.descending(asked.sort_dir),
    )
    keep = node_filters.kept(asked)
    nodes, more = context.store.read(lambda tx: paging.read(tx.nodes.list, query, size, keep))
    body: dict[str, object] = {"nodes": [render(node, fields, call.minor, call.url) for node in nodes]}
    if more:
        body["next"] = paging.next_link(call.url, path, asked, size, nodes[-1].uuid)
    return Reply(200, body)


def get_node(context: ApiContext, call: Call[NodeQuery, None]) -> Reply:
    """Show one node."""
    fields = select(call.minor, chosen_fields(call.minor, call.query.fields, None, None))
    ident = node_ident(call)
    node = context.store.read(lambda tx: tx.nodes.get(ident))
    return Reply(200, render(node, fields, call.minor, call.url))


def create_node(context: ApiContext, call: Call[NoQuery, NodeCreate]) -> Reply:
    """Enrol a node."""
    body = call.body
    node_input.check_versions(node_input.PATCHABLE, body, call.minor)
    changes = node_input.changes(body, None, context.drivers)
    uuid = scalars.uuid("uuid", body.uuid) if body.uuid else context.new_uuid()
    state = Provision.ENROLL if call.minor >= _ENROLL_SINCE else Provision.AVAILABLE

    def work(tx: Transaction) -> Node:
        node = Node(uuid=uuid, provision_state=state, created_at=tx.now, **changes)
        _check_parent(tx, node)
        tx.nodes.add(node)
        if known := bmc_access.literal(node.driver_info):
            tx.addresses.set_bmc(uuid, known)
        return node

    node = context.store.write(work)
    location = {"Location": f"{call.url}/v1/nodes/{uuid}"}
    return Reply(201, render(node, select(call.minor, None), call.minor, call.url), location)


def update_node(context: ApiContext, call: Call[NodePatchQuery, list[Operation]]) -> Reply:
    """Change a node by a JSON patch; possible at any time, an inspection under way included."""
    if call.query.reset_interfaces is not None and call.minor < 45:
        raise NotAcceptableError("reset_interfaces needs API version 1.45.")
    ident = node_ident(call)

    def work(tx: Transaction) -> Node:
        node = tx.nodes.get(ident, lock=True)
        changed = _patched(context, call, node)
        _check_parent(tx, changed)
        if bmc_access.moved(node.driver_info, changed.driver_info):  # what names mean, a worker finds out
            tx.addresses.set_bmc(node.uuid, bmc_access.literal(changed.driver_info))
        return tx.nodes.update(changed)

    return Reply(200, render(context.store.write(work), select(call.minor, None), call.minor, call.url))


def _patched(context: ApiContext, call: Call[NodePatchQuery, list[Operation]], node: Node) -> Node:
    max_depth = context.settings.api.max_json_depth
    values = patch.apply(node_input.settable(node), call.body, node_input.PATCHABLE, max_depth=max_depth)
    if call.query.reset_interfaces:
        if "driver" not in values:
            raise BadRequestError("reset_interfaces is only possible together with a new driver.")
        values = {name: None for name in BY_NAME if name.endswith("_interface")} | values
    try:
        body = msgspec.convert({"driver": node.driver} | values, NodeSettable)
    except msgspec.ValidationError as exc:
        raise BadRequestError(f"The patched node does not fit: {exc}. GET /openapi.json has its schema.") from None
    node_input.check_versions(list(values), body, call.minor)
    changed = msgspec.structs.replace(node, **node_input.changes(body, node, context.drivers))
    node_input.check_secrets(node, changed, call.body)
    return changed


def _check_parent(tx: Transaction, node: Node) -> None:
    """Store the parent by its UUID; it must exist and be another node."""
    parent = node.attributes.get("parent_node")
    if parent is None:
        return
    try:
        found = tx.nodes.get(scalars.ident("parent_node", parent)).uuid
    except NotFoundError:
        raise BadRequestError(f"parent_node {parent} does not exist.") from None
    if found == node.uuid:
        raise BadRequestError("A node cannot be its own parent.")
    node.attributes["parent_node"] = found


def check_unprotected(node: Node) -> None:
    """Raise ``ForbiddenError`` where the node is protected from being deleted."""
    if not node.attributes.get("protected"):
        return
    reason = node.attributes.get("protected_reason")
    raise ForbiddenError(
        f"Node {node.uuid} is protected from being deleted{f' ({reason})' if reason else ''}; "
        "set protected to false first."
    )


def delete_node(context: ApiContext, call: Call[NoQuery, None]) -> Reply:
    """Delete a node with its ports, inspections and data, unless it is in use."""
    ident = node_ident(call)

    def work(tx: Transaction) -> None:
        node = tx.nodes.get(ident, lock=True)
        check_unprotected(node)
        if node.state in ACTIVE:
            raise StateConflictError(
                f"Node {node.uuid} is being inspected ({node.state}); abort the inspection first: "
                f'PUT /v1/nodes/{node.uuid}/states/provision with {{"target": "abort"}}.'
            )
        if node.instance_uuid is not None and not node.maintenance:
            raise StateConflictError(
                f"Node {node.uuid} belongs to the instance {node.instance_uuid}; remove instance_uuid, "
                "or set the node to maintenance first."
            )
        tx.nodes.remove(node.uuid)

    context.store.write(work)
    return Reply(204)
