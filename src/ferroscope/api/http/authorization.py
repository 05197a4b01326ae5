"""Who may make a call, by its route and its node.

This is decided before the body is read. If only the body names the node, it is decided before the rest is looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ferroscope.api.auth.access import OF_NODES, forbidden_error, sees, target_of
from ferroscope.api.auth.identity import Identity
from ferroscope.api.auth.policy import NoPolicy
from ferroscope.api.http import decoding
from ferroscope.api.http.context import AccessControl, ApiContext
from ferroscope.api.http.route import Route
from ferroscope.contracts.errors import NotFoundError
from ferroscope.contracts.store import Query
from ferroscope.core.model import Node
from ferroscope.db import Transaction
from ferroscope_client.core import mac_addresses, values


def admits_anybody(access: AccessControl) -> bool:
    """Whether any caller may make any call, because neither authentication nor a policy is configured."""
    return access.authentication.is_disabled and isinstance(access.policy, NoPolicy)


class _NamedNode(msgspec.Struct, frozen=True):
    node_uuid: Any = None
    node_ident: Any = None


def admit_by_body(context: ApiContext, route: Route, identity: Identity, raw: bytes) -> None:
    """Raise unless a caller of a project may make this call about the node that the body names, if it names one.

    A node that the caller may not see is answered like one that does not exist. ``BadRequestError``, ``NotFoundError``,
    ``ForbiddenError``.
    """
    policy = context.access.policy
    if identity.project_id is None or any(policy.allows(name, identity) for name in route.policies):
        return
    named: _NamedNode = decoding.decode(raw, _NamedNode)
    ident = named.node_uuid or named.node_ident
    if isinstance(ident, str):
        node = visible(context, identity, {"node": ident}, named=True)
        if not any(policy.allows(name, identity, target_of(node)) for name in route.policies):
            raise forbidden_error(route.policies, identity)


def visible(context: ApiContext, identity: Identity, path: Mapping[str, str], *, named: bool) -> Node:
    """Return the node that the path or the body names, or that of the path's port or port group.

    ``NotFoundError`` also if the caller may not see it.
    """
    kind = next(kind for kind in OF_NODES if kind in path)
    ident = mac_addresses.normalized_mac(path[kind]) if kind == "port" else None
    ident = ident or decoding.ident(kind, path[kind], named=named or kind != "node")

    def find(tx: Transaction) -> Node:
        if kind == "node":
            return tx.nodes.get(ident)
        if kind == "portgroup":
            return tx.nodes.get(tx.portgroups.get(ident).node)
        if values.is_uuid(ident) or mac_addresses.normalized_mac(ident):
            return tx.nodes.get(tx.ports.get(ident).node)
        for port in tx.ports.list(Query(filters={"name": ident}, limit=1)):
            return tx.nodes.get(port.node)
        raise NotFoundError(kind, ident)

    node = context.data.store.read(find)
    if not sees(context.access.policy, identity, node):
        raise NotFoundError(kind, ident)
    return node
