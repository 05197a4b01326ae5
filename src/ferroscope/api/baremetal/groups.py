"""Groups of nodes: chassis, whose meaning is their users' own, shards, and the children of a node.

Source: the Bare Metal API reference.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from ferroscope.api.auth import access
from ferroscope.api.baremetal import nodes, representation
from ferroscope.api.baremetal.node_fields import chosen_fields
from ferroscope.api.baremetal.node_filters import NodeListQuery
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
from ferroscope.api.http.decoding import node_ident
from ferroscope.api.http.json_patch import Operation
from ferroscope.api.http.large_lists import Room
from ferroscope.api.http.route import NoQuery, Reply, RouteCall
from ferroscope.api.http.schemas import ApiLink, Uuid
from ferroscope.contracts.store import Query
from ferroscope.core.model import Chassis, Document
from ferroscope.db import Transaction
from ferroscope_client.core.json_safety import ready


class ShardCount(msgspec.Struct, frozen=True):
    """A shard and the number of its nodes; ``None`` is the name for nodes without one."""

    name: str
    count: int


class ShardList(msgspec.Struct, frozen=True):
    """GET /v1/shards: the largest shard first."""

    shards: list[ShardCount]


class Children(msgspec.Struct, frozen=True):
    """GET /v1/nodes/{node}/children: UUIDs, and the link to the list of nodes."""

    children: list[str]
    links: ApiLink


def list_shards(context: ApiContext, _call: RouteCall[NoQuery, None]) -> Reply:
    """List the shards of all nodes."""
    counts = context.data.store.read(lambda tx: tx.statistics.shards())
    shards = [ShardCount(name=str(name), count=count) for name, count in counts.items()]
    return Reply(200, ShardList(shards=sorted(shards, key=lambda shard: (-shard.count, shard.name))))


def list_children(context: ApiContext, call: RouteCall[NoQuery, None]) -> Reply:
    """List the nodes whose parent is this node."""
    ident = node_ident(call)

    def work(tx: Transaction, room: Room) -> tuple[str, list[str]]:
        parent = tx.nodes.get(ident)
        query = Query(
            project=access.scope(context.access.policy, call.identity, "node"), attributes={"parent_node": parent.uuid}
        )
        listed = (node for batch in paging.groups(room, tx.nodes, query) for node in batch)
        mine = (node for node in listed if node.attributes.get("parent_node") == parent.uuid)
        return parent.uuid, [node.uuid for node in mine if nodes.sees(context, call, node)]

    parent, children = context.data.read_list(work)
    link = ApiLink(href=f"{call.url}/v1/nodes?parent_node={parent}", rel="children")
    return Reply(200, Children(children=children, links=link))


SHOWN: Final = Representation[Chassis](
    "chassis",
    "chassis",
    (
        stored_field("uuid", str, sorts=True),
        stored_field("description", str | None, sorts=True),
        stored_field("extra", Document),
        links("chassis"),
        links("chassis", of="nodes"),
        *timestamps(),
    ),
    default=("uuid", "description"),
)
ChassisFieldName = SHOWN.names()
ChassisView = SHOWN.view("ChassisView")
ChassisList = SHOWN.page("ChassisList", ChassisView)


class ChassisPage(DetailedListQuery, frozen=True, kw_only=True):
    """Query of GET /v1/chassis/detail."""

    sort_key: SHOWN.sort_keys() = "id"  # type: ignore[valid-type]  # made from the table above


class ChassisListQuery(ChassisPage, frozen=True, kw_only=True):
    """Query of GET /v1/chassis."""

    detail: bool | None = None
    fields: list[ChassisFieldName] | None = None  # type: ignore[valid-type]


class ChassisQuery(msgspec.Struct, frozen=True):
    """Query of GET /v1/chassis/{chassis}."""

    fields: list[ChassisFieldName] | None = None  # type: ignore[valid-type]


class ChassisSettable(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The settable fields of a chassis."""

    description: Annotated[str, Meta(max_length=255)] | None = None
    extra: Document | None = None


class ChassisCreate(ChassisSettable, kw_only=True, forbid_unknown_fields=True):
    """POST /v1/chassis."""

    uuid: Uuid | None = None


ready(ChassisSettable)


