"""``site``: a fleet as sites have them. BMCs answer in about a second, some are dead or come and go; default settings.

One ``ferroscope all``, the smallest service that there is, on SQLite unless said otherwise. Every machine is inspected
at once, twice: all the healthy ones must finish, whatever the others do. The same with ten times the machines, whose
boots take minutes (there all times of machines are divided by ``shorter``), and with silent BMCs beside healthy ones,
which must hardly notice.
"""

from __future__ import annotations

from collections.abc import Iterator
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
from bench.service import Role, Service, lines, service
from bench.usage import Memory, cpu_seconds, memory

_BMC: Final = 1.0
_BOOT: Final = 3.0
_LONG_BOOT: Final = (60.0, 300.0)
_TIMEOUT: Final = 1800.0
# So 5,000 callbacks arrive within a minute and a half, which one process can compute. Ten times shorter they cannot be.
_SHORTER: Final = 3.0
_DEAD: Final = 0.03
_FLAPPING: Final = 0.02
_OTHERS: Final = 120.0


class Inspected(msgspec.Struct, frozen=True, kw_only=True):
    """A fleet that was inspected once. ``service`` and ``simulator`` are processors that each kept busy."""

    title: str
    crowd: Crowd
    service: float
    simulator: float
    memory: Memory
    problems: list[str]


class Site:
    """A running service and a fleet that has been enrolled in it, its BMCs as they are from now on."""

    def __init__(
        self, title: str, running: Service, load_process: LoadProcess, *, patience: float, look_every: float
    ) -> None:
        self._title = title
        self._role: Role = running.roles["all"]
        self._load_process = load_process
        self._patience = patience
        self._look_every = look_every

    def inspect(self, *, others: float = _OTHERS) -> Inspected:
        """Inspect everybody; wait ``others`` seconds longer for those that are not healthy."""
        before = cpu_seconds(self._role.pid), self._load_process.cpu()
        crowd = self._load_process.do(
            "crowd", Crowd, patience=self._patience, look_every=self._look_every, others=others
        )
        after = cpu_seconds(self._role.pid), self._load_process.cpu()
        return Inspected(
            title=self._title,
            crowd=crowd,
            service=(after[0] - before[0]) / crowd.took,
            simulator=(after[1] - before[1]) / crowd.took,
            memory=memory(self._role.pid),
            problems=[*(f"{name} was not booted once" for name in crowd.reboots), *self._role.faults()[:5]],
        )


@contextmanager
def site(
    title: str,
    directory: Path,
    plan: Plan,
    *,
    patience: float,
    kind: str = "sqlite",
    look_every: float = 1.0,
    extra: str = "",
) -> Iterator[Site]:
    """Give a site of the machines of ``plan``, all of which were enrolled while their BMCs were well."""
    with (
        scratch(directory) as place,
        database(kind, place) as base,
        service(place, base.url, roles=("all",), extra=extra) as running,
        LoadProcess("bench.field", place / "field.log") as load_process,
    ):
        load_process.ask(msgspec.structs.replace(plan, url=running.url), dict[str, Any])
        failed = load_process.do("enrol", dict[str, Any])["failed"]
        if failed:
            raise RuntimeError(f"{len(failed)} nodes could not be enrolled, such as {next(iter(failed.items()))}")
        load_process.do("spoil", dict[str, Any])
        yield Site(title, running, load_process, patience=patience, look_every=look_every)


def mixed(directory: Path, nodes: int, *, patience: float, kind: str = "sqlite", extra: str = "") -> list[Inspected]:
    """Inspect a site with bad machines twice."""
    plan = Plan(url="", nodes=nodes, boot=_BOOT, jitter=0.5, bmc=_BMC, dead=_DEAD, flapping=_FLAPPING)
    with site(f"{nodes} machines", directory, plan, patience=patience, kind=kind, extra=extra) as built:
        return [built.inspect() for _ in range(2)]


def beside_silent(
    directory: Path, nodes: int, silent: int, *, patience: float, kind: str = "sqlite", extra: str = ""
) -> list[Inspected]:
    """Inspect healthy machines alone, then beside others with silent BMCs."""
    found = []
    for count in (0, silent):
        special = tuple(f"sim-bmc-dead-{number}" for number in range(count))
        plan = Plan(url="", nodes=nodes, boot=_BOOT, jitter=0.5, bmc=_BMC, special=special)
        title = f"{nodes} machines" + (f" and {count} silent" if count else ", all healthy")
        with site(title, directory, plan, patience=patience, kind=kind, extra=extra) as built:
            found.append(built.inspect(others=0.0))
    return found


def large(
    directory: Path, nodes: int, shorter: float, *, patience: float, kind: str = "sqlite", extra: str = ""
) -> Inspected:
    """Inspect a large site with long boots, all of whose machines' times and time-outs are divided by ``shorter``."""
    low, high = _LONG_BOOT
    boot, jitter = (low + high) / 2 / shorter, (high - low) / 2 / shorter
    plan = Plan(url="", nodes=nodes, boot=boot, jitter=jitter, bmc=_BMC / shorter, dead=_DEAD, flapping=_FLAPPING)
    limit = f"[inspector]\ntimeout = {_TIMEOUT / shorter:g}\n"
    title = f"{nodes} machines, time / {shorter:g}"
    with site(title, directory, plan, patience=patience, kind=kind, look_every=5.0, extra=limit + extra) as built:
        return built.inspect(others=0.0)


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
@click.option("--nodes", default=500, show_default=True, help="Machines; 0: leave this part out.")
@click.option("--silent", default=100, show_default=True, help="Silent BMCs beside them; 0: leave this part out.")
@click.option("--large", "many", default=5000, show_default=True, help="Machines with long boots; 0: leave out.")
@click.option("--shorter", default=_SHORTER, show_default=True, help="What the times of that part are divided by.")
@click.option("--patience", default=300.0, show_default=True, help="Seconds after which one inspection is given up.")
@click.option(
    "--set", "options", multiple=True, metavar="SECTION.OPTION=VALUE", help="Configure the service otherwise."
)
def command(
    found: tuple[Report, Path],
    kind: str = "sqlite",
    nodes: int = 500,
    silent: int = 100,
    many: int = 5000,
    shorter: float = _SHORTER,
    patience: float = 300.0,
    options: tuple[str, ...] = (),
) -> None:
    """Fleets with slow, dead and flapping BMCs, all at once, at default settings."""
    report, directory = found
    extra = lines(options)
    if nodes:
        report.section(f"site: {nodes} machines at once, BMCs of about {_BMC:g} s, 3% dead, 2% flapping; twice")
        runs = mixed(directory, nodes, patience=patience, kind=kind, extra=extra)
        show(report, runs)
        for number, run in enumerate(runs, 1):
            report.found(*figures(run, f"{run.title}, run {number}"))
    if nodes and silent:
        report.section(f"site: {nodes} healthy machines, alone and beside {silent} with silent BMCs")
        alone, loaded = beside_silent(directory, nodes, silent, patience=patience, kind=kind, extra=extra)
        show(report, [alone, loaded])
        ratio = loaded.crowd.speed / alone.crowd.speed if alone.crowd.speed else 0.0
        report.found(Figure("site: speed beside silent BMCs / without", loaded.title, ratio))
    if many:
        report.section(f"site: {many} machines at once, boots of 60-300 s, all times divided by {shorter:g}")
        run = large(directory, many, shorter, patience=patience, kind=kind, extra=extra)
        show(report, [run])
        report.found(*figures(run, run.title))
