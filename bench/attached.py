"""``attached``: inspections of the nodes of a real Ironic, and what they cost us and Ironic.

Ironic has fake hardware and SQLite, in one process: it is the slowest part, so the rate is its own. The figure of ours
is the CPU time of an inspection in api and worker, the copying of all nodes included.
"""

from __future__ import annotations

import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import click
import msgspec

from bench.figures import Figure
from bench.report import Report
from bench.usage import cpu_seconds
from tests.integration.ironic.campaign import Ramdisks
from tests.integration.ironic.place import Place
from tests.support.bare_metal import ironic
from tests.support.processes import until

# As operators have it, where the tests are in a hurry; few machines at a time, for every one polls Ironic.
_EXTRA: Final = """\
[registry]
sync_period = 30
[worker]
bmc_slots = 16
heartbeat_interval = 1.5
member_ttl = 6
[drivers]
power_poll_interval = 0.5
"""


class Attached(msgspec.Struct, frozen=True):
    """``ours`` and ``theirs``: CPU milliseconds per inspection; ``copied``: seconds until all nodes were copied."""

    nodes: int
    finished: int
    seconds: float
    ours: float
    theirs: float
    copied: float


def measure(directory: Path, nodes: int) -> Attached:
    """Inspect each of so many nodes once."""
    with (
        tempfile.TemporaryDirectory(dir=directory) as name,
        ironic(Path(name) / "ironic") as running,
        Place(Path(name), running, extra=_EXTRA) as place,
        ThreadPoolExecutor(4) as pool,
    ):
        numbers = dict(pool.map(lambda _number: place.enroll(), range(nodes)))
        began = time.monotonic()
        until(lambda: place.rows("SELECT count(*) FROM nodes") == [(nodes,)], seconds=120)
        copied = time.monotonic() - began
        before = _cpu(place)
        began = time.monotonic()
        ramdisks = Ramdisks(place, numbers)
        ramdisks.start()
        list(pool.map(place.inspect, numbers))
        ramdisks.done.wait(1200.0)
        seconds = time.monotonic() - began
        ours, theirs = (1000 * (after - start) / nodes for start, after in zip(before, _cpu(place), strict=True))
        ramdisks.given_up.set()
        ramdisks.join()
        finished = place.rows("SELECT count(*) FROM nodes WHERE state = 'finished'")[0][0]
        return Attached(nodes, finished, seconds, ours, theirs, copied)


def _cpu(place: Place) -> tuple[float, float]:
    ours = sum(cpu_seconds(played.pid) for played in (place.api, *place.workers))
    return ours, cpu_seconds(place.ironic.pid)


@click.command("attached")
@click.pass_obj
@click.option("--nodes", default=500, show_default=True)
def command(found: tuple[Report, Path], nodes: int) -> None:
    """The cost of inspections of the nodes of an attached Ironic."""
    report, directory = found
    report.section(f"attached: {nodes} nodes of a real Ironic with fake hardware; all on SQLite")
    one = measure(directory, nodes)
    rows = [(f"{nodes / one.seconds:.2f}", f"{one.ours:.1f}", f"{one.theirs:.1f}", f"{one.copied:.1f}")]
    report.table(("inspections/s", "our CPU ms", "Ironic's CPU ms", "copied in s"), rows)
    report.keep("attached", one)
    report.wrong([f"{nodes - one.finished} inspections did not finish"] if one.finished < nodes else [])
    report.found(Figure("an inspection with an attached Ironic, CPU ms", "sqlite", one.ours))
