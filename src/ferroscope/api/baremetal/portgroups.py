"""Port groups, the bonded ports of a node: create, list, show, update, delete. Nothing here interprets them.

Source: the Bare Metal API reference. A port group can be identified by its UUID or its name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from ferroscope.api.auth import access
from ferroscope.api.baremetal import ports, quotas, representation
from ferroscope.api.baremetal.node_fields import chosen_fields
from ferroscope.api.baremetal.representation import (
    ApiField,
    DetailedListQuery,
    Representation,
    links,
    stored_field,
    timestamps,
)
from ferroscope.api.errors import BadRequestError
from ferroscope.api.http import decoding, paging
from ferroscope.api.http.context import ApiContext
from ferroscope.api.http.json_patch import Operation
from ferroscope.api.http.large_lists import Room
from ferroscope.api.http.route import NoQuery, Reply, RouteCall
from ferroscope.api.http.schemas import Mac, Uuid
from ferroscope.contracts.errors import NotFoundError
from ferroscope.contracts.store import Query
from ferroscope.core.model import Document, Node, Portgroup
from ferroscope.db import Transaction
from ferroscope_client.core.json_safety import ready

SINCE_MINOR: Final = 23
_SHARD_SINCE: Final = 106
SHOWN: Final = Representation[Portgroup](
    "port group",
    "portgroups",
    (
        stored_field("uuid", str, sorts=True),
        stored_field("address", str | None, sorts=True),
        stored_field("name", str | None, sorts=True),
        ApiField("node_uuid", SINCE_MINOR, str, lambda group, _url: group.node),
        stored_field("mode", str, since=26, sorts=True),
        stored_field("properties", Document, since=26),
        stored_field("standalone_ports_supported", bool, sorts=True),
        stored_field("physical_network", str | None, since=102),
        stored_field("category", str | None, since=103),
        ApiField("dynamic_portgroup", 111, bool, lambda _group, _url: False),  # only callers create port groups
        stored_field("extra", Document),
        ApiField("internal_info", SINCE_MINOR, Document, lambda group, _url: group.internal),
        links("portgroups"),
        links("portgroups", of="ports"),
        *timestamps(),
    ),
    default=("uuid", "address", "name"),
)
PortgroupFieldName = SHOWN.names()
PortgroupView = SHOWN.view("PortgroupView")
PortgroupList = SHOWN.page("PortgroupList", PortgroupView)


class PortgroupPage(DetailedListQuery, frozen=True, kw_only=True):
    """Query of GET /v1/portgroups/detail and of GET /v1/nodes/{node}/portgroups/detail."""

    address: Mac | None = None
    node: str | None = None
    shard: list[str] | None = None
    sort_key: SHOWN.sort_keys() = "id"  # type: ignore[valid-type]  # made from the table above


class PortgroupListQuery(PortgroupPage, frozen=True, kw_only=True):
    """Query of GET /v1/portgroups and of GET /v1/nodes/{node}/portgroups."""

    detail: bool | None = None
    fields: list[PortgroupFieldName] | None = None  # type: ignore[valid-type]


class PortgroupQuery(msgspec.Struct, frozen=True):
    """Query of GET /v1/portgroups/{portgroup}."""

    fields: list[PortgroupFieldName] | None = None  # type: ignore[valid-type]


class PortgroupSettable(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The settable fields of a port group."""

    node_uuid: Uuid
    address: Mac | None = None
    category: Annotated[str, Meta(max_length=80)] | None = None
    extra: Document | None = None
    mode: Annotated[str, Meta(max_length=255)] | None = None
    name: Annotated[str, Meta(max_length=255)] | None = None
    physical_network: Annotated[str, Meta(min_length=1, max_length=64)] | None = None
    properties: Document | None = None
    standalone_ports_supported: bool | str | None = None


class PortgroupCreate(PortgroupSettable, kw_only=True, forbid_unknown_fields=True):
    """POST /v1/portgroups."""

    uuid: Uuid | None = None


ready(PortgroupSettable)


def list_portgroups(context: ApiContext, call: RouteCall[PortgroupListQuery, None]) -> Reply:
    """List port groups, by default with UUID, address and name."""
    return _list(context, call, _listed_fields(call), "portgroups", call.query.node)


def list_portgroups_detail(context: ApiContext, call: RouteCall[PortgroupPage, None]) -> Reply:
    """List port groups with all fields."""
    return _list(context, call, SHOWN.select(call.minor), "portgroups/detail", call.query.node)


