"""``attached``: inspections of the nodes of a real Ironic, and what they cost us and Ironic.

Ironic has fake hardware and SQLite, in one process: it is the slowest part, so the rate is its own. The figure of ours
is the CPU time of an inspection in api and worker, the copying of all nodes included.
"""

from __future__ import annotations

import re
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import click
import msgspec

from bench.figures import Figure
from bench.report import Report
from bench.usage import cpu_seconds
from tests.nightly.openstack.ironic.campaign import Ramdisks
from tests.nightly.openstack.ironic.place import Place
from tests.support.bare_metal import ironic
from tests.support.processes import until

# As operators have it, where the tests are in a hurry.
_EXTRA: Final = """\
[registry]
sync_period = 30
[worker]
bmc_slots = {slots}
member_ttl = 6
[lease]
profile = default
[drivers]
power_poll_interval = 0.5
"""
# A line of Ironic's log: method, path without query, status.
_CALL: Final = re.compile(r" INFO ironic\.api \[.*?\] \S+ - ([A-Z]+) ([^ ?]+)\S* - (\d+) ")
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
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


def measure(directory: Path, nodes: int, slots: int) -> Attached:
    """Inspect each of so many nodes once."""
    with (
        tempfile.TemporaryDirectory(dir=directory) as name,
        ironic(Path(name) / "ironic") as running,
        Place(Path(name), running, extra=_EXTRA.format(slots=slots)) as place,
        ThreadPoolExecutor(4) as pool,
    ):
        numbers = dict(pool.map(lambda _number: place.enroll(), range(nodes)))
        began = time.monotonic()
        until(lambda: place.rows("SELECT count(*) FROM nodes") == [(nodes,)], seconds=120)
        copied = time.monotonic() - began
        before, calls = _cpu(place), _calls(place)
        began = time.monotonic()
        ramdisks = Ramdisks(place, numbers)
        ramdisks.start()
        list(pool.map(place.inspect, numbers))
        ramdisks.done.wait(1200.0)
        seconds = time.monotonic() - began
        api, worker, theirs = (1000 * (after - start) / nodes for start, after in zip(before, _cpu(place), strict=True))
        which = {call: count / nodes for call, count in (_calls(place) - calls).items()}
        before = _cpu(place)
        time.sleep(_IDLE)
        idle = 1000 * sum(after - start for start, after in zip(before[:2], _cpu(place)[:2], strict=True)) / _IDLE
        ramdisks.given_up.set()
        ramdisks.join()
        finished = place.rows("SELECT count(*) FROM nodes WHERE state = 'finished'")[0][0]
        return Attached(nodes, finished, seconds, api, worker, theirs, which, idle, copied)


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


@click.command("attached")
@click.pass_obj
@click.option("--nodes", default=500, show_default=True)
@click.option("--slots", default=16, show_default=True, help="[worker] bmc_slots.")
def command(found: tuple[Report, Path], nodes: int, slots: int) -> None:
    """The cost of inspections of the nodes of an attached Ironic."""
    report, directory = found
    report.section(f"attached: {nodes} nodes of a real Ironic with fake hardware; all on SQLite")
    one = measure(directory, nodes, slots)
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
    report.keep("attached", one)
    report.wrong([f"{nodes - one.finished} inspections did not finish"] if one.finished < nodes else [])
    report.found(Figure("an inspection with an attached Ironic, CPU ms", "sqlite", one.ours))
