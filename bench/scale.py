"""``scale``: whether an inspection costs more where 10,000 nodes are enrolled than where 100 are.

The same machines are inspected on a small and on a large database, in turn and more than once, in
one run; the others are there, with their ports, addresses and earlier inspections, as in a fleet that has been
at work for a while. CPU is compared, and time.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from bench.cycle import Load, Round, enrolled, median_round
from bench.databases import NAMES, opened
from bench.figures import Figure
from bench.quantiles import middle
from bench.report import Report
from ferroscope.contracts.data import packed
from ferroscope.core.model import Inspection, Node, Port
from ferroscope.core.states import Provision, State
from ferroscope.db.store import Store
from ferroscope.db.transaction import Transaction
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
        for size in (small, large):
            title, more = _side(name, directory, size, Load(nodes=nodes, rounds=rounds, first=size // 2), data)
            found[size] += more
    return Scale(title, Side(small, found[small]), Side(large, found[large]))


def _side(name: str, directory: Path, size: int, load: Load, data: bool) -> tuple[str, list[Round]]:
    with enrolled(name, load, directory) as fleet:
        simulated = range(load.first, load.first + load.nodes)
        with opened(fleet.database.url) as backend:
            populate(backend.store, [number for number in range(size) if number not in simulated], data=data)
        fleet.load_process.do("find", dict[str, Any])
        fleet.inspect(check=False)
        return fleet.database.title, fleet.inspect_rounds()


def populate(store: Store, numbers: Sequence[int], *, data: bool) -> None:
    """Enrol nodes without a machine, many in each transaction."""
    inventory = generate(1, size=40_000)
    for first in range(0, len(numbers), _BATCH):
        batch = numbers[first : first + _BATCH]

        def work(tx: Transaction, batch: Sequence[int] = batch) -> None:
            for node, port in map(_machine, batch):
                tx.nodes.add(node)
                tx.ports.add([port])
                if data:
                    _inspected(tx, node, inventory)

        store.write(work)


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


def show(report: Report, found: Scale) -> None:
    """Show both sizes of registry; the figure is the ratio of CPU per inspection."""
    rows = [(side.enrolled, side.cpu, side.wall, len(side.rounds)) for side in (found.small, found.large)]
    report.table(("nodes enrolled", "CPU ms per inspection", "ms per inspection", "rounds"), rows)
    report.wrong(found.problems)
    report.keep("scale", found)
    report.found(
        Figure("cost with many nodes / with few", f"{found.database}, CPU", found.large.cpu / found.small.cpu),
        Figure("cost with many nodes / with few", f"{found.database}, time", found.large.wall / found.small.wall),
    )


@click.command("scale")
@click.pass_obj
@click.option("--database", type=click.Choice(NAMES), default="sqlite", show_default=True)
@click.option("--small", default=100, show_default=True)
@click.option("--large", default=10_000, show_default=True)
@click.option("--nodes", default=50, show_default=True, help="Nodes that are inspected.")
@click.option("--rounds", default=3, show_default=True, help="Inspections of each of them in one turn.")
@click.option("--turns", default=2, show_default=True, help="How often each size has its turn.")
@click.option("--data/--no-data", default=True, help="Whether the other nodes have been inspected before.")
def command(
    found: tuple[Report, Path],
    database: str,
    small: int,
    large: int,
    nodes: int,
    rounds: int,
    turns: int,
    data: bool,
) -> None:
    """The cost of an inspection with few and with many enrolled nodes."""
    report, directory = found
    report.section(f"scale on {database}: {nodes} of {small} and of {large} nodes")
    options = {"small": small, "large": large, "nodes": nodes, "rounds": rounds, "turns": turns}
    show(report, measure(database, directory, data=data, **options))
