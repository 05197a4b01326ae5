"""``site``: a fleet as sites have them. BMCs answer in about a second, some are dead or come and go; default settings.

One ``ferroscope all``, the smallest service that there is, on SQLite unless said otherwise. Every machine is inspected
at once, twice: all the healthy ones must finish, whatever the others do. Then healthy ones alone, and beside silent
BMCs, which they must hardly notice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from bench.crowd import Crowd
from bench.cycle import enrolled
from bench.databases import NAMES
from bench.field import Plan
from bench.report import Report
from bench.usage import cpu_seconds, memory

_BMC_SECONDS: Final = 1.0
_BOOT_SECONDS: Final = 3.0
_DEAD: Final = 0.03
_FLAPPING: Final = 0.02
# After the healthy ones have finished: for the others.
_OTHERS_SECONDS: Final = 120.0

Inspect = Callable[..., Crowd]


@contextmanager
def site(report: Report, title: str, kind: str, directory: Path, **plan: Any) -> Iterator[Inspect]:
    """Yield what inspects a site, whose machines were enrolled while their BMCs were well; ``plan``: as in ``Plan``."""
    fleet_plan = Plan(boot=_BOOT_SECONDS, jitter=0.5, bmc=_BMC_SECONDS, **plan)
    with enrolled(kind, fleet_plan, directory, roles=("all",)) as fleet:
        fleet.load_process.do("spoil", type(None))
        role = fleet.service.roles["all"]

        def inspect(patience: float, others: float) -> Crowd:
            before = cpu_seconds(role.pid)
            crowd = fleet.load_process.do("crowd", Crowd, patience=patience, others=others)
            busy = (cpu_seconds(role.pid) - before) / crowd.took
            columns = ("", "healthy", "finished", "last at, s", "a second", "processed p99, s", "CPUs", "RSS, MB")
            times = (crowd.seconds, crowd.speed, crowd.processed_p99, busy, memory(role.pid).rss)
            report.table(columns, [(title, crowd.healthy, len(crowd.ends), *times)])
            for text in crowd.missed[:5]:
                report.console.print(f"  missed: {text}", soft_wrap=True)
            report.wrong([*(f"{name} was not booted once" for name in crowd.reboots), *role.faults()[:5]])
            report.keep(f"site {title}", crowd)
            return crowd

        yield inspect


@click.command("site")
@click.pass_obj
@click.option("--database", "kind", type=click.Choice(NAMES), default="sqlite", show_default=True)
@click.option("--nodes", default=500, show_default=True, help="Machines.")
@click.option("--silent", default=100, show_default=True, help="Silent BMCs beside them; 0: leave this part out.")
@click.option("--patience", default=300.0, show_default=True, help="Seconds after which one inspection is given up.")
def command(context: tuple[Report, Path], kind: str, nodes: int, silent: int, patience: float) -> None:
    """Fleets with slow, dead and flapping BMCs, all at once, at default settings."""
    report, directory = context
    opened = partial(site, report, kind=kind, directory=directory, nodes=nodes)
    report.section(f"site: {nodes} machines at once, BMCs of about {_BMC_SECONDS:g} s, 3% dead, 2% flapping; twice")
    with opened(f"{nodes} machines", dead=_DEAD, flapping=_FLAPPING) as inspect:
        for number in (1, 2):
            crowd, of = inspect(patience, _OTHERS_SECONDS), f"{nodes} machines, run {number}"
            report.figure("site: healthy machines that did not finish", of, len(crowd.missed), most=0)
            if not crowd.missed:  # else the service had less to do
                report.figure(
                    "site: the last healthy machine finished, s", of, crowd.seconds, most=60 if nodes <= 500 else None
                )
                report.figure("site: callback to processed p99, s", of, crowd.processed_p99, most=2)
    if not silent:
        return
    report.section(f"site: {nodes} healthy machines, alone and beside {silent} with silent BMCs")
    speeds = []
    for count in (0, silent):
        special = tuple(f"sim-bmc-dead-{number}" for number in range(count))
        title = f"{nodes} machines and {count} silent" if count else f"{nodes} machines, all healthy"
        with opened(title, special=special) as inspect:
            speeds.append(inspect(patience, 0.0).speed)
    report.figure(
        "site: speed beside silent BMCs / without", title, speeds[1] / speeds[0] if speeds[0] else 0.0, least=0.9
    )
