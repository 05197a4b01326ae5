"""``scale``: whether an inspection costs more where 10,000 nodes are enrolled than where 100 are.

The same machines are inspected on a small and on a large database, in turns, in one run; the others are there, with
their ports, addresses and earlier inspections, as in a fleet that has been at work for a while.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

import click
import msgspec

from bench.cycle import Round, enrolled, find_median
from bench.databases import NAMES, opened
from bench.field import Plan
from bench.quantiles import middle
from bench.report import Report
from ferroscope.contracts.data import packed
from ferroscope.core.model import Inspection, Node, Port
from ferroscope.core.states import Provision, State
from ferroscope.db.store import Store
from ferroscope.db.transaction import Transaction
from ferroscope_sim.inventory import bmc_address, generate, pxe_mac

_BATCH_NODES: Final = 250
_CONCURRENCY: Final = 16
_INVENTORY: Final = generate(1, size=40_000)
_NOBODY: Final = "127.0.0.1:9"


def measure_turn(report: Report, name: str, directory: Path, enrolled_nodes: int, plan: Plan) -> list[Round]:
    """Inspect the machines of ``plan`` on a new database with so many nodes; return all rounds but the first."""
    with enrolled(name, plan, directory) as fleet:
        simulated = range(plan.first, plan.first + plan.nodes)
        with opened(fleet.database.url) as backend:
            populate(backend.store, [number for number in range(enrolled_nodes) if number not in simulated])
        fleet.inspect(_CONCURRENCY, check=False)
        rounds = fleet.inspect_rounds(3, _CONCURRENCY)
        report.wrong([problem for round_ in rounds for problem in round_.problems])
        return rounds


def populate(store: Store, numbers: Sequence[int]) -> None:
    """Enrol nodes without a machine, many in each transaction."""
    for first in range(0, len(numbers), _BATCH_NODES):
        batch = numbers[first : first + _BATCH_NODES]
        store.write(partial(_add_inspected, numbers=batch))


def _add_inspected(tx: Transaction, numbers: Sequence[int]) -> None:
    """Add nodes with a port, a BMC's address and an earlier inspection."""
    for number in numbers:
        ident, address = str(uuid.uuid4()), bmc_address(number)
        inspection = Inspection(
            uuid=str(uuid.uuid4()),
            node=ident,
            state=State.FINISHED,
            started_at=tx.now - 3600,
            finished_at=tx.now - 3000,
        )
        node = Node(
            uuid=ident,
            name=f"other-{number}",
            driver="sim",
            provision_state=Provision.MANAGEABLE,
            power_state="power off",
            driver_info={"sim_address": _NOBODY, "sim_node": f"other-{number}", "sim_bmc_address": address},
        )
        tx.nodes.add(node)
        tx.ports.add([Port(uuid=str(uuid.uuid4()), node=ident, address=pxe_mac(number))])
        tx.inspections.add(inspection)
        tx.nodes.update(msgspec.structs.replace(node, state=State.FINISHED, inspection=inspection.uuid))
        tx.data.save(
            inspection.uuid, ident, packed({"inventory": _INVENTORY, "unprocessed": b"{}", "plugin_data": b"{}"})
        )
        tx.addresses.set_bmc(ident, [address])


@click.command("scale")
@click.pass_obj
@click.option("--database", type=click.Choice(NAMES), default="sqlite", show_default=True)
@click.option("--small", default=100, show_default=True)
@click.option("--large", default=10_000, show_default=True)
@click.option("--nodes", default=50, show_default=True, help="Nodes that are inspected.")
@click.option("--turns", default=2, show_default=True, help="How often each size has its turn.")
def command(context: tuple[Report, Path], database: str, small: int, large: int, nodes: int, turns: int) -> None:
    """The cost of an inspection with few and with many enrolled nodes."""
    report, directory = context
    report.section(f"scale on {database}: {nodes} of {small} and of {large} nodes")
    rounds: dict[int, list[Round]] = {small: [], large: []}
    for _ in range(turns):
        for size, measured in rounds.items():
            plan = Plan(nodes=nodes, first=size // 2)
            measured += measure_turn(report, database, directory, size, plan)
    cpu = {size: middle([round_.ours for round_ in measured]) for size, measured in rounds.items()}
    seconds = {size: 1 / find_median(measured).rate for size, measured in rounds.items()}
    rows = [(size, cpu[size], seconds[size] * 1000, len(measured)) for size, measured in rounds.items()]
    report.table(("nodes enrolled", "CPU ms per inspection", "ms per inspection", "rounds"), rows)
    report.keep("scale", rounds)
    report.figure("cost with many nodes / with few", f"{database}, CPU", cpu[large] / cpu[small], most=1.2)
    report.figure("cost with many nodes / with few", f"{database}, time", seconds[large] / seconds[small], most=1.2)
