"""``scale``: whether an inspection costs more where 10,000 nodes are enrolled than where 100 are.

The same machines are inspected on a small and on a large database, in turn and more than once, in
one run; the others are there, with their ports, addresses and earlier inspections, as in a fleet that has been
at work for a while. CPU is compared, and time.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from bench.cycle import Load, Round, field, median_round, one_round, scratch
from bench.databases import database
from bench.quantiles import middle
from bench.service import Service, service
from ferroscope.config.load import load as read_settings
from ferroscope.contracts.data import packed
from ferroscope.core.model import Inspection, Node, Port
from ferroscope.core.states import Provision, State
from ferroscope.db.transaction import Transaction
from ferroscope.runtime.backend import open_backend
from ferroscope.runtime.system import SystemClock
from ferroscope_sim.inventory import bmc_address, generate, pxe_mac

_BATCH: Final = 250
_NOBODY: Final = "127.0.0.1:9"


class Side(msgspec.Struct, frozen=True):
    """One size of registry: all rounds of all turns."""

    enrolled: int
    rounds: list[Round]

    @property
    def cpu(self) -> float:
        return middle([round_.ours for round_ in self.rounds])

    @property
    def wall(self) -> float:
        """Milliseconds of the run per inspection, at the same concurrency."""
        return 1000 / median_round(self.rounds).rate


class Scale(msgspec.Struct, frozen=True):
    """The two sides."""

    database: str
    small: Side
    large: Side

    @property
    def problems(self) -> list[str]:
        return [text for side in (self.small, self.large) for round_ in side.rounds for text in round_.problems]


def measure(
    name: str, directory: Path, *, small: int, large: int, nodes: int, rounds: int, turns: int, data: bool
) -> Scale:
    """Compare; ``data``: give the other nodes an earlier inspection with its inventory too."""
    found: dict[int, list[Round]] = {small: [], large: []}
    title = name
    for _ in range(turns):
        for enrolled in (small, large):
            title, more = _side(name, directory, enrolled, Load(nodes=nodes, rounds=rounds, first=enrolled // 2), data)
            found[enrolled] += more
    return Scale(title, Side(small, found[small]), Side(large, found[large]))


def _side(name: str, directory: Path, enrolled: int, load: Load, data: bool) -> tuple[str, list[Round]]:
    with (
        scratch(directory) as place,
        database(name, place) as base,
        service(place, base.url) as running,
        field(running, load, place) as load_process,
    ):
        load_process.do("enrol", dict[str, Any])
        populate(running, [number for number in range(enrolled) if not _is_simulated(number, load)], data=data)
        load_process.do("find", dict[str, Any])
        one_round(running, base, load_process, load, check=False)
        return base.title, [one_round(running, base, load_process, load) for _ in range(load.rounds)]


def _is_simulated(number: int, load: Load) -> bool:
    return load.first <= number < load.first + load.nodes


def populate(running: Service, numbers: Sequence[int], *, data: bool) -> None:
    """Enrol nodes without a machine, through the store itself, many in each transaction."""
    backend = open_backend(
        read_settings([str(running.config)]), clock=SystemClock(), stop=threading.Event(), listen=False
    )
    inventory = generate(1, size=40_000)
    try:
        for first in range(0, len(numbers), _BATCH):
            batch = numbers[first : first + _BATCH]

            def work(tx: Transaction, batch: Sequence[int] = batch) -> None:
                for node, port in map(_machine, batch):
                    tx.nodes.add(node)
                    tx.ports.add([port])
                    if data:
                        _inspected(tx, node, inventory)

            backend.store.write(work)
    finally:
        backend.close()


def _machine(number: int) -> tuple[Node, Port]:
    info = {"sim_address": _NOBODY, "sim_node": f"other-{number}", "sim_bmc_address": bmc_address(number)}
    node = Node(
        uuid=str(uuid.uuid4()),
        name=f"other-{number}",
        driver="sim",
        provision_state=Provision.MANAGEABLE,
        power_state="power off",
        driver_info=info,
    )
    return node, Port(uuid=str(uuid.uuid4()), node=node.uuid, address=pxe_mac(number))


def _inspected(tx: Transaction, node: Node, inventory: bytes) -> None:
    inspection = Inspection(
        uuid=str(uuid.uuid4()),
        node=node.uuid,
        state=State.FINISHED,
        started_at=tx.now - 3600,
        finished_at=tx.now - 3000,
    )
    tx.inspections.add(inspection)
    tx.nodes.update(msgspec.structs.replace(node, state=State.FINISHED, inspection=inspection.uuid))
    tx.data.save(
        inspection.uuid, node.uuid, packed({"inventory": inventory, "unprocessed": b"{}", "plugin_data": b"{}"})
    )
    tx.addresses.set_bmc(node.uuid, [str(node.driver_info["sim_bmc_address"])])
