"""What a list of nodes may be narrowed by, and who does it: the store's indexes, or this.

Source: the Bare Metal API reference; parameters newer than the call's microversion are refused
with 406.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from ferroscope.api import scalars
from ferroscope.api.documented import Limit, ProvisionState, SortDir, Uuid
from ferroscope.api.errors import BadRequestError, NotAcceptableError
from ferroscope.api.node_fields import NodeField, NodeSortKey
from ferroscope.domain.model import Node
from ferroscope.domain.provision import Provision


class NodeListQuery(msgspec.Struct, frozen=True):
    """Query of GET /v1/nodes."""

    associated: bool | None = None
    auto_discovered: bool | None = None
    conductor: str | None = None
    conductor_group: str | None = None
    description_contains: str | None = None
    detail: bool | None = None
    driver: str | None = None
    fault: str | None = None
    fields: list[NodeField] | None = None
    inbox: bool | None = None
    include_children: bool | None = None
    instance_uuid: Uuid | None = None
    lessee: str | None = None
    limit: Limit | None = None
    maintenance: bool | None = None
    marker: Uuid | None = None
    orphaned: bool | None = None
    owner: str | None = None
    parent_node: str | None = None
    project: str | None = None
    provision_state: ProvisionState | None = None
    resource_class: str | None = None
    retired: bool | None = None
    shard: list[str] | None = None
    sharded: bool | None = None
    sort_dir: SortDir = "asc"
    sort_key: NodeSortKey = "id"


_SINCE: Final = {
    "auto_discovered": 84,
    "conductor": 49,
    "conductor_group": 46,
    "description_contains": 51,
    "driver": 16,
    "fault": 42,
    "inbox": 84,
    "include_children": 83,
    "lessee": 65,
    "orphaned": 84,
    "owner": 50,
    "parent_node": 83,
    "provision_state": 9,
    "resource_class": 21,
    "retired": 61,
    "shard": 82,
    "sharded": 82,
}

Keep = Callable[[Node], bool]


def check_versions(query: NodeListQuery, minor: int) -> None:
    """Refuse parameters that the call's microversion does not know."""
    for name, since in _SINCE.items():
        if minor < since and getattr(query, name) is not None:
            raise NotAcceptableError(f"The parameter {name} needs API version 1.{since}.")


def stored(query: NodeListQuery) -> dict[str, Any]:
    """Return the filters that the store applies."""
    filters: dict[str, Any] = {
        name: value
        for name in ("auto_discovered", "driver", "inbox", "maintenance", "owner", "resource_class")
        if (value := getattr(query, name)) is not None
    }
    if query.conductor_group is not None:
        filters["conductor_group"] = query.conductor_group.lower()
    if query.instance_uuid is not None:
        filters["instance_uuid"] = scalars.uuid("instance_uuid", query.instance_uuid)
    if query.provision_state is not None:
        filters["provision_state"] = _provision_state(query.provision_state)
    return filters


def kept(query: NodeListQuery) -> Keep:
    """Return the test for everything else; nodes with a parent are shown on request only."""
    tests: list[Keep] = []
    if query.parent_node is not None:
        tests.append(_equals("parent_node", query.parent_node))
    elif not query.include_children:
        tests.append(lambda node: not node.attributes.get("parent_node"))
    if query.associated is not None:
        tests.append(lambda node: (node.instance_uuid is not None) == query.associated)
    if query.conductor is not None or query.fault is not None:
        tests.append(lambda _node: False)  # no node here ever has either
    if query.description_contains is not None:
        wanted = query.description_contains.lower()
        tests.append(lambda node: wanted in str(node.attributes.get("description") or "").lower())
    if query.orphaned is not None:
        tests.append(lambda node: (node.orphaned_at is not None) == query.orphaned)
    if query.lessee is not None:
        tests.append(_equals("lessee", query.lessee))
    if query.project is not None:
        tests.append(lambda node: query.project in (node.owner, node.attributes.get("lessee")))
    if query.retired is not None:
        tests.append(lambda node: bool(node.attributes.get("retired")) == query.retired)
    if query.shard is not None:
        shards = frozenset(query.shard)
        tests.append(lambda node: node.attributes.get("shard") in shards)
    if query.sharded is not None:
        tests.append(lambda node: (node.attributes.get("shard") is not None) == query.sharded)
    return lambda node: all(test(node) for test in tests)


def _equals(attribute: str, value: str) -> Keep:
    return lambda node: node.attributes.get(attribute) == value


def _provision_state(value: str) -> str:
    known = [str(state) for state in Provision]
    if value not in known:
        raise BadRequestError(f"Provision state {scalars.shown(value)} is not valid here; valid: {', '.join(known)}.")
    return value
