"""``pages``: how long the api takes for the pages of the web page, with 10,000 inspected nodes.

A real api process; the nodes are those of ``bench.search``, each with labels and an inspection: one in twenty has
failed, some are in progress, one in ten has found other hardware. One in ten waits in the inbox, one in fifty is not as
expected, and there are a hundred rules. The first answer includes what a process does once, such as compiling SQL. The
targets for Prometheus are measured as a page is. Then viewers who have a page open look for news of it, each with a
session of its own: at the fleet page every five seconds, at the first page of all machines and at the inbox every ten,
at the page of the service every two and a half, while something changes every second; and half as often while nothing
does, as the script of the pages does. What counts is CPU time, the database's included: it is the same while something
else runs on the machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import click
import msgspec
import requests

from bench.cycle import scratch
from bench.databases import NAMES, database, opened
from bench.figures import Figure
from bench.quantiles import middle
from bench.report import Report
from bench.search import fill
from bench.service import service
from bench.usage import cpu_seconds
from ferroscope.contracts.store import Query
from ferroscope.core.model import Entry, Inspection, Rule
from ferroscope.core.reasons import Reason
from ferroscope.core.states import OF_STATE, State
from ferroscope.db.store import Store
from ferroscope.db.transaction import Transaction
from ferroscope.hardware import expectations

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
# One in so many nodes waits in the inbox; rules.
_WAITING: Final = 10
_RULES: Final = 100
_CONDITION: Final = {"op": "eq", "args": ["{inventory[system_vendor][manufacturer]}", "ACME"]}
_ACTION: Final = {"op": "set-attribute", "args": {"path": "/extra/vendor", "value": "acme"}}
_VIEWERS: Final = 100
# Page -> seconds between two looks of its script.
_LIVE: Final = {"/ui": 5.0, "/ui/machines": 10.0, "/ui/inbox": 10.0, "/ui/service": 2.5}
_SECONDS: Final = 20.0
_DEVIATION: Final = {
    "expectation": "web", "severity": "warning", "condition": "memory >= 384GiB", "found": "memory: 352GiB",
}  # fmt: skip
_REASONS: Final = (Reason.TIMEOUT, Reason.BMC_UNREACHABLE, Reason.RAMDISK_ERROR)


class Shown(msgspec.Struct, frozen=True):
    """A page: milliseconds of the first answer and of the others, of CPU for the first and for one, and bytes."""

    page: str
    first: float
    others: list[float]
    first_cpu: float
    cpu: float
    size: int

    @property
    def median(self) -> float:
        return middle(self.others)


class Watched(msgspec.Struct, frozen=True):
    """The share of a processor that the api needs for the viewers of a page; ``new``: the answers that were new.

    ``took``: seconds for the looks of ``_SECONDS``. Where that is much more, the machine was too busy for the share to
    say anything: what viewers share for a second or two is then made for each of them.
    """

    page: str
    changing: bool
    share: float
    looks: int
    new: int
    took: float


class Pages(msgspec.Struct, frozen=True):
    """All pages, and what the api needs for viewers of those that keep themselves up to date; ``idle``: for nobody.

    ``changes``: for nobody while something changes every second, which takes the database more than many a look.
    """

    database: str
    shown: list[Shown]
    viewers: int
    idle: float
    changes: float
    watched: list[Watched]

    @property
    def most(self) -> float:
        """The share for the viewers of the page that needs most, without what is needed for nobody."""
        return max(one.share - (self.changes if one.changing else self.idle) for one in self.watched)


class Fleet(msgspec.Struct, frozen=True):
    """An api process with many machines in its database; ``cpu``: the CPU seconds that both have used."""

    database: str
    url: str
    store: Store
    cpu: Callable[[], float]


@contextmanager
def fleet(name: str, directory: Path, *, nodes: int) -> Iterator[Fleet]:
    """Give an api process, which nobody has called yet, with a database of the kind ``name``."""
    with (
        scratch(directory) as place,
        database(name, place) as base,
        service(place, base.url, roles=("api",)) as running,
        opened(base.url) as backend,
    ):
        fill(backend.store, nodes)
        _inspect(backend.store)
        _add_rules(backend.store)
        pid = running.roles["api"].pid
        yield Fleet(base.title, running.url, backend.store, lambda: cpu_seconds(pid) + cpu_seconds(base.pid))


def measure(name: str, directory: Path, *, nodes: int, tries: int) -> Pages:
    """Get each page ``tries`` times of a database of the kind ``name``, after the first time."""
    with fleet(name, directory, nodes=nodes) as found, requests.Session() as client:
        shown = [_get(client, found.url, page, found.cpu, tries) for page in PAGES]
        change = Changes(found.store)
        idle, changes = _idle(found.cpu), _idle(found.cpu, change)
        watched = [
            _watch(client, found.url, found.cpu, page, change if changing else None)
            for page in _LIVE
            for changing in (False, True)
        ]
        return Pages(found.database, shown, _VIEWERS, idle, changes, watched)


def _inspect(store: Store) -> None:
    """Give each node an inspection."""
    after = None
    while True:

        def work(tx: Transaction, after: str | None = after) -> str | None:
            batch = tx.nodes.list(Query(limit=500, marker=after))
            for number, node in enumerate(batch):
                state = State.ERROR if number % 20 == 0 else State.STARTING if number % 50 == 1 else State.FINISHED
                reason = _REASONS[number // 20 % len(_REASONS)] if state is State.ERROR else None
                inspection = Inspection(
                    uuid=node.uuid,
                    node=node.uuid,
                    state=state,
                    started_at=tx.now - 600 - number,
                    finished_at=None if state is State.STARTING else tx.now - 200 - number,
                    changes=1 if state is State.FINISHED and number % 10 == 0 else 0,
                    reason=reason,
                )
                tx.inspections.add(inspection)
                changes: dict[str, Any] = {
                    "state": state,
                    "inspection": node.uuid,
                    "inspection_started_at": inspection.started_at,
                    "inbox": number % _WAITING == 3,
                    "labels": {"rack": f"r{number // 40}", "room": "a"},
                }
                if number % 50 == 7:
                    changes["attributes"] = node.attributes | {expectations.KEY: [_DEVIATION]}
                if changes["inbox"]:
                    tx.addresses.set_bmc(node.uuid, [f"192.0.2.{number % 250}"])
                tx.nodes.update(msgspec.structs.replace(node, provision_state=OF_STATE[state], **changes))
            return batch[-1].uuid if len(batch) == 500 else None

        after = store.write(work, durable=False)
        if after is None:
            return


def _add_rules(store: Store) -> None:
    """Add rules, and the steps by which the newest inspections tell which of them have matched."""
    rules = [
        Rule(uuid=str(UUID(int=number + 1)), conditions=[_CONDITION] * 4, actions=[_ACTION] * 4)
        for number in range(_RULES)
    ]

    def work(tx: Transaction) -> None:
        for rule in rules:
            tx.rules.add(rule)
        for one in tx.inspections.list(Query(sort_key="started_at", descending=True, limit=100)):
            detail = {"applied": [rule.uuid for rule in rules[:10]]}
            entry = Entry(node=one.node, inspection=one.uuid, step="rules", message="applied", detail=detail)
            tx.journal.append([entry, *[Entry(node=one.node, inspection=one.uuid, step="x", message="x")] * 10])

    store.write(work, durable=False)


def _get(client: requests.Session, url: str, page: str, cpu: Callable[[], float], tries: int) -> Shown:
    taken, size, used, began_with = [], 0, 0.0, cpu()
    for number in range(tries + 1):
        if number == 1:
            used = cpu()
        began = time.perf_counter()
        answer = client.get(url + page, timeout=60)
        taken.append((time.perf_counter() - began) * 1000)
        answer.raise_for_status()
        size = len(answer.content)
    return Shown(page, taken[0], taken[1:], (used - began_with) * 1000, (cpu() - used) / tries * 1000, size)


def _idle(cpu: Callable[[], float], change: Changes | None = None) -> float:
    """Return the share of a processor that is needed while nobody looks, while something changes every second."""
    used, began = cpu(), time.monotonic()
    for number in range(1, round(_SECONDS) + 1):
        if change is not None:
            change(number)
        time.sleep(max(0.0, began + number - time.monotonic()))
    return (cpu() - used) / (time.monotonic() - began)


def _watch(client: requests.Session, url: str, cpu: Callable[[], float], page: str, change: Changes | None) -> Watched:
    """Have all viewers open a page and then look for news, while something changes every second."""
    viewers: list[dict[str, str]] = [{"Cookie": f"ferroscope={number:043}"} for number in range(_VIEWERS)]
    looks, new = round(_VIEWERS * _SECONDS / _LIVE[page] / (2 if change is None else 1)), 0
    for sent in viewers:
        sent["If-None-Match"] = client.get(url + page, headers=sent, timeout=60).headers["ETag"]
    used, began, changes = cpu(), time.monotonic(), 0
    for number in range(looks):
        time.sleep(max(0.0, began + number * _SECONDS / looks - time.monotonic()))
        if change is not None and time.monotonic() - began >= changes:
            changes += 1
            change(changes)
        sent = viewers[number % _VIEWERS]
        answer = client.get(url + page, headers=sent, timeout=60)
        answer.raise_for_status()
        if answer.status_code != 304:
            new += 1
            sent["If-None-Match"] = answer.headers["ETag"]
    # Of the time in which they would look on an idle machine: on a busy one it takes longer.
    return Watched(page, change is not None, (cpu() - used) / _SECONDS, looks, new, time.monotonic() - began)


class Changes:
    """Changes a machine of the first page of the list, and one of that of the inbox; gives a lease another epoch.

    Which machines these are is found out before: a service that changes a machine knows it, too.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        inbox = Query(filters={"inbox": True}, sort_key="created_at", limit=round(_SECONDS))
        self._listed = store.read(lambda tx: tx.ranking.uuids()[: round(_SECONDS)])
        self._waiting = store.read(lambda tx: [node.uuid for node in tx.nodes.list(inbox)])

    def __call__(self, number: int) -> None:
        def work(tx: Transaction) -> None:
            node = tx.nodes.get(self._listed[number % len(self._listed)])
            tx.nodes.update(msgspec.structs.replace(node, maintenance=not node.maintenance))
            waiting = tx.nodes.get(self._waiting[number % len(self._waiting)])
            tx.nodes.update(msgspec.structs.replace(waiting, last_error=f"change at {tx.now}"))
            tx.leases.acquire("bench", f"holder-{number}", 0.01)

        self._store.write(work)