def list_node_portgroups(context: ApiContext, call: RouteCall[PortgroupListQuery, None]) -> Reply:
    """List the port groups of a node."""
    return _list(context, call, _listed_fields(call), f"nodes/{call.path['node']}/portgroups", call.path["node"])


def list_node_portgroups_detail(context: ApiContext, call: RouteCall[PortgroupPage, None]) -> Reply:
    """List the port groups of a node with all fields."""
    return _list(
        context, call, SHOWN.select(call.minor), f"nodes/{call.path['node']}/portgroups/detail", call.path["node"]
    )


def _listed_fields(call: RouteCall[PortgroupListQuery, None]) -> tuple[ApiField[Portgroup], ...]:
    return SHOWN.select_listed(call.minor, call.query.fields, call.query.detail)


def _list(
    context: ApiContext,
    call: RouteCall[Any, None],
    fields: tuple[ApiField[Portgroup], ...],
    path: str,
    node: str | None,
) -> Reply:
    asked = call.query
    SHOWN.check(call.minor, [asked.sort_key])
    if sum(filter_value is not None for filter_value in (node, asked.address, asked.shard)) > 1:
        raise BadRequestError("Filtering by node, address or shard simultaneously is not supported.")
    ports.check_shard(asked.shard, call.minor, _SHARD_SINCE)
    size = paging.page_size(asked.limit, context.settings.api.max_limit)
    project = access.scope(context.access.policy, call.identity, "portgroup")
    query = Query(
        filters={} if asked.address is None else {"address": decoding.mac("address", asked.address)},
        project=project,
        marker=paging.marker(asked.marker),
        sort_key=paging.sort_field(asked.sort_key, SHOWN.sort_fields),
        descending=paging.descending(asked.sort_dir),
    )
    of_node = None if node is None else decoding.named_node(call, node)

    def show(group: Portgroup) -> dict[str, Any]:
        return SHOWN.render(group, fields, call.url)

    def work(tx: Transaction, room: Room) -> paging.Page:
        narrowed = query
        if of_node is not None:
            node = access.see(context.access.policy, call.identity, tx.nodes.get(of_node), of_node)
            narrowed = msgspec.structs.replace(query, filters={**query.filters, "node": node.uuid})
        if project is None and asked.shard is None:
            return paging.page(room, tx.portgroups, narrowed, size, show)
        if query.marker is not None and not ports.visible_ports(
            context, call, tx, room, [tx.portgroups.get(query.marker)]
        ):
            raise NotFoundError("portgroup", query.marker)

        def keep_visible(batch: Sequence[Portgroup]) -> Sequence[Portgroup]:
            return ports.visible_ports(context, call, tx, room, batch, shards=asked.shard)

        return paging.page(room, tx.portgroups, narrowed, size, show, keep_visible)

    return SHOWN.reply(call, path, context.data.read_list(work), size)


def get_portgroup(context: ApiContext, call: RouteCall[PortgroupQuery, None]) -> Reply:
    """Show one port group."""
    fields = SHOWN.select(call.minor, chosen_fields(call.minor, call.query.fields, None, None))
    ident = _ident(call)
    group = context.data.store.read(lambda tx: tx.portgroups.get(ident), snapshot=False)
    return Reply(200, SHOWN.render(group, fields, call.url))


def create_portgroup(context: ApiContext, call: RouteCall[NoQuery, PortgroupCreate]) -> Reply:
    """Create a port group on a node."""
    body = call.body
    names = [name for name in PortgroupSettable.__struct_fields__ if getattr(body, name) is not None]
    SHOWN.check(call.minor, names)
    uuid = decoding.uuid("uuid", body.uuid) if body.uuid else context.process.new_uuid()
    changes = _changes(body, names)

    def work(tx: Transaction) -> Portgroup:
        node = _node(context, call, tx, body.node_uuid)
        access.require(context.access.policy, "baremetal:portgroup:create", call.identity, access.target_of(node))
        group = Portgroup(uuid=uuid, node=node.uuid, created_at=tx.now, **changes)
        tx.portgroups.add(group)
        quotas.check(context, call, tx, node.owner)
        return group

    shown = SHOWN.render(context.data.store.write(work), SHOWN.select(call.minor), call.url)
    return Reply(201, shown, {"Location": f"{call.url}/v1/portgroups/{uuid}"})


