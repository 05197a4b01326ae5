"""Authorization of calls: one place decides for every route, before the body is read.

A policy is evaluated without a node first. That is enough for callers whose roles hold for the whole service. The
node's owner and lessee are read only for callers of a project. A caller who may not see a node gets the same response
as for a node that does not exist.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from ferroscope.api.auth.identity import ANYBODY, Identity
from ferroscope.api.auth.policy import Policy, PolicyTarget
from ferroscope.api.errors import ForbiddenError
from ferroscope.contracts.errors import NotFoundError
from ferroscope.core.model import Node

# A caller without credentials: routes whose policy allows it are open to everybody.
NOBODY: Final = Identity(user="anonymous", method="none")

SEE: Final = "baremetal:node:get"
INVENTORY: Final = "baremetal:node:inventory:get"
FAILURE: Final = "baremetal:node:get:last_error"
ANSWERS: Final = "ferroscope:bmc:get_answers"
METRICS: Final = "ferroscope:metrics:get"


def target_of(node: Node) -> PolicyTarget:
    """Return the projects of the node."""
    return PolicyTarget(owner=node.owner, lessee=node.attributes.get("lessee"))


def may(policy: Policy, name: str, identity: Identity, target: PolicyTarget) -> bool:
    """Return whether the policy allows it, for the whole service or for this target."""
    return policy.allows(name, identity) or policy.allows(name, identity, target)


def sees(policy: Policy, identity: Identity, node: Node) -> bool:
    """Return whether this caller may see the node at all."""
    return may(policy, SEE, identity, target_of(node))


def require(policy: Policy, name: str, identity: Identity, target: PolicyTarget) -> None:
    """Raise ``ForbiddenError`` unless the policy allows it."""
    if not may(policy, name, identity, target):
        raise forbidden_error((name,), identity)


def forbidden_error(names: tuple[str, ...], identity: Identity) -> ForbiddenError:
    """Return the error for a caller to whom none of these policies allows the call."""
    return ForbiddenError(f"The policy {' or '.join(names)} does not allow this for {identity}.")


_NO_TARGET: Final = PolicyTarget()
# The parameters of a path that name a node, or something that belongs to one.
OF_NODES: Final = ("node", "port", "portgroup")


def authorize(
    policy: Policy,
    names: tuple[str, ...],
    identify: Callable[[], Identity],
    find: Callable[[Identity], Node],
    path: Mapping[str, Any],
    *,
    late: bool = False,
) -> Identity:
    """Return the identity of a caller to whom one of the policies allows the call.

    ``find`` returns the node that the path names; ``NotFoundError`` also if this caller may not see it. ``late``: the
    body names the node, so callers of a project pass here if the call is allowed for a node of their own; see
    ``authorization.admit_by_body``. ``UnauthorizedError``, ``ForbiddenError``.
    """
    if any(policy.allows(name, NOBODY) for name in names):
        return NOBODY
    identity = identify()
    about_lease = PolicyTarget(lease=path["name"]) if "name" in path else _NO_TARGET
    about_node = any(map(path.__contains__, OF_NODES))
    allowed = any(policy.allows(name, identity, about_lease) for name in names)
    if allowed and (not about_node or policy.allows(SEE, identity)):
        return identity
    if about_node and identity.project_id is not None:
        target = target_of(find(identity))
        if any(policy.allows(name, identity, target) for name in names):
            return identity
    if late and identity.project_id is not None:
        theirs = PolicyTarget(owner=identity.project_id, lessee=identity.project_id)
        if any(policy.allows(name, identity, theirs) for name in names):
            return identity
    raise forbidden_error(names, identity)


def see(policy: Policy, identity: Identity, node: Node, ident: str) -> Node:
    """Return the node; ``NotFoundError`` with this identifier if the caller may not see it."""
    if not sees(policy, identity, node):
        raise NotFoundError("node", ident)
    return node


def scope(policy: Policy, identity: Identity, kind: str) -> str | None:
    """Return the project to whose nodes a list of this ``kind`` is limited for this caller, None for all nodes.

    A kind is ``node``, ``port`` or ``portgroup``.

    ``ForbiddenError`` for callers who may neither see all nor belong to a project.
    """
    name = f"baremetal:{kind}:list_all"
    if identity is ANYBODY or policy.allows(name, identity):
        return None
    if identity.project_id is None:
        raise forbidden_error((name,), identity)
    return identity.project_id
