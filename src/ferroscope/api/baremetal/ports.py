"""Ports, the NICs of nodes: create, list, show, update, delete.

Source: the Bare Metal API reference. A port can be identified by its UUID, its name or its MAC address.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final, TypeVar

import msgspec
from msgspec import UNSET

from ferroscope import transition
from ferroscope.api.auth import access
from ferroscope.api.baremetal import port_fields, quotas
from ferroscope.api.baremetal.node_fields import chosen_fields
from ferroscope.api.baremetal.port_fields import (
    DEFAULT_FIELDS,
    SORT_FIELDS,
    PortCreate,
    PortField,
    PortFieldName,
    PortSettable,
    PortSortKey,
    check_known,
    render,
    select,
)
from ferroscope.api.errors import BadRequestError, MissingError, NotAcceptableError, StateConflictError
from ferroscope.api.http import decoding, json_patch, paging
from ferroscope.api.http.context import ApiContext, ProcessContext
from ferroscope.api.http.decoding import named_node
from ferroscope.api.http.json_patch import Operation
from ferroscope.api.http.large_lists import Room
from ferroscope.api.http.paging import Page
from ferroscope.api.http.route import NoQuery, Reply, RouteCall
from ferroscope.api.http.schemas import Limit, Mac, SortDir, Uuid
from ferroscope.config.options import Settings
from ferroscope.contracts.errors import NotFoundError
from ferroscope.contracts.store import Query
from ferroscope.core.model import Node, Port, Portgroup, Severity
from ferroscope.db import Transaction
from ferroscope_client.core.json_safety import MAX_DEPTH
from ferroscope_client.core.mac_addresses import normalized_mac
from ferroscope_client.core.values import is_uuid

_NAMES_SINCE: Final = 88
_GROUP_NETWORK_SINCE: Final = 102


class PortQuery(msgspec.Struct, frozen=True):
    """Query of GET /v1/ports/{port}."""

    fields: list[PortFieldName] | None = None


class PortListQuery(msgspec.Struct, frozen=True):
    """Query of GET /v1/ports and of GET /v1/nodes/{node}/ports."""

    address: Mac | None = None
    conductor_groups: list[str] | None = None
    description_contains: str | None = None
    detail: bool | None = None
    fields: list[PortFieldName] | None = None
    limit: Limit | None = None
    marker: Uuid | None = None
    node: str | None = None
    node_uuid: Uuid | None = None
    portgroup: str | None = None
    shard: list[str] | None = None
    sort_dir: SortDir = "asc"
    sort_key: PortSortKey = "id"


def list_ports(context: ApiContext, call: RouteCall[PortListQuery, None]) -> Reply:
    """List ports, by default with UUID and address."""
    fields = select(call.minor, chosen_fields(call.minor, call.query.fields, call.query.detail, DEFAULT_FIELDS))
    return _list(context, call, fields, "ports")


def list_ports_detail(context: ApiContext, call: RouteCall[PortListQuery, None]) -> Reply:
    """List ports with all fields."""
    return _list(context, call, select(call.minor, None), "ports/detail")


def list_node_ports(context: ApiContext, call: RouteCall[PortListQuery, None]) -> Reply:
    """List the ports of one node."""
    fields = select(call.minor, chosen_fields(call.minor, call.query.fields, call.query.detail, DEFAULT_FIELDS))
    return _list(context, call, fields, f"nodes/{call.path['node']}/ports", node=call.path["node"])


def list_node_ports_detail(context: ApiContext, call: RouteCall[PortListQuery, None]) -> Reply:
    """List the ports of one node with all fields."""
    return _list(
        context, call, select(call.minor, None), f"nodes/{call.path['node']}/ports/detail", node=call.path["node"]
    )


def _list(
    context: ApiContext,
    call: RouteCall[PortListQuery, None],
    fields: tuple[PortField, ...],
    path: str,
    node: str | None = None,
) -> Reply:
    asked = call.query
    _check_filters(asked, call.minor, node)
    group = None if asked.portgroup is None else decoding.ident("portgroup", asked.portgroup)
    node = node or asked.node_uuid or asked.node
    owner = named_node(call, node) if node is not None else None
    size = paging.page_size(asked.limit, context.settings.api.max_limit)
    query = Query(
        filters={"address": decoding.mac("address", asked.address)} if asked.address is not None else {},
        project=access.scope(context.access.policy, call.identity, "port"),
        marker=paging.marker(asked.marker),
        sort_key=paging.sort_field(asked.sort_key, SORT_FIELDS),
        descending=paging.descending(asked.sort_dir),
    )

    def work(tx: Transaction, room: Room) -> Page:
        narrowed = query
        if owner is not None:
            of_node = access.see(context.access.policy, call.identity, tx.nodes.get(owner), owner)
            narrowed = msgspec.structs.replace(query, filters={**query.filters, "node": of_node.uuid})
        if group is not None:
            of_group = tx.portgroups.get(group)
            access.see(context.access.policy, call.identity, tx.nodes.get(of_group.node), of_group.node)
            narrowed = msgspec.structs.replace(narrowed, filters={**narrowed.filters, "portgroup": of_group.uuid})
        limited = query.project is not None or asked.shard is not None
        if (
            limited
            and query.marker is not None
            and not visible_ports(context, call, tx, room, [tx.ports.get(query.marker)])
        ):
            raise NotFoundError("port", query.marker)

        def keep_matching(batch: Sequence[Port]) -> Sequence[Port]:
            ports = visible_ports(context, call, tx, room, batch, shards=asked.shard) if limited else batch
            return _matching(tx, room, asked, ports)

        return paging.page(room, tx.ports, narrowed, size, lambda port: render(port, fields, call.url), keep_matching)

    page = context.data.read_list(work)
    body: dict[str, object] = {"ports": page.items}
    if page.last is not None:
        body["next"] = paging.next_link(call.url, path, asked, size, page.last)
    return Reply(200, body)


def _check_filters(asked: PortListQuery, minor: int, node: str | None) -> None:
    if node is not None and (asked.node or asked.node_uuid):
        raise BadRequestError("node and node_uuid are not supported here: the path contains the node.")
    check_known([asked.sort_key], minor)
    check_shard(asked.shard, minor)
    if asked.portgroup is not None:
        check_known(["portgroup_uuid"], minor)
    narrows = node or asked.node or asked.node_uuid or asked.portgroup or asked.address
    if asked.conductor_groups is not None and narrows:
        raise BadRequestError(
            "Filtering by conductor_groups cannot be combined with node_ident, portgroup_ident, or node address "
            "filters."
        )


def _matching(tx: Transaction, room: Room, asked: PortListQuery, ports: Sequence[Port]) -> Sequence[Port]:
    """Return the ports that match the filters which the store does not apply."""
    if asked.description_contains is not None:
        wanted = asked.description_contains.lower()
        ports = [port for port in ports if wanted in str(port.attributes.get("description") or "").lower()]
    if asked.conductor_groups is not None and ports:
        groups = {name.lower() for name in asked.conductor_groups}
        nodes = paging.of_uuids(room, tx.nodes, (port.node for port in ports))
        chosen = {node.uuid for node in nodes if node.conductor_group in groups}
        ports = [port for port in ports if port.node in chosen]
    return ports


def check_shard(shards: Collection[str] | None, minor: int, since: int = 82) -> None:
    """Raise 406 for a filter by shard that is newer than the microversion."""
    if shards is not None and minor < since:
        raise NotAcceptableError(f"The parameter shard requires API version 1.{since}.")


P = TypeVar("P", Port, Portgroup)


def visible_ports(
    context: ApiContext,
    call: RouteCall[Any, Any],
    tx: Transaction,
    room: Room,
    ports: Sequence[P],
    *,
    shards: Collection[str] | None = None,
) -> Sequence[P]:
    """Return the ports, or port groups, of those nodes that the caller may see and that are in one of ``shards``."""
    visible_nodes = {
        node.uuid
        for node in paging.of_uuids(room, tx.nodes, (port.node for port in ports))
        if access.sees(context.access.policy, call.identity, node)
        and (shards is None or node.attributes.get("shard") in shards)
    }
    return [port for port in ports if port.node in visible_nodes]


def get_port(context: ApiContext, call: RouteCall[PortQuery, None]) -> Reply:
    """Show one port."""
    fields = select(call.minor, chosen_fields(call.minor, call.query.fields, None, None))
    port = context.data.store.read(lambda tx: _find(tx, call))
    return Reply(200, render(port, fields, call.url))


def create_port(context: ApiContext, call: RouteCall[NoQuery, PortCreate]) -> Reply:
    """Create a port on a node."""
    body = call.body
    port_fields.check_versions(port_fields.PATCHABLE, body, call.minor)
    changes = port_fields.changes(body, None)
    _check_identifies(context.settings, changes["address"])
    uuid = decoding.uuid("uuid", body.uuid) if body.uuid else context.process.new_uuid()

    def work(tx: Transaction) -> Port:
        node = _node_of(context, call, tx, body)
        access.require(context.access.policy, "baremetal:port:create", call.identity, access.target_of(node))
        port = Port(uuid=uuid, node=node.uuid, created_at=tx.now, **changes)
        _check_group(tx, port, pxe=body.pxe_enabled is not UNSET and port.pxe_enabled)
        _take_from_inbox(context.process, tx, port)
        tx.ports.add([port])
        quotas.check(context, call, tx, node.owner)
        return port

    port = context.data.store.write(work)
    return Reply(201, render(port, select(call.minor, None), call.url), {"Location": f"{call.url}/v1/ports/{uuid}"})


def update_port(context: ApiContext, call: RouteCall[NoQuery, list[Operation]]) -> Reply:
    """Update a port by a JSON patch."""

    def work(tx: Transaction) -> Port:
        port = _find(tx, call)
        values = json_patch.apply(port_fields.settable(port), call.body, port_fields.PATCHABLE, max_depth=MAX_DEPTH)
        try:
            body = msgspec.convert({"address": port.address} | values, PortSettable)
        except msgspec.ValidationError as exc:
            message = f"Invalid port after the patch: {exc}. GET /openapi.json returns its schema."
            raise BadRequestError(message) from None
        port_fields.check_versions(json_patch.written_fields(call.body), body, call.minor)
        changed = msgspec.structs.replace(port, **port_fields.changes(body, port))
        if changed.address != port.address:
            _check_identifies(context.settings, changed.address)
        if "node_uuid" in values or "node_ident" in values:
            node = _node_of(context, call, tx, body)
            access.require(context.access.policy, "baremetal:port:update", call.identity, access.target_of(node))
            changed.node = node.uuid
        if (changed.node, changed.portgroup, changed.physical_network) != (
            port.node,
            port.portgroup,
            port.physical_network,
        ):
            tx.nodes.get(changed.node, lock=True)
            if port.portgroup and "physical_network" in values and call.minor >= _GROUP_NETWORK_SINCE:
                raise BadRequestError(
                    "physical_network cannot be changed while the port belongs to a portgroup; change the portgroup's."
                )
            _check_group(tx, changed)
        written = tx.ports.update(changed)
        quotas.check_growth(context, call, tx, tx.nodes.get(written.node).owner, port, changed)
        return written

    return Reply(200, render(context.data.store.write(work), select(call.minor, None), call.url))


def delete_port(context: ApiContext, call: RouteCall[NoQuery, None]) -> Reply:
    """Delete a port."""
    context.data.store.write(lambda tx: tx.ports.remove([_find(tx, call).uuid]))
    return Reply(204)


def _check_identifies(settings: Settings, address: str) -> None:
    if address in settings.inspector.ignored:
        raise BadRequestError(
            f"{address} cannot be a port: it matches [inspector] ignored_macs, because several machines have it. "
            "Create a port for another NIC."
        )


def _take_from_inbox(process: ProcessContext, tx: Transaction, port: Port) -> None:
    """Remove the MAC address from a node in the inbox: an operator's port has priority over an unapproved claim."""
    for claimed in tx.ports.list(Query(filters={"address": port.address})):
        owner = tx.nodes.get(claimed.node, lock=True)
        if not owner.inbox or owner.uuid == port.node:
            continue
        tx.ports.remove([claimed.uuid])
        message = f"{port.address} was enrolled as a port of node {port.node} and removed from this node in the inbox"
        entry = transition.step(
            owner,
            "port taken",
            message,
            process=process.name,
            severity=Severity.WARNING,
            reason="port-conflict",
        )
        tx.journal.append([entry])


