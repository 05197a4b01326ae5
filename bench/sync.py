"""``sync``: how long many machines take to a real Nautobot or NetBox, at first and when nothing has changed.

The time is nearly all the DCIM's own: one process of it serves all calls, as it does on a developer's machine.
"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Final

import click
import msgspec

from bench.cycle import scratch
from bench.report import Report
from ferroscope.contrib.dcim.writer import Report as Changes
from tests.support.dcim import DcimServer, Synced, machine, running
from tests.support.faulty_proxy import FaultyProxy
from tests.support.nautobot import Nautobot
from tests.support.netbox import NetBox
from tests.support.servers import KeeperProcess, Server

_KINDS: Final[dict[str, type[DcimServer]]] = {kind.name: kind for kind in (Nautobot, NetBox)}


class Run(msgspec.Struct, frozen=True):
    """Seconds, what was changed by kind, and the calls by method."""

    seconds: float
    changes: dict[str, int]
    calls: dict[str, int]
    left: int


def measure(directory: Path, name: str, machines: int) -> tuple[Run, Run]:
    """Return the first run, and the second."""
    servers = KeeperProcess()
    try:
        postgresql = Server("postgresql", "postgresql")
        with running(_KINDS[name], directory, postgresql) as real:
            dcim = Synced(real)
            dcim.add_switch(machines)
            some = [machine(f"m{number:05}", number, switch=dcim.switch) for number in range(1, machines + 1)]
            proxy = FaultyProxy(real.url)

            def run() -> Run:
                proxy.seen.clear()
                began = time.monotonic()
                done: Changes = dcim.sync(*some, url=proxy.url)
                seconds = time.monotonic() - began
                calls = Counter(seen.method for seen in proxy.seen)
                return Run(seconds, Counter(one.kind for one in done.changes), calls, len(done.left))

            first, again = run(), run()
            proxy.close()
    finally:
        servers.close()
    if len(first.changes) < 4 or first.changes["device"] != machines or first.left or again.changes or again.left:
        raise RuntimeError(f"not all machines were synced, or some twice: {first}, {again}")
    return first, again


@click.command("sync")
@click.pass_obj
@click.option("--dcim", type=click.Choice(list(_KINDS)), default=Nautobot.name, show_default=True)
@click.option("--machines", default=1000, show_default=True)
def command(found: tuple[Report, Path], dcim: str, machines: int) -> None:
    """Sync of many machines to a real Nautobot or NetBox (needs make nautobot or make netbox)."""
    report, directory = found
    report.section(f"sync: {machines} machines with two NICs, three parts and a cable each to {dcim}")
    with scratch(directory) as place:
        runs = measure(place, dcim, machines)
    rows = [
        (what, f"{run.seconds:.0f}", _told(run.changes), _told(run.calls))
        for what, run in zip(("first", "again"), runs, strict=True)
    ]
    report.table(("run", "seconds", "changes", "calls"), rows)
    report.keep(f"sync to {dcim}", runs)


def _told(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items())) or "none"
