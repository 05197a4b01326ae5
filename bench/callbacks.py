"""``callback``: what a callback costs from its first byte to the finished node, the database included.

All inspections are started before the first machine has booted, so that CPU time can be read between the two halves
of an inspection: what came before (the operator's PUT, power, boot device) is no part of it; hooks, rules, the data and
the power-off at the end are.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any, Final

import click
import msgspec
import urllib3

from bench.compare import PAIRS, Variant
from bench.cycle import LOAD_PROCESS, Load, field, scratch
from bench.databases import NAMES, Database, database
from bench.field import Run
from bench.figures import Figure
from bench.quantiles import middle
from bench.report import Report
from bench.service import Service, service
from bench.usage import cpu_seconds

_BOOT: Final = 12.0
_JITTER: Final = 1.0
_LOOK_EVERY: Final = 0.2


class Callbacks(msgspec.Struct, frozen=True):
    """CPU milliseconds for each callback by process, round by round. ``problems``: none, or they are worth nothing."""

    database: str
    variant: str
    rounds: list[dict[str, float]]
    problems: list[str]

    @property
    def ours(self) -> float:
        """The median round's CPU of the service and its database."""
        return middle([sum(spent.values()) for spent in self.rounds])


def measure(name: str, variant: Variant, nodes: int, rounds: int, directory: Path) -> Callbacks:
    """Inspect every node ``rounds`` times; return what the second halves cost."""
    load = Load(nodes=nodes, boot=_BOOT, jitter=_JITTER)
    with (
        scratch(directory) as place,
        database(name, place) as base,
        service(place, base.url, extra=variant.extra) as running,
        field(running, load, place) as load_process,
    ):
        if variant.prepare is not None:
            variant.prepare(running)
        load_process.do("enrol", dict[str, Any])
        found, problems = [], []
        for _ in range(rounds):
            half = _Half(running, base, nodes)
            run = load_process.do("run", Run, concurrency=nodes)
            after, before = _spent(running, base), half.spent()
            found.append({who: (after[who] - before[who]) * 1000 / nodes for who in after})
            problems += [*run.unfinished, *load_process.do("verify", list[str])]
        return Callbacks(base.title, variant.name, found, problems)


class _Half:
    """Reads beside the run, as long as every node waits for its callback, what CPU time was used until then."""

    def __init__(self, running: Service, base: Database, nodes: int) -> None:
        self._running = running
        self._base = base
        self._nodes = nodes
        self._spent: dict[str, float] | None = None
        self._end = time.monotonic() + _BOOT
        self._thread = threading.Thread(target=self._watch, name="half")
        self._thread.start()

    def spent(self) -> dict[str, float]:
        """Return the CPU seconds by process as they were then."""
        self._thread.join()
        if self._spent is None:
            raise RuntimeError(f"not all {self._nodes} inspections had been started when the first machine was up")
        return self._spent

    def _watch(self) -> None:
        pool = urllib3.PoolManager()
        url = f"{self._running.url}/v1/nodes?provision_state=inspect%20wait&fields=uuid&limit={self._nodes}"
        version = {"X-OpenStack-Ironic-API-Version": "1.81"}
        while time.monotonic() < self._end:
            time.sleep(_LOOK_EVERY)
            waiting = msgspec.json.decode(pool.request("GET", url, headers=version).data)["nodes"]
            if len(waiting) == self._nodes:
                self._spent = _spent(self._running, self._base)
            elif self._spent is not None:
                return


def _spent(running: Service, base: Database) -> dict[str, float]:
    spent = running.cpu()
    if base.pid is not None:
        spent[base.name] = cpu_seconds(base.pid)
    return spent


@click.command("callback")
@click.pass_obj
@click.option("--database", "databases", type=click.Choice(NAMES), multiple=True, default=NAMES)
@click.option("--nodes", default=200, show_default=True)
@click.option("--rounds", default=3, show_default=True)
def callback(found: tuple[Report, Path], databases: tuple[str, ...], nodes: int, rounds: int) -> None:
    """CPU for one callback, with all hooks and twenty rules, and without."""
    report, directory = found
    for name in databases:
        report.section(f"callback on {name}: {nodes} nodes, {rounds} rounds, 40 KB; {LOAD_PROCESS} left out")
        rows = []
        for variant in reversed(PAIRS["features"]):
            measured = measure(name, variant, nodes, rounds, directory)
            raw = " ".join(f"{sum(spent.values()):.1f}" for spent in measured.rounds)
            last = ", ".join(f"{who} {spent:.1f}" for who, spent in measured.rounds[-1].items())
            rows.append((variant.name, measured.ours, raw, last))
            report.wrong(measured.problems)
            report.keep(f"callback {name}", measured)
            report.found(Figure(f"CPU per callback, {variant.name}, ms", measured.database, measured.ours))
        report.table(("configuration", "CPU ms", "rounds", "last round by process"), rows)
