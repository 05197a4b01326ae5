"""The machines of all nodes, as the controller needs them.

All of them are read in each pass that looks for a node's machine, because each may contradict. Where there are so many
that this takes long, all are read less often, and those that matter in each pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from ferroscope.contracts.store import Clock, Query
from ferroscope.contrib.kubernetes.failover.machines import ClusterMachine, reported_fields
from ferroscope.core import bmc_access
from ferroscope.core.model import Node
from ferroscope.db import Store, Transaction
from ferroscope.hardware import machine_identity
from ferroscope.hardware.machine_identity import decode_identity
from ferroscope_client.core.bmc_place import places
from ferroscope_client.core.states import ACTIVE

_MACHINES_PER_PAGE: Final = 500
_PAUSE_RATIO: Final = 5.0  # reading all may take a fifth of the time


class MachineList:
    """For one thread."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._machines: dict[str, ClusterMachine] = {}
        self._due_at = -math.inf

    def all(self, keep_alive: Callable[[], object]) -> tuple[list[ClusterMachine], bool]:
        """Return all machines, and whether they were read just now."""
        if self._clock.monotonic() < self._due_at:
            return list(self._machines.values()), False
        began = self._clock.monotonic()
        machines: dict[str, ClusterMachine] = {}
        for page in pages(self._store):
            machines |= page
            keep_alive()
        now = self._clock.monotonic()
        self._machines, self._due_at = machines, now + (now - began) * _PAUSE_RATIO
        return list(machines.values()), True

    def some(self, uuids: Iterable[str]) -> list[ClusterMachine]:
        """Return those of these machines that exist, as they are now."""
        idents = tuple(set(uuids))
        query = Query(filters={"uuid": idents})
        rows = self._store.read(lambda tx: _with_addresses(tx, query)) if idents else ()
        return [machine_of(node, addresses) for node, addresses in rows]

    def again(self, uuids: Iterable[str]) -> list[ClusterMachine]:
        """Return all machines that are known, after these were read again."""
        idents = set(uuids)
        for ident in idents:
            self._machines.pop(ident, None)
        self._machines |= {machine.uuid: machine for machine in self.some(idents)}
        return list(self._machines.values())

    def clear(self) -> None:
        """Forget all."""
        self._machines, self._due_at = {}, -math.inf


def pages(store: Store) -> Iterator[dict[str, ClusterMachine]]:
    """Yield all machines by their UUIDs, some hundred at a time."""
    marker: str | None = None
    while True:
        query = Query(limit=_MACHINES_PER_PAGE, marker=marker)
        page = store.read(lambda tx, query=query: _with_addresses(tx, query))  # type: ignore[misc]
        yield {node.uuid: machine_of(node, addresses) for node, addresses in page}
        if len(page) < _MACHINES_PER_PAGE:
            break
        marker = page[-1][0].uuid


def _with_addresses(tx: Transaction, query: Query) -> list[tuple[Node, Sequence[str]]]:
    """Return a page of nodes, each with the addresses of its BMC that workers have stored."""
    nodes = tx.nodes.list(query)
    stored = tx.addresses.of_nodes([node.uuid for node in nodes])
    return [(node, stored.get(node.uuid, ())) for node in nodes]


def machine_of(node: Node, addresses: Sequence[str] = ()) -> ClusterMachine:
    """Return the controller's view of the machine; ``addresses``: the stored addresses of its BMC.

    A place that only the machine itself reported does not count.
    """
    maintenance, active, keeps_power = prohibitions_of(node)
    confirmed = not bmc_access.is_unconfirmed(node)
    return ClusterMachine(
        uuid=node.uuid,
        name=node.name,
        instance_uuid=node.instance_uuid,
        driver=node.driver,
        maintenance=maintenance,
        active=active,
        keeps_power=keeps_power,
        bmcs=places(node.driver_info, addresses) if confirmed else (),
        **reported_fields(decode_identity(node.internal.get(machine_identity.IDENTITY))),
    )


def differs(node: Node, machine: ClusterMachine) -> bool:
    """Whether the reasons not to power it off, or the target of its commands, have changed since it was read."""
    now = machine_of(node)
    return now.prohibitions != machine.prohibitions or now.place != machine.place or node.driver != machine.driver


def prohibitions_of(node: Node) -> tuple[bool, bool, bool]:
    """Return maintenance, an inspection in progress, and an order to keep the power, as ``ClusterMachine`` has them."""
    return node.maintenance, node.state in ACTIVE, bool(node.attributes.get("disable_power_off"))
