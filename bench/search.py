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
from bench.quantiles import middle
from bench.report import Report
from ferroscope.core.model import Node
from ferroscope.db import Store, Transaction
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
_BATCH_NODES: Final = 250
_RACK_MACHINES: Final = 48
_PAGE_NODES: Final = 1000


def fill(store: Store, nodes: int) -> None:
    """Store the nodes with their rows."""
    kinds = []
    for index in range(1, _KINDS + 1):
        body = document(index, size=40_000)
        kinds.append(search_index.learn(body.pop("inventory"), body))
    for first in range(0, nodes, _BATCH_NODES):
        batch = list(_make_nodes(kinds, first, min(nodes, first + _BATCH_NODES)))

        def work(tx: Transaction, batch: list[tuple[Node, list[IndexRow]]] = batch) -> None:
            for node, rows in batch:
                tx.nodes.add(node)
                tx.search_index.replace(node.uuid, rows, had=False)

        store.write(work, durable=False)


def _make_nodes(kinds: list[Learned], first: int, end: int) -> Iterator[tuple[Node, list[IndexRow]]]:
    for number in range(first, end):
        known = kinds[number % len(kinds)]
        summary = known.summary | {"serial": f"{known.summary.get('serial')}-{number}"}
        node = Node(
            uuid=str(uuid.uuid4()),
            name=f"node-{number}",
            driver="fake-hardware",
            search_digest="bench",
            hardware=summary,
        )
        yield node, [_individualize(row, number) for row in known.rows]


def _individualize(row: IndexRow, number: int) -> IndexRow:
    """Return the row with a serial number and a port of a switch of this node's; a switch has the NICs of a rack."""
    if row.kind == "nic" and row.t6:
        switch, port = f"leaf{row.position}-r{number // _RACK_MACHINES:04}", f"ethernet{number % _RACK_MACHINES + 1}"
        return msgspec.structs.replace(row, t6=switch, t7=port)
    return msgspec.structs.replace(row, t4=f"{row.t4}-{number}") if row.kind in ("disk", "dimm") else row


def measure(report: Report, name: str, directory: Path, nodes: int, tries: int) -> None:
    """Fill a database of the kind ``name`` and ask it every query ``tries`` times, after one for the caches."""
    rows = []
    with scratch(directory) as place, database(name, place) as base:
        upgrade(base.url)
        with opened(base.url) as backend:
            fill(backend.store, nodes)
            for query in QUERIES:
                seconds, matching = [], 0
                for _ in range(tries + 1):
                    began = time.perf_counter()
                    matching = len(backend.store.read(lambda tx: tx.search_index.search(parse(query), _PAGE_NODES)))  # noqa: B023
                    seconds.append(time.perf_counter() - began)
                rows.append((escape(query), middle(seconds[1:]), max(seconds[1:]), matching))
    report.table(("query", "s p50", "s max", "found (a page)"), [(q, f"{a:.3f}", f"{b:.3f}", n) for q, a, b, n in rows])
    report.keep(f"search {base.name}", rows)
    report.figure("search over 10,000 nodes, s", base.name, max(row[1] for row in rows), most=1)


@click.command("search")
@click.pass_obj
@click.option("--database", "databases", type=click.Choice(NAMES), multiple=True, default=NAMES)
@click.option("--nodes", default=10_000, show_default=True)
@click.option("--tries", default=5, show_default=True, help="How often each query is asked.")
def command(context: tuple[Report, Path], databases: tuple[str, ...], nodes: int, tries: int) -> None:
    """Searches over the hardware of many nodes."""
    report, directory = context
    for name in databases:
        report.section(f"search on {name}: {nodes} nodes")
        measure(report, name, directory, nodes, tries)