def list_chassis(context: ApiContext, call: RouteCall[ChassisListQuery, None]) -> Reply:
    """List chassis, by default with UUID and description."""
    return _list(context, call, SHOWN.select_listed(call.minor, call.query.fields, call.query.detail), "chassis")


def list_chassis_detail(context: ApiContext, call: RouteCall[ChassisPage, None]) -> Reply:
    """List chassis with all fields."""
    return _list(context, call, SHOWN.select(call.minor), "chassis/detail")


def _list(context: ApiContext, call: RouteCall[Any, None], fields: tuple[ApiField[Chassis], ...], path: str) -> Reply:
    asked = call.query
    size = paging.page_size(asked.limit, context.settings.api.max_limit)
    query = Query(
        marker=paging.marker(asked.marker),
        sort_key=paging.sort_field(asked.sort_key, SHOWN.sort_fields),
        descending=paging.descending(asked.sort_dir),
    )

    def work(tx: Transaction, room: Room) -> paging.Page:
        return paging.page(room, tx.chassis, query, size, lambda node: SHOWN.render(node, fields, call.url))

    return SHOWN.reply(call, path, context.data.read_list(work), size)


def get_chassis(context: ApiContext, call: RouteCall[ChassisQuery, None]) -> Reply:
    """Show one chassis."""
    fields = SHOWN.select(call.minor, chosen_fields(call.minor, call.query.fields, None, None))
    uuid = _uuid(call)
    chassis = context.data.store.read(lambda tx: tx.chassis.get(uuid), snapshot=False)
    return Reply(200, SHOWN.render(chassis, fields, call.url))


def create_chassis(context: ApiContext, call: RouteCall[NoQuery, ChassisCreate | None]) -> Reply:
    """Create a chassis; the body is optional."""
    body = call.body or ChassisCreate()
    uuid = decoding.uuid("uuid", body.uuid) if body.uuid else context.process.new_uuid()

    def work(tx: Transaction) -> Chassis:
        chassis = Chassis(uuid=uuid, description=body.description, extra=body.extra or {}, created_at=tx.now)
        tx.chassis.add(chassis)
        return chassis

    shown = SHOWN.render(context.data.store.write(work), SHOWN.select(call.minor), call.url)
    return Reply(201, shown, {"Location": f"{call.url}/v1/chassis/{uuid}"})


def update_chassis(context: ApiContext, call: RouteCall[NoQuery, list[Operation]]) -> Reply:
    """Update a chassis by a JSON patch."""
    uuid = _uuid(call)

    def work(tx: Transaction) -> Chassis:
        chassis = tx.chassis.get(uuid, lock=True)
        _, body = representation.patch_record(chassis, call.body, ChassisSettable)
        return tx.chassis.update(msgspec.structs.replace(chassis, description=body.description, extra=body.extra or {}))

    return Reply(200, SHOWN.render(context.data.store.write(work), SHOWN.select(call.minor), call.url))


def delete_chassis(context: ApiContext, call: RouteCall[NoQuery, None]) -> Reply:
    """Delete a chassis that has no nodes."""
    uuid = _uuid(call)

    def work(tx: Transaction) -> None:
        tx.chassis.get(uuid, lock=True)
        if tx.nodes.list(Query(filters={"chassis_uuid": uuid}, limit=1)):
            raise BadRequestError(
                f"Cannot complete the requested action because chassis {uuid} contains nodes; remove chassis_uuid "
                "from them first."
            )
        tx.chassis.remove(uuid)

    context.data.store.write(work)
    return Reply(204)


def list_nodes(context: ApiContext, call: RouteCall[NodeListQuery, None]) -> Reply:
    """List the nodes of a chassis."""
    return nodes.list_nodes(context, _of_chassis(call))


def list_nodes_detail(context: ApiContext, call: RouteCall[NodeListQuery, None]) -> Reply:
    """List the nodes of a chassis with all fields."""
    return nodes.list_nodes_detail(context, _of_chassis(call))


def _of_chassis(call: RouteCall[NodeListQuery, None]) -> RouteCall[NodeListQuery, None]:
    return msgspec.structs.replace(call, query=msgspec.structs.replace(call.query, chassis_uuid=_uuid(call)))


def _uuid(call: RouteCall[Any, Any]) -> str:
    return decoding.uuid("chassis", call.path["chassis"])
