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
bmc_slots = 16
member_ttl = 6
[lease]
profile = default
"""
# A line of Ironic's log: method, path without query, status.
_CALL: Final = re.compile(r" INFO ironic\.api \[.*?\] \S+ - ([A-Z]+) ([^ ?]+)\S* - (\d+) ")
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_IDLE_SECONDS: Final = 10.0
_COPY_SECONDS: Final = 120.0
_GIVE_UP_SECONDS: Final = 1200.0


def _read_cpu(place: Place) -> tuple[float, float, float]:
    """Return the CPU seconds of api, workers and Ironic."""
    workers = sum(cpu_seconds(played.pid) for played in place.workers)
    return cpu_seconds(place.api.pid), workers, cpu_seconds(place.ironic.pid)


def _count_calls(place: Place) -> Counter[str]:
    """Return how many requests of each kind Ironic's API has logged."""
    log = place.ironic.log.parent / "ironic-service.log"
    calls = _CALL.findall(log.read_text(errors="replace")) if log.exists() else ()
    return Counter(f"{method} {_UUID.sub('ID', path)} {status}" for method, path, status in calls)


@click.command("attached")
@click.pass_obj
@click.option("--nodes", default=500, show_default=True)
def command(context: tuple[Report, Path], nodes: int) -> None:
    """The cost of inspections of the nodes of an attached Ironic."""
    report, directory = context
    report.section(f"attached: {nodes} nodes of a real Ironic with fake hardware; all on SQLite")
    with (
        tempfile.TemporaryDirectory(dir=directory) as name,
        ironic(Path(name) / "ironic") as running,
        Place(Path(name), running, extra=_EXTRA) as place,
        ThreadPoolExecutor(4) as pool,
    ):
        numbers = dict(pool.map(lambda _number: place.enroll(), range(nodes)))
        until(lambda: place.rows("SELECT count(*) FROM nodes") == [(nodes,)], seconds=_COPY_SECONDS)
        before, calls_before, began = _read_cpu(place), _count_calls(place), time.monotonic()
        ramdisks = Ramdisks(place, numbers)
        ramdisks.start()
        list(pool.map(place.inspect, numbers))
        ramdisks.done.wait(_GIVE_UP_SECONDS)
        seconds, after, calls = time.monotonic() - began, _read_cpu(place), _count_calls(place) - calls_before
        time.sleep(_IDLE_SECONDS)
        idle = 1000 * (sum(_read_cpu(place)[:2]) - sum(after[:2])) / _IDLE_SECONDS
        ramdisks.given_up.set()
        ramdisks.join()
        finished = place.rows("SELECT count(*) FROM nodes WHERE state = 'finished'")[0][0]
    api, worker, theirs = (1000 * (end - start) / nodes for start, end in zip(before, after, strict=True))
    columns = ("inspections/s", "our CPU ms", "api", "worker", "idle, ms/s", "Ironic's CPU ms", "calls of Ironic")
    row = (nodes / seconds, api + worker, api, worker, idle, theirs, calls.total() / nodes)
    report.table(columns, [row])
    report.table(("calls of Ironic", "per inspection"), [(call, count / nodes) for call, count in calls.most_common()])
    report.keep("attached", dict(zip(columns, row, strict=True)))
    report.wrong([f"{nodes - finished} inspections did not finish"] if finished < nodes else [])
    report.figure("an inspection with an attached Ironic, CPU ms", "sqlite", api + worker, most=20)
