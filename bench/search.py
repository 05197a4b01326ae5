"""``search``: how long queries take over the rows of 10,000 inspected machines, on each database.

The rows are those of simulated inventories; some hundred machines differ, the rest repeat them under other
serial numbers. What is timed is the store's answer: parsing, SQL, and a page of 1,000 nodes.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
import msgspec
from rich.markup import escape

from bench.cycle import scratch
from bench.databases import NAMES, database, opened
from bench.figures import Figure
from bench.quantiles import middle
from bench.report import Report
from ferroscope.core.model import Node
from ferroscope.db.store import Store
from ferroscope.db.transaction import Transaction
from ferroscope.hardware import search_index
from ferroscope.hardware.query import parse
from ferroscope.hardware.search_index import IndexRow, Learned
from ferroscope_sim.inventory.body import document
from tests.support.databases import upgrade

QUERIES: Final = (
    "memory_gb >= 512 and nic.speed >= 25G",
    "nic[speed >= 25G and vendor == mellanox] and not has gpu",
    "count(disk[type == nvme]) >= 4 or count(dimm) == 16",
    "product ~ '*0*' and (firmware != 1.0 or nic.link == no)",
    "disk.serial == no-such-serial",
    "no-such-word",
    "has node",
)
_KINDS: Final = 200
_BATCH: Final = 250
# Machines of a rack.
_RACK: Final = 48
_PAGE: Final = 1000


class Asked(msgspec.Struct, frozen=True):
    """One query: milliseconds of each try, and how many nodes the first page has."""

    query: str
    milliseconds: list[float]
    found: int

    @property
    def median(self) -> float:
        return middle(self.milliseconds)


class Searches(msgspec.Struct, frozen=True):
    """All queries on one database."""

    database: str
    nodes: int
    search_index: int
    asked: list[Asked]

    @property
    def slowest(self) -> float:
        """Seconds that the slowest query takes in the median."""
        return max(asked.median for asked in self.asked) / 1000


def measure(name: str, directory: Path, *, nodes: int, tries: int) -> Searches:
    """Fill a database of the kind ``name`` and ask it every query ``tries`` times, after one for the caches."""
    with scratch(directory) as place, database(name, place) as base:
        upgrade(base.url)
        with opened(base.url) as backend:
            stored = fill(backend.store, nodes)
            asked = [_ask(backend.store, query, tries) for query in QUERIES]
        return Searches(base.title, nodes, stored, asked)


def _ask(store: Store, query: str, tries: int) -> Asked:
    taken, found = [], 0
    for _ in range(tries + 1):
        began = time.perf_counter()
        found = len(store.read(lambda tx: tx.search_index.search(parse(query), _PAGE)))
        taken.append((time.perf_counter() - began) * 1000)
    return Asked(query, taken[1:], found)


def fill(store: Store, nodes: int) -> int:
    """Store the nodes with their rows; return how many rows these have."""
    kinds = [learned(index) for index in range(1, _KINDS + 1)]
    stored = 0
    for first in range(0, nodes, _BATCH):
        batch = list(_nodes(kinds, first, min(nodes, first + _BATCH)))

        def work(tx: Transaction, batch: list[tuple[Node, list[IndexRow]]] = batch) -> None:
            for node, rows in batch:
                tx.nodes.add(node)
                tx.search_index.replace(node.uuid, rows, had=False)

        store.write(work, durable=False)
        stored += sum(len(rows) for _, rows in batch)
    return stored


def learned(index: int) -> Learned:
    """Return what is stored of a simulated machine."""
    body = document(index, size=40_000)
    return search_index.learn(body.pop("inventory"), body)


def _nodes(kinds: list[Learned], first: int, end: int) -> Iterator[tuple[Node, list[IndexRow]]]:
    for number in range(first, end):
        known = kinds[number % len(kinds)]
        summary = known.summary | {"serial": f"{known.summary.get('serial')}-{number}"}
        node = Node(
            uuid=str(uuid.uuid4()),
            name=f"node-{number}",
            driver="fake-hardware",
            search_digest=f"{search_index.WITH_WORDS}bench",
            hardware=summary,
        )
        yield node, [_own(row, number) for row in known.rows]


def _own(row: IndexRow, number: int) -> IndexRow:
    """Return the row with a serial number and a port of a switch of this node's; a switch has the NICs of a rack."""
    if row.kind == "nic" and row.t6:
        switch, port = f"leaf{row.position}-r{number // _RACK:04}", f"ethernet{number % _RACK + 1}"
        return msgspec.structs.replace(row, t6=switch, t7=port)
    return msgspec.structs.replace(row, t4=f"{row.t4}-{number}") if row.kind in ("disk", "dimm") else row


def show(report: Report, found: Searches) -> None:
    """Show queries; the figure is the slowest one's."""
    rows = [(escape(asked.query), asked.median, max(asked.milliseconds), asked.found) for asked in found.asked]
    report.table(("query", "ms p50", "ms max", "found (a page)"), rows)
    report.keep("search", found)
    report.found(Figure("search over 10,000 nodes, s", found.database, found.slowest))


@click.command("search")
@click.pass_obj
@click.option("--database", "databases", type=click.Choice(NAMES), multiple=True, default=NAMES)
@click.option("--nodes", default=10_000, show_default=True)
@click.option("--tries", default=5, show_default=True, help="How often each query is asked.")
def command(found: tuple[Report, Path], databases: tuple[str, ...], nodes: int, tries: int) -> None:
    """Searches over the hardware of many nodes."""
    report, directory = found
    for name in databases:
        report.section(f"search on {name}: {nodes} nodes")
        show(report, measure(name, directory, nodes=nodes, tries=tries))