def show(report: Report, found: Pages) -> None:
    """Show pages; the figures are those of the slowest of all, of the first two, of the first, and of viewers."""
    rows = [
        (one.page, one.first, one.median, max(one.others), one.first_cpu, one.cpu, one.size // 1000)
        for one in found.shown
    ]
    report.table(("page", "first ms", "ms p50", "ms max", "first CPU ms", "CPU ms", "kB"), rows)
    watched = [
        (one.page, "every second" if one.changing else "nothing", f"{one.looks} ({one.new})", one.took, one.share * 100)
        for one in found.watched
    ]
    watched.append(("nobody", "nothing", "0", 20.0, found.idle * 100))
    watched.append(("nobody", "every second", "0", 20.0, found.changes * 100))
    columns = (f"{found.viewers} viewers of", "changes", "looks (new)", "in s (20 if idle)", "CPU, % of a core")
    report.table(columns, watched)
    report.keep("pages", found)
    slowest = max(one.median for one in found.shown[:2])
    report.found(Figure("fleet and machines of 10,000, ms", found.database, slowest))
    report.found(Figure("first page of a process, CPU ms", found.database, found.shown[0].first_cpu))
    slowest_cpu = max(one.cpu for one in found.shown if one.page.startswith("/ui"))
    report.found(Figure("slowest page of 10,000, CPU ms", found.database, slowest_cpu))
    report.found(Figure(f"api CPU for {found.viewers} viewers, share of a core", found.database, found.most))


@click.command("pages")
@click.pass_obj
@click.option("--database", type=click.Choice(NAMES), default="sqlite", show_default=True)
@click.option("--nodes", default=10_000, show_default=True)
@click.option("--tries", default=10, show_default=True, help="How often each page is requested, after the first time.")
def command(found: tuple[Report, Path], database: str, nodes: int, tries: int) -> None:
    """The web page with many nodes."""
    report, directory = found
    report.section(f"pages on {database}: {nodes} nodes")
    show(report, measure(database, directory, nodes=nodes, tries=tries))