def update_portgroup(context: ApiContext, call: RouteCall[NoQuery, list[Operation]]) -> Reply:
    """Update a port group by a JSON patch."""
    ident = _ident(call)

    def work(tx: Transaction) -> Portgroup:
        node = tx.nodes.get(tx.portgroups.get(ident).node, lock=True)
        group = tx.portgroups.get(ident)
        values, body = representation.patch_record(group, call.body, PortgroupSettable)
        SHOWN.check(call.minor, list(values))
        if body.mode is None:
            raise BadRequestError("mode is a mandatory attribute and cannot be removed.")
        changed = msgspec.structs.replace(group, **_changes(body, list(values)))
        if body.node_uuid != node.uuid:
            changed.node = _move_to_node(context, call, tx, group, body.node_uuid)
        if "physical_network" in values:
            access.require(context.access.policy, "baremetal:port:update", call.identity, access.target_of(node))
            for port in tx.ports.list(Query(filters={"portgroup": group.uuid})):
                tx.ports.update(msgspec.structs.replace(port, physical_network=changed.physical_network))
        written = tx.portgroups.update(changed)
        quotas.check_growth(context, call, tx, node.owner, group, changed)
        return written

    return Reply(200, SHOWN.render(context.data.store.write(work), SHOWN.select(call.minor), call.url))


def delete_portgroup(context: ApiContext, call: RouteCall[NoQuery, None]) -> Reply:
    """Delete a port group that has no ports."""
    ident = _ident(call)

    def work(tx: Transaction) -> None:
        group = tx.portgroups.get(ident)
        tx.nodes.get(group.node, lock=True)
        _check_empty(tx, group)
        tx.portgroups.remove(group.uuid)

    context.data.store.write(work)
    return Reply(204)


def list_ports(context: ApiContext, call: RouteCall[ports.PortListQuery, None]) -> Reply:
    """List the ports of a port group."""
    return ports.list_ports(context, _of_group(call))


def list_ports_detail(context: ApiContext, call: RouteCall[ports.PortListQuery, None]) -> Reply:
    """List the ports of a port group with all fields."""
    return ports.list_ports_detail(context, _of_group(call))


def _of_group(call: RouteCall[ports.PortListQuery, None]) -> RouteCall[ports.PortListQuery, None]:
    return msgspec.structs.replace(call, query=msgspec.structs.replace(call.query, portgroup=_ident(call)))


def _ident(call: RouteCall[Any, Any]) -> str:
    return decoding.ident("portgroup", call.path["portgroup"])


def _node(context: ApiContext, call: RouteCall[Any, Any], tx: Transaction, ident: str) -> Node:
    """Return the node of the body, locked."""
    uuid = decoding.uuid("node_uuid", ident)
    try:
        return access.see(context.access.policy, call.identity, tx.nodes.get(uuid, lock=True), uuid)
    except NotFoundError:
        raise BadRequestError(f"Node {uuid} could not be found; enroll it first.") from None


def _move_to_node(context: ApiContext, call: RouteCall[Any, Any], tx: Transaction, group: Portgroup, ident: str) -> str:
    node = _node(context, call, tx, ident)
    access.require(context.access.policy, "baremetal:portgroup:update", call.identity, access.target_of(node))
    _check_empty(tx, group)
    return node.uuid


def _check_empty(tx: Transaction, group: Portgroup) -> None:
    if tx.ports.list(Query(filters={"portgroup": group.uuid}, limit=1)):
        raise BadRequestError(
            f"Cannot complete the requested action because portgroup {group.uuid} contains ports; remove "
            "portgroup_uuid from them first."
        )


def _changes(body: PortgroupSettable, names: list[str]) -> dict[str, Any]:
    """Return the fields of ``Portgroup`` that these fields of ``body`` set, except its node."""
    changed = {name: getattr(body, name) for name in names if name != "node_uuid"}
    for name in changed.keys() & {"extra", "properties"}:
        changed[name] = changed[name] or {}
    if changed.get("address") is not None:
        changed["address"] = decoding.mac("address", changed["address"])
    if changed.get("name") is not None:
        changed["name"] = decoding.name("name", changed["name"])
    if "standalone_ports_supported" in changed:
        standalone = changed["standalone_ports_supported"]
        changed["standalone_ports_supported"] = (
            True if standalone is None else decoding.boolean("standalone_ports_supported", standalone)
        )
    return changed
