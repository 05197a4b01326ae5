"""How nodes are grouped: shards, and the children of a node. Source: the Bare Metal API reference."""

from __future__ import annotations

import msgspec

from ferroscope.api.auth import access
from ferroscope.api.baremetal import nodes
from ferroscope.api.http.decoding import node_ident
from ferroscope.api.http.route import ApiContext, Call, NoQuery, Reply
from ferroscope.api.http.schemas import Link
from ferroscope.contracts.store import Query, Transaction
from ferroscope.core.model import Node


class Shard(msgspec.Struct, frozen=True):
    """A shard and the number of its nodes; ``None`` is the name for nodes without one."""

    name: str
    count: int


class ShardList(msgspec.Struct, frozen=True):
    """GET /v1/shards: the largest shard first."""

    shards: list[Shard]


class Children(msgspec.Struct, frozen=True):
    """GET /v1/nodes/{node}/children: UUIDs, and the link to the list of nodes."""

    children: list[str]
    links: Link


def list_shards(context: ApiContext, _call: Call[NoQuery, None]) -> Reply:
    """List the shards of all nodes."""
    found = context.store.read(lambda tx: tx.statistics.shards())
    shards = [Shard(name=str(name), count=count) for name, count in found.items()]
    return Reply(200, ShardList(shards=sorted(shards, key=lambda shard: (-shard.count, shard.name))))


def list_children(context: ApiContext, call: Call[NoQuery, None]) -> Reply:
    """List the nodes whose parent is this node."""
    ident = node_ident(call)

    def work(tx: Transaction) -> tuple[Node, list[Node]]:
        parent = tx.nodes.get(ident)
        query = Query(
            project=access.scope(context.policy, call.identity, "node"), attributes={"parent_node": parent.uuid}
        )
        listed = tx.nodes.list(query)
        return parent, [one for one in listed if one.attributes.get("parent_node") == parent.uuid]

    parent, found = context.store.read(work)
    children = [one.uuid for one in found if nodes.sees(context, call, one)]
    link = Link(href=f"{call.url}/v1/nodes?parent_node={parent.uuid}", rel="children")
    return Reply(200, Children(children=children, links=link))
