"""``site``: a fleet as sites have them. BMCs answer in about a second, some are dead or come and go; default settings.

One ``ferroscope all``, the smallest service that there is, on SQLite unless said otherwise. Every machine is inspected
at once, twice: all the healthy ones must finish, whatever the others do. Then healthy ones alone, and beside silent
BMCs, which they must hardly notice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from bench.crowd import Crowd
from bench.cycle import scratch
from bench.databases import NAMES, database
from bench.field import Plan
from bench.figures import Figure
from bench.load_process import LoadProcess
from bench.report import Report
from bench.service import Role, lines, service
from bench.usage import Memory, cpu_seconds, memory

_BMC: Final = 1.0
_BOOT: Final = 3.0
_DEAD: Final = 0.03
_FLAPPING: Final = 0.02
_OTHERS: Final = 120.0


class Place(msgspec.Struct, frozen=True):
    """Where sites are measured: below ``directory``, on a database of this kind, with more lines of configuration."""

    directory: Path
    kind: str
    extra: str
    patience: float


class Inspected(msgspec.Struct, frozen=True, kw_only=True):
    """A fleet that was inspected once. ``service`` and ``simulator`` are processors that each kept busy."""

    title: str
    crowd: Crowd
    service: float
    simulator: float
    memory: Memory
    problems: list[str]


def _inspect(title: str, role: Role, load_process: LoadProcess, patience: float, others: float) -> Inspected:
    """Inspect everybody; wait ``others`` seconds longer for those that are not healthy."""
    before = cpu_seconds(role.pid), load_process.cpu()
    crowd = load_process.do("crowd", Crowd, patience=patience, others=others)
    after = cpu_seconds(role.pid), load_process.cpu()
    return Inspected(
        title=title,
        crowd=crowd,
        service=(after[0] - before[0]) / crowd.took,
        simulator=(after[1] - before[1]) / crowd.took,
        memory=memory(role.pid),
        problems=[*(f"{name} was not booted once" for name in crowd.reboots), *role.faults()[:5]],
    )


@contextmanager
def site(title: str, place: Place, *, nodes: int, **bad: Any) -> Iterator[Callable[[float], Inspected]]:
    """Yield what inspects a site, whose machines were enrolled while their BMCs were well; ``bad``: as in ``Plan``."""
    with (
        scratch(place.directory) as scratched,
        database(place.kind, scratched) as base,
        service(scratched, base.url, roles=("all",), extra=place.extra) as running,
        LoadProcess("bench.field", scratched / "field.log") as load_process,
    ):
        load_process.ask(Plan(url=running.url, nodes=nodes, boot=_BOOT, jitter=0.5, bmc=_BMC, **bad), dict[str, Any])
        failed = load_process.do("enrol", dict[str, Any])["failed"]
        if failed:
            raise RuntimeError(f"{len(failed)} nodes could not be enrolled, such as {next(iter(failed.items()))}")
        load_process.do("spoil", dict[str, Any])
        yield lambda others: _inspect(title, running.roles["all"], load_process, place.patience, others)


def mixed(place: Place, nodes: int) -> list[Inspected]:
    """Inspect a site with bad machines twice."""
    with site(f"{nodes} machines", place, nodes=nodes, dead=_DEAD, flapping=_FLAPPING) as inspect:
        return [inspect(_OTHERS) for _ in range(2)]


def beside_silent(place: Place, nodes: int, silent: int) -> list[Inspected]:
    """Inspect healthy machines alone, then beside others with silent BMCs."""
    inspected = []
    for count in (0, silent):
        special = tuple(f"sim-bmc-dead-{number}" for number in range(count))
        title = f"{nodes} machines" + (f" and {count} silent" if count else ", all healthy")
        with site(title, place, nodes=nodes, special=special) as inspect:
            inspected.append(inspect(0.0))
    return inspected


def show(report: Report, found: list[Inspected]) -> None:
    """Show runs."""
    columns = (
        "", "healthy", "finished", "last at, s", "a second", "asked for in, s", "processed after p50 / p99, s",
        "others", "CPUs of all", "CPUs of simulator", "its lag p99, ms", "RSS, MB",
    )  # fmt: skip
    rows = [
        (
            one.title,
            one.crowd.healthy,
            len(one.crowd.ends),
            one.crowd.seconds,
            one.crowd.speed,
            one.crowd.started,
            f"{one.crowd.processed[len(one.crowd.processed) // 2] if one.crowd.processed else 0:.2f} / "
            f"{one.crowd.processed_p99:.2f}",
            ", ".join(f"{count} {state}" for state, count in sorted(one.crowd.bad.items())) or "-",
            one.service,
            one.simulator,
            one.crowd.lag,
            one.memory.rss,
        )
        for one in found
    ]
    report.table(columns, rows)
    for one in found:
        for text in one.crowd.missed[:5]:
            report.console.print(f"  missed: {text}", highlight=False, soft_wrap=True)
        report.wrong(one.problems)
        report.keep("site", one)


def figures(one: Inspected, of: str) -> Iterator[Figure]:
    """Give what is compared with targets."""
    yield Figure("site: healthy machines that did not finish", of, len(one.crowd.missed))
    if one.crowd.missed:
        return  # the others' figures would be those of a service that has less to do
    yield Figure("site: the last healthy machine finished, s", of, one.crowd.seconds)
    yield Figure("site: callback to processed p99, s", of, one.crowd.processed_p99)


@click.command("site")
@click.pass_obj
@click.option("--database", "kind", type=click.Choice(NAMES), default="sqlite", show_default=True)
@click.option("--nodes", default=500, show_default=True, help="Machines.")
@click.option("--silent", default=100, show_default=True, help="Silent BMCs beside them; 0: leave this part out.")
@click.option("--patience", default=300.0, show_default=True, help="Seconds after which one inspection is given up.")
@click.option(
    "--set", "options", multiple=True, metavar="SECTION.OPTION=VALUE", help="Configure the service otherwise."
)
def command(
    found: tuple[Report, Path],
    kind: str,
    nodes: int,
    silent: int,
    patience: float,
    options: tuple[str, ...],
) -> None:
    """Fleets with slow, dead and flapping BMCs, all at once, at default settings."""
    report, directory = found
    place = Place(directory, kind, lines(options), patience)
    report.section(f"site: {nodes} machines at once, BMCs of about {_BMC:g} s, 3% dead, 2% flapping; twice")
    runs = mixed(place, nodes)
    show(report, runs)
    for number, run in enumerate(runs, 1):
        report.found(*figures(run, f"{run.title}, run {number}"))
    if silent:
        report.section(f"site: {nodes} healthy machines, alone and beside {silent} with silent BMCs")
        alone, loaded = beside_silent(place, nodes, silent)
        show(report, [alone, loaded])
        ratio = loaded.crowd.speed / alone.crowd.speed if alone.crowd.speed else 0.0
        report.found(Figure("site: speed beside silent BMCs / without", loaded.title, ratio))
