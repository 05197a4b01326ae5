"""What a failed-node controller knows about a node of its cluster, such as the machine that it runs on.

It is stored under the lease of that controller. The controllers of other clusters that share the inventory read it,
because they must not power off that machine.
"""

from __future__ import annotations

import msgspec


class FailoverNode(msgspec.Struct, frozen=True, kw_only=True):
    """One node of one cluster. Times are seconds since the Unix epoch by the database's clock.

    ``uid`` is that of the Node object. ``annotation``, ``serial``, ``provider_id`` and ``system_uuid`` are what the
    object says about its machine; the rest is from the last check. ``facts``: which of these agree with ``machine``, ""
    if it has none. ``problem``: a code, if the controller would not handle a failure of this node, else "".
    ``message``: the same for people. ``power``: the BMC's answer. ``doubted``: the machine whose BMC said at
    ``said_off_at`` that it is off while the node ran, "" for none. ``said_on``: the checks since then that found it on.
    """

    cluster: str
    node: str
    machine: str = ""
    ready: bool = False
    uid: str = ""
    annotation: str = ""
    serial: str = ""
    provider_id: str = ""
    system_uuid: str = ""
    facts: tuple[str, ...] = ()
    problem: str = ""
    message: str = ""
    power: str = ""
    doubted: str = ""
    said_off_at: float = 0.0
    said_on: int = 0
    written_at: float = 0.0
