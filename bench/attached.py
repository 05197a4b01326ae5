"""``attached``: inspections of the nodes of a real Ironic, and what they cost us and Ironic.

Ironic has fake hardware and SQLite, in one process: it is the slowest part, so the rate is its own. The figure of ours
is the CPU time of an inspection in api and worker, the copying of all nodes included.
"""

from __future__ import annotations

import marshal
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from bench.figures import Figure
from bench.report import Report
from bench.usage import cpu_seconds
from tests.nightly.openstack.ironic.campaign import Ramdisks
from tests.nightly.openstack.ironic.place import Place, command
from tests.support.bare_metal import ironic
from tests.support.installation import Played
from tests.support.processes import until

# As operators have it, where the tests are in a hurry.
_EXTRA: Final = """\
[registry]
sync_period = 30
[worker]
bmc_slots = {slots}
heartbeat_interval = 1.5
member_ttl = 6
[lease]
profile = default
[drivers]
power_poll_interval = 0.5
"""
_PROFILED: Final = str(Path(__file__).with_name("profiled.py"))
# A line of Ironic's log: method, path without query, status.
_CALL: Final = re.compile(r" INFO ironic\.api \[.*?\] \S+ - ([A-Z]+) ([^ ?]+)\S* - (\d+) ")
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SHOWN: Final = 45
_IDLE: Final = 10.0  # seconds


class Attached(msgspec.Struct, frozen=True):
    """``ours`` and ``theirs``: CPU milliseconds per inspection; ``which``: calls of Ironic's API, likewise.

    ``api`` and ``worker`` are the parts of ``ours``. ``idle``: our CPU milliseconds per second when nothing is
    inspected, which are in ``ours``, too. ``copied``: seconds until all nodes were copied.
    """

    nodes: int
    finished: int
    seconds: float
    api: float
    worker: float
    theirs: float
    which: dict[str, float]
    idle: float
    copied: float
    profile: dict[Any, Any] = {}
    statements: dict[str, float] = {}

    @property
    def calls(self) -> float:
        return sum(self.which.values())

    @property
    def ours(self) -> float:
        return self.api + self.worker

    @property
    def own(self) -> float:
        """Return ``ours`` without what is used when nothing is inspected."""
        return self.ours - self.idle * self.seconds / self.nodes


def measure(directory: Path, nodes: int, slots: int, *, profiled: bool = False) -> Attached:
    """Inspect each of so many nodes once."""
    with (
        tempfile.TemporaryDirectory(dir=directory) as name,
        ironic(Path(name) / "ironic") as running,
        Place(Path(name), running, extra=_EXTRA.format(slots=slots), role=_profiled if profiled else command) as place,
        ThreadPoolExecutor(4) as pool,
    ):
        numbers = dict(pool.map(lambda _number: place.enroll(), range(nodes)))
        began = time.monotonic()
        until(lambda: place.rows("SELECT count(*) FROM nodes") == [(nodes,)], seconds=120)
        copied = time.monotonic() - began
        first = _snapshot(place.workers[0], 1) if profiled else ({}, {})
        before, calls = _cpu(place), _calls(place)
        began = time.monotonic()
        ramdisks = Ramdisks(place, numbers)
        ramdisks.start()
        list(pool.map(place.inspect, numbers))
        ramdisks.done.wait(1200.0)
        seconds = time.monotonic() - began
        api, worker, theirs = (1000 * (after - start) / nodes for start, after in zip(before, _cpu(place), strict=True))
        which = {call: count / nodes for call, count in (_calls(place) - calls).items()}
        last = _snapshot(place.workers[0], 2) if profiled else ({}, {})
        before = _cpu(place)
        time.sleep(_IDLE)
        idle = 1000 * sum(after - start for start, after in zip(before[:2], _cpu(place)[:2], strict=True)) / _IDLE
        ramdisks.given_up.set()
        ramdisks.join()
        finished = place.rows("SELECT count(*) FROM nodes WHERE state = 'finished'")[0][0]
        profile = {
            where: [after - before for after, before in zip(found[1:4], first[0].get(where, [0] * 5)[1:4], strict=True)]
            for where, found in last[0].items()
        }
        statements = {text: (found[0] - first[1].get(text, [0])[0]) / nodes for text, found in last[1].items()}
        return Attached(nodes, finished, seconds, api, worker, theirs, which, idle, copied, profile, statements)


