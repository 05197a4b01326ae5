"""``scale``: whether an inspection costs more where 10,000 nodes are enrolled than where 100 are.

The same machines are inspected on a small and on a large database, in turns, in one run; the others are there, with
their ports, addresses and earlier inspections, as in a fleet that has been at work for a while. Then what people and
the leader ask of a large database, with twenty inspections of each machine; and a start after the database's own, with
nothing of it in memory.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import click
import msgspec
import requests
from sqlalchemy import func, insert, literal, select

from bench.cycle import Round, enrolled, find_median, scratch
from bench.databases import NAMES, Database, database, opened
from bench.field import Plan
from bench.pages import inspect_all
from bench.quantiles import middle
from bench.report import Report
from bench.search import fill
from bench.service import Role, configure, executable, service
from bench.usage import cpu_seconds
from ferroscope.config.options import DatabaseSettings
from ferroscope.contracts.store import packed
from ferroscope.core.model import Inspection, Node, Port
from ferroscope.db import Store, Transaction, schema
from ferroscope.db.engine import build_engine
from ferroscope.periodic.counts import Counts
from ferroscope.periodic.retention import Retention
from ferroscope.runtime.system import SystemClock
from ferroscope_client.core.states import Provision, State
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


_DAY_SECONDS: Final = 86_400.0
_INSPECTIONS: Final = 20  # of each machine
_LEADS: Final[Any] = SimpleNamespace(fence=lambda _tx: None, keep_alive=lambda: None)
_CACHES: Final = Path("/proc/sys/vm/drop_caches")
_CALLS: Final = {
    "status, and top": "/v1/status",
    "search: a word that is nowhere": "/v1/search?q=no-such-word",
    "search: a word that most have": "/v1/search?q=x86_64&limit=100",
    "search: a field": "/v1/search?q=memory_gb+%3E%3D+100000",
    "wiring": "/ui/wiring",
    "machines": "/ui/machines",
}


def measure_large(report: Report, name: str, directory: Path, nodes: int) -> None:
    """Ask a database with so many machines for what people look at, and delete what is old."""
    rows: list[tuple[Any, ...]] = []
    repeated: list[float] = []
    with scratch(directory) as place, database(name, place) as base:
        with service(place, base.url, roles=("api",)) as running, opened(base.url) as backend:
            fill(backend.store, nodes)
            inspect_all(backend.store)
            add_inspections(base.url)
            spent: Callable[[], float] = lambda: cpu_seconds(base.pid or running.roles["api"].pid)  # noqa: E731
            rows.append(count_ahead(spent, backend.store))
            for what, path in _CALLS.items():
                calls = [measure(spent, running.url + path) for _ in (1, 2)]
                rows += [(f"{what}, call {number}", *call) for number, call in enumerate(calls, 1)]
                repeated.append(calls[1][1])
            rows += list_all(spent, running.url)
            rows += delete_old(spent, backend.store)
        rows.append(("a worker's start on a cold database", start_cold(base, place), 0.0))
    report.table(("of the large fleet", "s", "CPU s of the database"), rows)
    report.keep("large fleet", rows)
    report.figure("slowest repeated call, CPU s of the database", name, max(repeated), most=0.1)


def add_inspections(url: str) -> None:
    """Give each inspection older ones of the same machine, a day apart."""
    table = schema.inspections.c
    columns = [column.name for column in table]
    engine = build_engine(DatabaseSettings(connection=url, statement_timeout=3600.0))
    with engine.connect() as connection:
        for number in range(1, _INSPECTIONS):
            earlier = {
                "uuid": func.substr(table.uuid, 1, 33).concat(literal(f"x{number:02}")),
                "started_at": table.started_at - number * _DAY_SECONDS,
                "finished_at": table.finished_at - number * _DAY_SECONDS,
            }
            source = select(*(earlier.get(column, table[column]) for column in columns))
            fresh = source.where(table.uuid == table.node, table.finished_at.is_not(None))
            connection.execute(insert(schema.inspections).from_select(columns, fresh))
    engine.dispose()


def measure(spent: Callable[[], float], url: str) -> tuple[float, float]:
    """Return the seconds of a call, and the CPU seconds that it costs the database."""
    began, before = time.perf_counter(), spent()
    requests.get(url, timeout=600).raise_for_status()
    return time.perf_counter() - began, spent() - before


def count_ahead(spent: Callable[[], float], store: Store) -> tuple[str, float, float]:
    """Measure what the leader of a large fleet does for those who look at it."""
    began, before = time.perf_counter(), spent()
    Counts(store, SystemClock()).step(_LEADS)
    return "the leader's counts", time.perf_counter() - began, spent() - before


def list_all(spent: Callable[[], float], url: str) -> list[tuple[str, float, float]]:
    """Measure the first and the last page of the list of all machines, and how long all pages take."""
    began, before = time.perf_counter(), spent()
    pages, following = [], f"{url}/v1/nodes"
    while following:
        start, used = time.perf_counter(), spent()
        answer = requests.get(following, timeout=600).json()
        pages.append((time.perf_counter() - start, spent() - used))
        following = answer.get("next", "")
    whole = (time.perf_counter() - began, spent() - before)
    return [("list: the first page", *pages[0]), ("list: the last page", *pages[-1]), ("list: to its end", *whole)]


def delete_old(spent: Callable[[], float], store: Store) -> list[tuple[str, float, float]]:
    """Measure runs of retention until all is looked at and nothing is old; then one that has much to delete."""
    rows = []
    for what, days, number in (("retention: nothing is old", 365, _INSPECTIONS), ("retention: one run", 10, 5)):
        task = Retention(store, threshold=days * _DAY_SECONDS, number=number, period=30.0, clock=SystemClock())
        began, before = time.perf_counter(), spent()
        while "continues" in task.step(_LEADS) and days > 10:
            pass
        rows.append((what, time.perf_counter() - began, spent() - before))
    return rows


def start_cold(base: Database, place: Path) -> float:
    """Restart the server, forget what the machine has read, and return the seconds until a worker is ready."""
    if base.server is not None:
        base.server.restart()
    if os.access(_CACHES, os.W_OK):
        os.sync()
        _CACHES.write_text("3")
    config, _ = configure(place, base.url if base.server is None else base.server.url(base.url.rpartition("/")[2]))
    began = time.perf_counter()
    worker = Role("worker", place, config, [executable()])
    worker.wait_ready()
    seconds = time.perf_counter() - began
    worker.stop()
    return seconds


@click.command("scale")
@click.pass_obj
@click.option("--database", "kind", type=click.Choice(NAMES), default="sqlite", show_default=True)
@click.option("--small", default=100, show_default=True)
@click.option("--large", default=10_000, show_default=True)
@click.option("--nodes", default=50, show_default=True, help="Nodes that are inspected.")
@click.option("--turns", default=2, show_default=True, help="How often each size has its turn.")
def command(context: tuple[Report, Path], kind: str, small: int, large: int, nodes: int, turns: int) -> None:
    """The cost of an inspection with few and with many enrolled nodes, and of what people look at."""
    report, directory = context
    report.section(f"scale on {kind}: {nodes} of {small} and of {large} nodes")
    rounds: dict[int, list[Round]] = {small: [], large: []}
    for _ in range(turns):
        for size, measured in rounds.items():
            plan = Plan(nodes=nodes, first=size // 2)
            measured += measure_turn(report, kind, directory, size, plan)
    cpu = {size: middle([round_.ours for round_ in measured]) for size, measured in rounds.items()}
    seconds = {size: 1 / find_median(measured).rate for size, measured in rounds.items()}
    rows = [(size, cpu[size], seconds[size] * 1000, len(measured)) for size, measured in rounds.items()]
    report.table(("nodes enrolled", "CPU ms per inspection", "ms per inspection", "rounds"), rows)
    report.keep("scale", rounds)
    report.figure("cost with many nodes / with few", f"{kind}, CPU", cpu[large] / cpu[small], most=1.2)
    report.figure("cost with many nodes / with few", f"{kind}, time", seconds[large] / seconds[small], most=1.2)
    measure_large(report, kind, directory, large)
