"""``python -m tests.simulation``: run seeds, repeat one with its transcript, or look for a planted bug."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import nullcontext

import click
import structlog

from tests.simulation.bugs import BUGS
from tests.simulation.run import Result, run
from tests.simulation.scenario import from_seed

_YEAR = 365.25 * 86400


@click.command()
@click.option("--seeds", default=1000, show_default=True, help="How many seeds to run.")
@click.option("--first", default=1, show_default=True, help="The first of them.")
@click.option("--seed", type=int, help="Run this one only.")
@click.option("--transcript", is_flag=True, help="Show what happened in the run of --seed.")
@click.option("--bug", type=click.Choice(sorted(BUGS)), help="Plant this bug; stop at the seed that finds it.")
def main(seeds: int, first: int, seed: int | None, transcript: bool, bug: str | None) -> None:
    """Play the protocol core under faults; exit 1 where an invariant is broken."""
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    planted = BUGS[bug] if bug else None
    chosen = [seed] if seed is not None else range(first, first + seeds)
    counted: Counter[str] = Counter()
    simulated, began, broken, ran = 0.0, time.process_time(), 0, 0
    for number in chosen:
        scenario = from_seed(number, **dict(planted.focus)) if planted else from_seed(number)
        result = run(scenario, transcript=transcript, bug=planted.patch if planted else nullcontext)
        ran += 1
        counted += result.counted
        simulated += result.simulated
        _show(result, transcript=transcript)
        broken += result.rule is not None
        if planted and broken:
            break
    spent = time.process_time() - began
    for name in sorted(counted):
        click.echo(f"{counted[name]:>12}  {name}")
    years = simulated / _YEAR / (spent / 60)
    click.echo(
        f"{ran} seeds, {simulated / 3600:.1f} simulated hours in {spent:.0f} s of CPU, "
        f"{years:.4f} simulated years a minute; {broken} seeds broke an invariant"
    )
    raise SystemExit(1 if broken and not planted else 0)


def _show(result: Result, *, transcript: bool) -> None:
    if result.rule is not None:
        click.echo(f"seed {result.seed} breaks {result.rule}: {result.what}")
    if transcript:
        for at, actor, what in result.lines or ():
            click.echo(f"{at:>12.6f}  {actor:<28}  {what}")


if __name__ == "__main__":
    main()