def _cpu(place: Place) -> tuple[float, float, float]:
    return (
        cpu_seconds(place.api.pid),
        sum(cpu_seconds(played.pid) for played in place.workers),
        cpu_seconds(place.ironic.pid),
    )


def _calls(place: Place) -> Counter[str]:
    """Return how many requests of each kind Ironic's API has logged."""
    log = place.ironic.log.parent / "ironic-service.log"
    found = _CALL.findall(log.read_text(errors="replace")) if log.exists() else ()
    return Counter(f"{method} {_UUID.sub('ID', path)} {status}" for method, path, status in found)


def _profiled(*words: str) -> list[str]:
    if words[0] != "worker":
        return command(*words)
    return [sys.executable, "-P", _PROFILED, str(Path(words[-1]).parent), "cpu", *words]


def _snapshot(worker: Played, number: int) -> tuple[dict[Any, Any], dict[str, list[float]]]:
    worker.process.send_signal(signal.SIGUSR1)
    path = worker.log.parent / f"{number}.profile"
    until(path.exists)
    stats, statements = marshal.loads(path.read_bytes())
    return stats, msgspec.json.decode(statements)


def _show(report: Report, one: Attached) -> None:
    """Show where the worker's CPU time went: milliseconds per inspection, by function."""
    spots = sorted(one.profile.items(), key=lambda spot: -spot[1][1])[:_SHOWN]
    rows = [
        (
            f"{Path(path).parent.name}/{Path(path).name}:{line}:{name}",
            *(1000 * value / one.nodes for value in (own, whole)),
            f"{calls / one.nodes:.1f}",
        )
        for (path, line, name), (calls, own, whole) in spots
    ]
    report.table(("function of the worker", "own ms", "with callees ms", "calls"), rows)
    often = sorted(one.statements.items(), key=lambda statement: -statement[1])[:_SHOWN]
    report.table(("statement", "per inspection"), [(" ".join(text.split())[:120], count) for text, count in often])


@click.command("attached")
@click.pass_obj
@click.option("--nodes", default=500, show_default=True)
@click.option("--slots", default=16, show_default=True, help="[worker] bmc_slots.")
@click.option("--profile", is_flag=True, help="Show the worker's CPU time by function; the profiler adds to it.")
def run(found: tuple[Report, Path], nodes: int, slots: int, *, profile: bool) -> None:
    """The cost of inspections of the nodes of an attached Ironic."""
    report, directory = found
    report.section(f"attached: {nodes} nodes of a real Ironic with fake hardware; all on SQLite")
    one = measure(directory, nodes, slots, profiled=profile)
    columns = (
        "inspections/s",
        "our CPU ms",
        "without idle",
        "api",
        "worker",
        "Ironic's CPU ms",
        "calls of Ironic",
        "idle ms/s",
        "copied in s",
    )
    numbers = (nodes / one.seconds, one.ours, one.own, one.api, one.worker, one.theirs, one.calls, one.idle, one.copied)
    report.table(columns, [[f"{number:.2f}" for number in numbers]])
    often = sorted(one.which.items(), key=lambda call: -call[1])
    report.table(("calls of Ironic", "per inspection"), [(call, f"{count:.2f}") for call, count in often])
    if profile:
        _show(report, one)
    else:
        report.keep("attached", msgspec.structs.replace(one, profile={}, statements={}))
    report.wrong([f"{nodes - one.finished} inspections did not finish"] if one.finished < nodes else [])
    report.found(Figure("an inspection with an attached Ironic, CPU ms", "sqlite", one.ours))
