"""What the callers of a project may store: nodes, ports and port groups, and bytes.

The quota is checked in the transaction of the change, under a lock for each project, so that concurrent calls cannot
exceed it together. Nodes that others, such as an operator, enroll for the project count, but are not refused.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from ferroscope.api.auth.identity import Identity
from ferroscope.api.auth.policy import Policy
from ferroscope.api.errors import ForbiddenError
from ferroscope.api.http.context import ApiContext
from ferroscope.api.http.route import RouteCall
from ferroscope.db import Transaction

# Ports and port groups of a node, as the mean over a project's nodes.
PORTS_PER_NODE: Final = 20


def applies(policy: Policy, identity: Identity) -> bool:
    """Return whether the quotas limit this caller. A caller who may enroll nodes of any owner has no quota."""
    return identity.project_id is not None and not policy.allows("baremetal:node:create", identity)


def check(context: ApiContext, call: RouteCall[Any, Any], tx: Transaction, owner: str | None) -> None:
    """Raise ``ForbiddenError`` if what this transaction has written exceeds the quota of the node's owner."""
    if owner is None or not applies(context.access.policy, call.identity):
        return
    api = context.settings.api
    if not (api.max_project_nodes or api.max_project_bytes):
        return
    used = tx.nodes.usage(owner, with_bytes=bool(api.max_project_bytes))
    for noun, now, limit, option in (
        ("nodes", used.nodes, api.max_project_nodes, "max_project_nodes"),
        ("ports and port groups", used.ports, api.max_project_nodes * PORTS_PER_NODE, "max_project_nodes"),
        ("stored bytes", used.bytes, api.max_project_bytes, "max_project_bytes"),
    ):
        if limit and now > limit:
            raise ForbiddenError(
                f"The quota of project {owner} is {limit:,} {noun}, and this request would make it {now:,}. Delete "
                f"what you no longer need, or ask an operator for more ([api] {option})."
            )


def check_growth(
    context: ApiContext, call: RouteCall[Any, Any], tx: Transaction, owner: str | None, before: object, after: object
) -> None:
    """Check the quota if a change makes a resource larger. A resource beyond the quota may still be made smaller."""
    if applies(context.access.policy, call.identity) and len(msgspec.json.encode(after)) > len(
        msgspec.json.encode(before)
    ):
        check(context, call, tx, owner)
