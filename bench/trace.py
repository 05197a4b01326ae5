"""``trace``: how an inspection travels through the source: calls, files, and how often it goes back and forth.

Counts and not times, so they are the same on every machine. A switch is a call of a function in another file than that
of the call before it; ``depth`` counts the functions of the service that wait for each other.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import Final

import click
import msgspec

from bench.cycle import enrolled, scratch
from bench.databases import NAMES
from bench.field import Plan
from bench.report import Report
from bench.traced import FILE, Journey

_TRACED: Final = str(Path(__file__).with_name("traced.py"))
_ROUNDS: Final = 3
# How a journey's title ends, and what it is called in the report.
_WANTED: Final = {
    "/states/provision": "PUT inspect: api",
    "worker: inspect": "start of the machine: worker",
    "continue_inspection": "callback: api",
    "worker: continue": "processing: worker",
    "worker: finish": "finish: worker",
}


class Route(msgspec.Struct, frozen=True):
    """What one journey amounts to. ``calls`` and all others are of functions of the service, but ``python``: of any."""

    title: str
    calls: int
    python: int
    functions: int
    files: int
    switches: int
    depth: int
    db: int

    @classmethod
    def of(cls, title: str, journey: Journey) -> Route:
        files = [path for _, path, _ in journey.steps]
        return cls(
            title=title,
            calls=len(files),
            python=journey.calls,
            functions=len({(path, name) for _, path, name in journey.steps}),
            files=len(set(files)),
            switches=sum(here != there for here, there in itertools.pairwise(files)),
            depth=max(depth for depth, _, _ in journey.steps),
            db=sum(path.startswith("db/") for path in files),
        )


def measure(name: str, directory: Path) -> dict[str, Journey]:
    """Inspect two nodes a few times, one after the other; return the last journey of each kind, by its title."""
    traced = [sys.executable, "-P", _TRACED, str(directory)]
    with enrolled(name, Plan(nodes=2), directory, roles=["all"], commands={"all": traced}) as fleet:
        for _ in range(_ROUNDS):
            fleet.inspect(concurrency=1, check=False)
    journeys = [msgspec.json.decode(line, type=Journey) for line in (directory / FILE).read_bytes().splitlines()]
    last = {title: journey for journey in journeys for end, title in _WANTED.items() if journey.title.endswith(end)}
    return {title: last[title] for title in _WANTED.values()}


@click.command("trace")
@click.pass_obj
@click.option("--database", "databases", type=click.Choice(NAMES), multiple=True, default=("sqlite", "postgresql"))
@click.option("--steps", multiple=True, metavar="TEXT", help="Print all calls of the journeys with TEXT in their name.")
def command(context: tuple[Report, Path], databases: tuple[str, ...], steps: tuple[str, ...]) -> None:
    """The journey of one inspection through the source."""
    report, directory = context
    for name in databases:
        report.section(f"trace on {name}")
        with scratch(directory) as place:
            journeys = measure(name, place)
        routes = [Route.of(title, journey) for title, journey in journeys.items()]
        head = ("", "calls", "of Python", "functions", "files", "switches", "depth", "in db/")
        report.table(head, [msgspec.structs.astuple(route) for route in routes])
        for title, journey in journeys.items():
            if any(wanted in title for wanted in steps):
                report.section(title)
                for depth, path, called in journey.steps:
                    report.console.print(f"{'  ' * (depth - 1)}{path}: {called}", soft_wrap=True)
        report.keep("trace", routes)
        report.figure("calls of an inspection", name, sum(route.calls for route in routes))
        report.figure("calls of an inspection in db/", name, sum(route.db for route in routes))
        report.figure("calls of Python of an inspection", name, sum(route.python for route in routes))
