"""``pages``: how long the api takes for the pages of the web page, with 10,000 inspected nodes.

A real api process; the nodes are those of ``bench.search``, each with labels and an inspection: one in twenty has
failed, some are in progress, one in ten has found other hardware. One in ten waits in the inbox, one in fifty is not as
expected, and there are a hundred rules. The first answer includes what a process does once, such as compiling SQL. The
targets for Prometheus are measured as a page is. Then viewers who have a page open look for news of it, each with a
session of its own, while something changes every second; and half as often while nothing does, as the script of the
pages does. What counts is CPU time, the database's included: it is the same while something else runs on the machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import click
import msgspec
import requests

from bench.cycle import scratch
from bench.databases import NAMES, database, opened
from bench.quantiles import middle
from bench.report import Report
from bench.search import fill
from bench.service import service
from bench.usage import cpu_seconds
from ferroscope.contracts.store import Query
from ferroscope.core.model import Entry, Inspection, Rule
from ferroscope.db import Store, Transaction
from ferroscope.hardware import expectations
from ferroscope_client.core.reasons import Reason
from ferroscope_client.core.states import OF_STATE, State

PAGES: Final = (
    "/ui",
    "/ui/machines",
    "/ui/machines?page=50",
    "/ui/machines?sort=memory&dir=desc",
    "/ui/machines?sort=model&q=vendor+%3D%3D+dell",
    "/ui/machines?c=state&c=model&c=ports",
    "/ui/machines?state=inspect+failed",
    "/ui/machines?reason=timeout",
    "/ui/machines?q=vendor+%3D%3D+dell",
    "/ui/machines?q=node-4711",
    "/ui/machines?q=label.rack+%3D%3D+r5",
    "/ui/machines?q=deviating+%3D%3D+yes",
    "/ui/inbox",
    "/ui/enroll",
    "/ui/rules",
    "/ui/wiring",
    "/v1/prometheus/targets",
)
_RULES: Final = 100
_CONDITION: Final = {"op": "eq", "args": ["{inventory[system_vendor][manufacturer]}", "ACME"]}
_ACTION: Final = {"op": "set-attribute", "args": {"path": "/extra/vendor", "value": "acme"}}
_DEVIATION: Final = {
    "expectation": "web", "severity": "warning", "condition": "memory >= 384GiB", "found": "memory: 352GiB",
}  # fmt: skip
_REASONS: Final = (Reason.TIMEOUT, Reason.BMC_UNREACHABLE, Reason.RAMDISK_ERROR)
_VIEWERS: Final = 100
# Page -> seconds between two looks of its script.
_LIVE: Final = {"/ui": 5.0, "/ui/machines": 10.0, "/ui/inbox": 10.0, "/ui/service": 2.5}
_WATCHED_SECONDS: Final = 20
_BATCH_NODES: Final = 500

Cpu = Callable[[], float]


def inspect_all(store: Store) -> None:
    """Give each node an inspection."""
    after: str | None = None
    while True:
        batch = store.read(lambda tx, after=after: tx.nodes.list(Query(limit=_BATCH_NODES, marker=after)))  # type: ignore[misc]

        def work(tx: Transaction, batch: Any = batch) -> None:
            for number, node in enumerate(batch):
                _inspect(tx, node, number)

        store.write(work, durable=False)
        if len(batch) < _BATCH_NODES:
            return
        after = batch[-1].uuid


def _inspect(tx: Transaction, node: Any, number: int) -> None:
    state = State.ERROR if number % 20 == 0 else State.STARTING if number % 50 == 1 else State.FINISHED
    inspection = Inspection(
        uuid=node.uuid,
        node=node.uuid,
        state=state,
        started_at=tx.now - 600 - number,
        finished_at=None if state is State.STARTING else tx.now - 200 - number,
        changes=1 if state is State.FINISHED and number % 10 == 0 else 0,
        reason=_REASONS[number // 20 % len(_REASONS)] if state is State.ERROR else None,
    )
    tx.inspections.add(inspection)
    is_waiting = number % 10 == 3
    if is_waiting:
        tx.addresses.set_bmc(node.uuid, [f"192.0.2.{number % 250}"])
    changed = msgspec.structs.replace(
        node,
        provision_state=OF_STATE[state],
        state=state,
        inspection=node.uuid,
        inspection_started_at=inspection.started_at,
        inbox=is_waiting,
        labels={"rack": f"r{number // 40}", "room": "a"},
        attributes=node.attributes | ({expectations.KEY: [_DEVIATION]} if number % 50 == 7 else {}),
    )
    tx.nodes.update(changed)


def _add_rules(tx: Transaction) -> None:
    """Add rules, and the steps by which the newest inspections tell which of them have matched."""
    idents = [str(UUID(int=number + 1)) for number in range(_RULES)]
    for ident in idents:
        tx.rules.add(Rule(uuid=ident, conditions=[_CONDITION] * 4, actions=[_ACTION] * 4))
    for one in tx.inspections.list(Query(sort_key="started_at", descending=True, limit=100)):
        detail = {"applied": idents[:10]}
        entry = Entry(node=one.node, inspection=one.uuid, step="rules", message="applied", detail=detail)
        tx.journal.append([entry, *[Entry(node=one.node, inspection=one.uuid, step="x", message="x")] * 10])


def get_pages(report: Report, of: str, client: requests.Session, url: str, cpu: Cpu, tries: int) -> None:
    """Get each page ``tries`` times, after the first time; the figures are those of the slowest, and of the first."""
    rows = []
    for page in PAGES:
        milliseconds, spent = [], [cpu()]
        for number in range(tries + 1):
            began = time.perf_counter()
            answer = client.get(url + page, timeout=60)
            milliseconds.append((time.perf_counter() - began) * 1000)
            answer.raise_for_status()
            if number == 0:
                spent.append(cpu())
        first_cpu, each_cpu = (spent[1] - spent[0]) * 1000, (cpu() - spent[1]) / tries * 1000
        first, others = milliseconds[0], milliseconds[1:]
        rows.append((page, first, middle(others), max(others), first_cpu, each_cpu, len(answer.content) // 1000))
    report.table(("page", "first ms", "ms p50", "ms max", "first CPU ms", "CPU ms", "kB"), rows)
    report.keep("pages", rows)
    report.figure("fleet and machines of 10,000, ms", of, max(row[2] for row in rows[:2]), most=300)
    report.figure("first page of a process, CPU ms", of, rows[0][4], most=300)
    report.figure(
        "slowest page of 10,000, CPU ms", of, max(row[5] for row in rows if row[0].startswith("/ui")), most=300
    )


def watch_pages(report: Report, of: str, client: requests.Session, url: str, cpu: Cpu, change: Changes) -> None:
    """Measure the share of a processor that viewers of each page need, beside what is needed for nobody."""
    rows, most = [], 0.0
    for changing, what in ((False, "nothing"), (True, "every second")):
        nobody = 0.0
        for page in ("", *_LIVE):
            share, looks, new, seconds = _watch(client, url, cpu, page, change if changing else None)
            if page:
                most = max(most, share - nobody)
            else:
                nobody = share
            rows.append((page or "nobody", what, f"{looks} ({new})", seconds, share * 100))
    columns = (f"{_VIEWERS} viewers of", "changes", "looks (new)", "in s (20 if idle)", "CPU, % of a core")
    report.table(columns, rows)
    report.keep("viewers", rows)
    report.figure(f"api CPU for {_VIEWERS} viewers, share of a core", of, most, most=0.05)


def _watch(
    client: requests.Session, url: str, cpu: Cpu, page: str, change: Changes | None
) -> tuple[float, int, int, float]:
    """Have all viewers open a page and then look for news; return the share, looks, those with news, and seconds.

    Where the looks took much longer than 20 s, the machine was too busy for the share to say anything: what viewers
    share for a second or two is then made for each of them.
    """
    viewers: list[dict[str, str]] = [
        {"Cookie": f"ferroscope={number:043}"} for number in range(_VIEWERS if page else 0)
    ]
    per_second = _VIEWERS / _LIVE[page] / (2 if change is None else 1) if page else 1.0
    looks, new = round(per_second * _WATCHED_SECONDS), 0
    for headers in viewers:
        headers["If-None-Match"] = client.get(url + page, headers=headers, timeout=60).headers["ETag"]
    spent, began, changes = cpu(), time.monotonic(), 0
    for number in range(looks):
        time.sleep(max(0.0, began + number / per_second - time.monotonic()))
        if change is not None and time.monotonic() - began >= changes:
            changes += 1
            change(changes)
        if not page:
            continue
        headers = viewers[number % _VIEWERS]
        answer = client.get(url + page, headers=headers, timeout=60)
        answer.raise_for_status()
        if answer.status_code != 304:
            new += 1
            headers["If-None-Match"] = answer.headers["ETag"]
    # Of the time in which they would look on an idle machine: on a busy one it takes longer.
    return (cpu() - spent) / _WATCHED_SECONDS, looks if page else 0, new, time.monotonic() - began


class Changes:
    """Changes a machine of the first page of the list, and one of that of the inbox; gives a lease another epoch.

    Which machines these are is found out before: a service that changes a machine knows it, too.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        inbox = Query(filters={"inbox": True}, sort_key="created_at", limit=_WATCHED_SECONDS)
        self._listed = store.read(lambda tx: tx.ranking.uuids()[:_WATCHED_SECONDS])
        self._waiting = store.read(lambda tx: [node.uuid for node in tx.nodes.list(inbox)])

    def __call__(self, number: int) -> None:
        def work(tx: Transaction) -> None:
            node = tx.nodes.get(self._listed[number % len(self._listed)])
            tx.nodes.update(msgspec.structs.replace(node, maintenance=not node.maintenance))
            waiting = tx.nodes.get(self._waiting[number % len(self._waiting)])
            tx.nodes.update(msgspec.structs.replace(waiting, last_error=f"change at {tx.now}"))
            tx.leases.acquire("bench", f"holder-{number}", 0.01)

        self._store.write(work)


@click.command("pages")
@click.pass_obj
@click.option("--database", "kind", type=click.Choice(NAMES), default="sqlite", show_default=True)
@click.option("--nodes", default=10_000, show_default=True)
@click.option("--tries", default=10, show_default=True, help="How often each page is requested, after the first time.")
def command(context: tuple[Report, Path], kind: str, nodes: int, tries: int) -> None:
    """The web page with many nodes."""
    report, directory = context
    report.section(f"pages on {kind}: {nodes} nodes")
    with (
        scratch(directory) as place,
        database(kind, place) as base,
        service(place, base.url, roles=("api",)) as running,
        opened(base.url) as backend,
        requests.Session() as client,
    ):
        fill(backend.store, nodes)
        inspect_all(backend.store)
        backend.store.write(_add_rules, durable=False)
        api = running.roles["api"]
        cpu: Cpu = lambda: cpu_seconds(api.pid) + cpu_seconds(base.pid)  # noqa: E731
        get_pages(report, base.name, client, running.url, cpu, tries)
        watch_pages(report, base.name, client, running.url, cpu, Changes(backend.store))
