"""``compare``: inspections per second of two configurations, in alternating turns within one run.

``features``: every hook and twenty rules, against the default hooks alone. ``singletons``: with all periodic singletons
and their elections, as by default, against none. Alternating turns on new databases even out other load on the machine.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import click
import msgspec
import urllib3

from bench.cycle import Cycle, Load, median_round
from bench.cycle import measure as measure_cycle
from bench.databases import NAMES
from bench.figures import Figure
from bench.hooks import ALL
from bench.quantiles import middle
from bench.report import Report
from bench.rules import example
from bench.service import Service

_RULES: Final = 20
# The first version of the Bare Metal API that has inspection rules.
_WITH_RULES: Final = "1.96"


class Variant(msgspec.Struct, frozen=True):
    """A configuration: lines for its file, and what is done before anything is inspected."""

    name: str
    extra: str = ""
    prepare: Callable[[Service], None] | None = None


def add_rules(running: Service) -> None:
    """Store twenty rules through the API."""
    pool, version = urllib3.PoolManager(), {"X-OpenStack-Ironic-API-Version": _WITH_RULES}
    for number in range(_RULES):
        rule = example(number)
        body = {"priority": rule.priority, "conditions": rule.conditions, "actions": rule.actions}
        answer = pool.request("POST", f"{running.url}/v1/inspection_rules", json=body, headers=version)
        if answer.status != 201:
            raise RuntimeError(f"the rule {number} was not taken: {answer.status} {answer.data.decode()[:300]}")


# The one that is measured, the one that it is measured against.
PAIRS: Final = {
    "features": (
        Variant(f"{len(ALL)} hooks, {_RULES} rules", f"[inspector]\nhooks = {','.join(ALL)}\n", add_rules),
        Variant("default hooks"),
    ),
    "singletons": (
        Variant("all singletons"),
        Variant("none", "[inspector]\ntimeout_period = 0\nretention_period = 0\n"),
    ),
}


class Comparison(msgspec.Struct, frozen=True):
    """The cycles of both variants, in the order of their turns."""

    first: list[Cycle]
    second: list[Cycle]

    @property
    def ratio(self) -> float:
        """The first's median rate divided by the second's."""
        return rate(self.first) / rate(self.second)


def rate(cycles: list[Cycle]) -> float:
    """Return the median of the rounds, without each first one, whose processes are fresh."""
    return middle([round_.rate for cycle in cycles for round_ in cycle.rounds[1:]])


def measure(pair: tuple[Variant, Variant], name: str, load: Load, directory: Path, turns: int) -> Comparison:
    """Run both variants in turns."""
    found = Comparison([], [])
    for _ in range(turns):
        for variant, cycles in zip(pair, (found.first, found.second), strict=True):
            cycles.append(measure_cycle(name, load, directory, extra=variant.extra, prepare=variant.prepare))
    return found


@click.command("compare")
@click.pass_obj
@click.argument("pair", type=click.Choice(list(PAIRS)))
@click.option("--database", "databases", type=click.Choice(NAMES), multiple=True, default=("sqlite", "postgresql"))
@click.option("--turns", default=2, show_default=True)
@click.option("--nodes", default=200, show_default=True)
@click.option("--rounds", default=4, show_default=True)
def compare(
    found: tuple[Report, Path], pair: str, databases: tuple[str, ...], turns: int, nodes: int, rounds: int
) -> None:
    """Two configurations side by side: ``features`` or ``singletons``."""
    report, directory = found
    for name in databases:
        report.section(f"compare {pair} on {name}: {turns} turns of {rounds} rounds, {nodes} nodes")
        variants = PAIRS[pair]
        measured = measure(variants, name, Load(nodes=nodes, rounds=rounds), directory, turns)
        rows = []
        for variant, cycles in zip(variants, (measured.first, measured.second), strict=True):
            raw = " ".join(f"{round_.rate:.0f}" for cycle in cycles for round_ in cycle.rounds)
            spent = " ".join(f"{median_round(cycle.rounds).ours:.1f}" for cycle in cycles)
            rows.append((variant.name, rate(cycles), raw, spent))
            report.wrong([problem for cycle in cycles for problem in cycle.problems])
        report.table(("configuration", "insp/s", "rounds", "CPU ms, by turn"), rows)
        report.keep(f"compare {pair} {name}", measured)
        report.found(Figure(f"inspections/s, {variants[0].name} / {variants[1].name}", name, measured.ratio))
