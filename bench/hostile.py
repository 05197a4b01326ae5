"""``hostile``: what the worst bytes of strangers cost, and what others notice of them.

Bodies that are refused and accepted, known worst ones and generated ones; a crowd that sends them without a pause; a
BMC that answers everything with garbage. Costs are processor time, which other work on the machine hardly changes.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import click
import msgspec

from bench.cycle import scratch
from bench.databases import database
from bench.hostile_bmc import measure_bmc, show_bmc
from bench.hostile_bodies import UNKNOWN_MAC, Body, array, generated, known, repeated
from bench.hostile_client import CALLBACK, CLIENTS, Looker, ServiceApi
from bench.hostile_load import BMC_ANSWERS
from bench.load_process import LoadProcess
from bench.quantiles import Spread, spread
from bench.report import Report
from bench.service import Service, service
from bench.usage import cpu_seconds

_DOCUMENT_BYTES: Final = 900 * 1024
_WAITING_STATES: Final = ("inspect wait", "inspecting", "verifying")
# What a log has where a process could not do its periodic work in time.
_MISSED: Final = ("leadership lost", "heartbeat missed", "database is locked", "lease taken over")
_HOOKS: Final = (
    *("ramdisk-error", "validate-interfaces", "ports", "architecture", "memory", "cpus", "cpu-capabilities"),
    *("boot-mode", "pci-devices", "accelerators", "local-link-connection", "parse-lldp", "physical-network"),
    *("extra-hardware", "raid-device", "root-device"),
)
_CONFIG: Final = f"[inspector]\nhooks = {','.join(_HOOKS)}\nadd_ports = all\n"


class Cost(msgspec.Struct, frozen=True):
    """What a body cost: the status of its answer, CPU seconds of the api, and of the worker if it was accepted."""

    name: str
    status: int
    api: float
    worker: float = 0.0


class Bodies:
    """Sends bodies to ``running``, of a machine that nobody knows and of one that is waited for."""

    def __init__(self, running: Service) -> None:
        self._running = running
        self._api = ServiceApi(running.url)
        self._mac = "52:54:00:00:00:01"
        self._node = self._api.add_machine("waiting", self._mac)
        self._sent = 0

    def measure(self, name: str, method: str, path: str, body: object = None) -> Cost:
        """Return what the call cost. A source that has failed has to wait, so each has an address of its own."""
        self._sent += 1
        source = f"127.1.{self._sent >> 8 & 255}.{self._sent & 255}"
        before = self._running.cpu()["api"]
        status, _ = self._api.call(method, path, body, source=source)
        time.sleep(0.01)  # the thread that has answered frees what it needed
        return Cost(name, status, self._running.cpu()["api"] - before)

    def refused(self, name: str, body: Body) -> Cost:
        return self.measure(name, "POST", CALLBACK, body(UNKNOWN_MAC))

    def waited_for(self, name: str, body: Body) -> Cost:
        """Return what the callback cost, and if it was accepted, its processing."""
        if self._api.state(self._node) != "inspect wait":
            self._api.ask(self._node, "inspect")
            self._api.until(self._node, lambda state: state == "inspect wait")
        before = cpu_seconds(self._running.roles["worker"].pid)
        cost = self.measure(name, "POST", CALLBACK, body(self._mac))
        if cost.status == 202:
            self._api.until(self._node, lambda state: state not in _WAITING_STATES)
            time.sleep(0.02)
            spent = cpu_seconds(self._running.roles["worker"].pid) - before
            cost = msgspec.structs.replace(cost, worker=spent)
        return cost

    def of_operators(self) -> Iterator[Cost]:
        """Yield what members of a project can send and read: documents and data with slow numbers."""
        numbers = b"[" + repeated(b"1e308", octets=_DOCUMENT_BYTES) + b"]"
        patch = b'[{"op":"add","path":"/extra/x","value":%s}]'
        for number in range(6):
            uuid = self._api.add_node(f"extra-{number}")
            yield self.measure("PATCH extra, 900 KB of 1e308", "PATCH", f"/v1/nodes/{uuid}", patch % numbers)
        yield self.measure("PATCH extra, 2 MiB", "PATCH", f"/v1/nodes/{uuid}", patch % repeated(b"1e308"))
        rule = b'{"actions":[{"op":"set-attribute","args":{"path":"/extra/x","value":%s}}]}'
        yield self.measure("POST rule, 900 KB of 1e308", "POST", "/v1/inspection_rules", rule % numbers)
        self._api.made("DELETE", "/v1/inspection_rules")
        if self._api.state(self._node) == "inspect wait":
            self.waited_for("", array(b"1", 1))
        path = f"/v1/nodes/{self._node}/inventory/reapply"
        yield self.measure("POST reapply, 2 MiB", "POST", path, array(b"1.7777777e300", 199_000)(self._mac))
        for path in ("/v1/nodes/detail", "/v1/nodes?fields=uuid,extra", "/v1/nodes", "/ui/machines"):
            yield self.measure(f"GET {path}, 5.4 MB of 1e308 stored", "GET", path)


def measure_bodies(directory: Path, count: int, seed: int) -> list[Cost]:
    """Send all known shapes, and ``count`` generated ones, to an api with a worker beside it."""
    with (
        scratch(directory) as place,
        database("sqlite", place) as base,
        service(place, base.url, extra=_CONFIG) as running,
    ):
        bodies, costs = Bodies(running), []
        for name, body in known():
            costs += [bodies.refused(name, body), bodies.waited_for(name, body)]
        for number in range(seed, seed + count):
            send = bodies.waited_for if number % 4 == 0 else bodies.refused
            costs.append(send(f"generated {number}", generated(number)))
        return costs + list(bodies.of_operators())


def _show_bodies(report: Report, costs: Sequence[Cost]) -> None:
    report.keep("hostile bodies", costs)
    by_status = Counter(cost.status for cost in costs)
    report.console.print("answers: " + ", ".join(f"{count} x {status}" for status, count in sorted(by_status.items())))
    for title, key in (("api", lambda cost: cost.api), ("worker", lambda cost: cost.worker)):
        worst = sorted(costs, key=key, reverse=True)[:12]
        report.table((f"most CPU of the {title}", "status", "api s", "worker s"), [
            (cost.name, cost.status, cost.api, cost.worker) for cost in worst
        ])  # fmt: skip
    bodies = [cost for cost in costs if not cost.name.startswith("GET")]
    report.figure(
        "hostile: CPU of the worst body, s", f"{len(bodies)} bodies", max(cost.api for cost in bodies), most=0.3
    )
    report.figure("hostile: CPU of processing the worst one, s", "sqlite", max(cost.worker for cost in costs), most=1)
    report.wrong([f"{cost.name}: {cost.status}" for cost in costs if cost.status >= 500])


class Noticed(msgspec.Struct, frozen=True):
    """What others noticed while a crowd sent: how long health checks took, which failed, what the log says."""

    title: str
    health: Spread
    failed: list[str]
    answers: dict[str, int]
    missed: dict[str, int]


def measure_crowd(directory: Path, seconds: float) -> list[Noticed]:
    """Let the crowd send from one address, then from many, to one ``ferroscope all``."""
    with (
        scratch(directory) as place,
        database("sqlite", place) as base,
        service(place, base.url, roles=("all",)) as running,
        LoadProcess("bench.hostile_load", place / "crowd.log") as crowd,
    ):
        mac, log, noticed = "52:54:00:00:00:01", running.roles["all"].log, []
        api = ServiceApi(running.url)
        api.ask(api.add_machine("waiting", mac), "inspect")
        for title, sources in (("one address", 1), ("250 addresses", 250)):
            begin = len(log.read_text())
            with Looker(running.url, "/healthcheck") as health:
                command = {"url": running.url, "seconds": seconds, "sources": sources, "mac": mac}
                answers = crowd.do("send", dict[str, int], **command)
            text = log.read_text()[begin:]
            missed = {words: text.count(words) for words in _MISSED if words in text}
            noticed.append(Noticed(title, spread(health.seconds), health.failed, answers, missed))
        return noticed


def _show_crowd(report: Report, noticed: Sequence[Noticed]) -> None:
    rows = [
        (one.title, str(one.health), len(one.failed), _counts(one.answers), _counts(one.missed) or "nothing")
        for one in noticed
    ]
    report.table(("crowd from", "health check ms, p50 / p99 / max", "failed", "answers", "missed"), rows)
    report.keep("hostile crowd", noticed)
    report.figure(
        "hostile: health check beside a crowd, max s", "sqlite", max(one.health.max for one in noticed) / 1000, most=1
    )
    report.figure(
        "hostile: leases and heartbeats missed", "sqlite", sum(sum(one.missed.values()) for one in noticed), most=0
    )
    report.wrong(
        [f"{one.title}: health checks answered {_counts(Counter(one.failed))}" for one in noticed if one.failed]
    )


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} x {what}" for what, count in sorted(counts.items()))


@click.command("hostile")
@click.pass_obj
@click.option("--bodies", "count", default=1000, show_default=True, help="Generated bodies; 0: leave this part out.")
@click.option("--seed", default=0, show_default=True, help="The first generated body.")
@click.option("--seconds", default=30.0, show_default=True, help="How long the crowd sends; 0: leave this part out.")
@click.option("--rounds", default=3, show_default=True, help="Turns beside a bad BMC and without; 0: leave out.")
def command(context: tuple[Report, Path], count: int, seed: int, seconds: float, rounds: int) -> None:
    """What the worst bytes of strangers cost, and what others notice of them."""
    report, directory = context
    if count:
        report.section(f"hostile: known shapes and {count} generated bodies of at most 2 MiB, one after the other")
        _show_bodies(report, measure_bodies(directory, count, seed))
    if seconds:
        report.section(f"hostile: {CLIENTS} clients send the worst bodies for {seconds:g} s without a pause")
        _show_crowd(report, measure_crowd(directory, seconds))
    if rounds:
        report.section(f"hostile: a BMC that answers garbage in {len(BMC_ANSWERS)} ways, and 300 healthy nodes")
        show_bmc(report, measure_bmc(directory, rounds))