def _node_of(context: ApiContext, call: RouteCall[Any, Any], tx: Transaction, body: PortSettable) -> Node:
    idents = [ident for ident in (body.node_uuid, body.node_ident) if isinstance(ident, str)]
    if len(idents) != 1:
        raise BadRequestError("The port has no node: set either node_uuid or node_ident.")
    ident = decoding.ident("node", idents[0]) if body.node_ident else decoding.uuid("node_uuid", idents[0])
    try:
        # Lock the node, so that it cannot be deleted concurrently.
        return access.see(context.access.policy, call.identity, tx.nodes.get(ident, lock=True), ident)
    except NotFoundError:
        raise BadRequestError(f"Node {ident} does not exist; enroll it first.") from None


def _check_group(tx: Transaction, port: Port, *, pxe: bool = False) -> None:
    """The port group must belong to the port's node, and all of its ports to one physical network.

    The node is locked, so that the group cannot be deleted concurrently. ``pxe``: the caller enables PXE.
    """
    if port.portgroup is None:
        return
    try:
        group = tx.portgroups.get(port.portgroup)
    except NotFoundError:
        raise BadRequestError(
            f"Invalid portgroup_uuid: Portgroup {port.portgroup} could not be found; create it first."
        ) from None
    if group.node != port.node:
        raise BadRequestError(f"Port cannot be added to portgroup {group.uuid}, which belongs to a different node.")
    if pxe and not group.standalone_ports_supported:
        raise StateConflictError(
            f"Port group {group.uuid} does not support standalone ports, so pxe_enabled must be false."
        )
    members = [member for member in tx.ports.list(Query(filters={"portgroup": group.uuid})) if member.uuid != port.uuid]
    networks = {member.physical_network for member in members} - {port.physical_network}
    if group.physical_network is None and port.physical_network is not None and not networks:
        tx.portgroups.update(msgspec.structs.replace(group, physical_network=port.physical_network))
    if networks:
        raise StateConflictError(
            f"Port {port.uuid} cannot have physical network {port.physical_network!r}: other ports of portgroup "
            f"{group.uuid} have {', '.join(sorted(map(repr, networks)))}."
        )


def _find(tx: Transaction, call: RouteCall[Any, Any]) -> Port:
    ident = call.path["port"]
    address = normalized_mac(ident)
    if address is not None:
        return tx.ports.get(address)
    if is_uuid(ident):
        return tx.ports.get(decoding.uuid("port", ident))
    if call.minor < _NAMES_SINCE:
        raise MissingError(f"Port {ident} could not be found; before version 1.{_NAMES_SINCE}, use the port's UUID.")
    named = tx.ports.list(Query(filters={"name": ident}, limit=1))
    if not named:
        raise MissingError(f"Port {ident} could not be found.")
    return named[0]
