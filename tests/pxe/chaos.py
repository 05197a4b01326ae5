"""``python -m tests.pxe.chaos --minutes 60 --seed 1 --database postgresql``: blows to the open filter, without end.

Machines are inspected all the time, a prober asks all hosts every 50 ms, and the host whose filter is open is killed,
frozen, cut off or set to another time, in an order that the seed chooses. Exit code 1 where two hosts answered one
question, an idle machine was answered, or an inspection was lost; the directory with all logs is kept then.
"""

from __future__ import annotations

import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import click
import msgspec

from tests.cluster.chaos import private
from tests.pxe.blows import KINDS, Blow, Blows, program
from tests.pxe.fleet import Fleet, Tally
from tests.pxe.prober import Answer, Prober
from tests.pxe.site import Plan, Site

# Known to nobody, so that every open filter lets it in: it shows who is open.
PROBE: Final = "52:54:00:ee:00:01"
TTL: Final = {"default": 6.0, "fast": 3.0}
_OPTIONS: Final = """
unknown_hosts = allow
[lease]
profile = {profile}
[inspector]
timeout = 300
timeout_period = 2
[worker]
get_timeout = 1
"""
_ENDING: Final = 320.0
Say = Callable[[str], None]


class Outcome(msgspec.Struct, kw_only=True):
    """What was done and seen. ``doubles``: questions that two servers answered, each a sentence."""

    seconds: float
    blows: list[Blow]
    doubles: list[str]
    tally: Tally
    answers: int
    slowest_round: float

    @property
    def violations(self) -> list[str]:
        """Everything that must not be."""
        stuck = [blow.sentence() for blow in self.blows if blow.reopened is None]
        return [*self.doubles, *self.tally.violations, *self.tally.lost, *stuck]

    def lines(self) -> list[str]:
        """Return everything in lines."""
        gone = [blow for blow in self.blows if blow.fail_over]
        lines = [
            f"{self.seconds:.0f} s, {len(self.blows)} blows, {len(gone)} fail-overs, {self.answers} answers",
            f"instants with two servers answering: {len(self.doubles)}",
            f"answers to idle machines (I5): {len(self.tally.violations)}; "
            f"seconds from an inspection's end to the last answer {_spread(self.tally.late)}",
            f"inspections: {self.tally.inspections}, lost: {len(self.tally.lost)}",
            f"seconds from power-on to the first answer {_spread(self.tally.waited)}; "
            f"{self.tally.again} times nobody answered until the boot order was through, and it began again",
            f"longest time between two rounds of the prober: {self.slowest_round:.3f} s",
        ]
        for kind in sorted({blow.kind for blow in self.blows}):
            lines.append(_of_kind(kind, [blow for blow in self.blows if blow.kind == kind]))
        lines.append(f"seconds dark per fail-over {_spread([blow.dark for blow in gone])}")
        return lines


class Chaos:
    """Everything runs; ``storm`` does it."""

    def __init__(self, site: Site, *, profile: str, seed: int, machines: int = 12, at_once: int = 4) -> None:
        self._ttl = TTL[profile]
        self._prober: Prober = site.lab.prober()
        # A leader that is cut off does not hear of an end before its own one.
        self._fleet = Fleet(site, self._prober, count=machines, at_once=at_once, bound=self._ttl + 2, seed=seed)
        self._blows = Blows(site, self._prober, PROBE, ttl=self._ttl, seed=seed, pump=self.pump)
        self._random = random.Random(seed)
        self._first: dict[int, Answer] = {}
        self._doubles: list[str] = []
        self._heard = 0

    def pump(self, until: Callable[[], bool], seconds: float) -> bool:
        """Let machines, operator and prober go on until something holds; False where it does not, in time."""
        deadline = time.monotonic() + seconds
        while not until():
            if time.monotonic() >= deadline:
                return False
            self._prober.look()
            fresh = self._prober.answers[self._heard :]
            self._heard += len(fresh)
            self._compare(fresh)
            self._fleet.tick(fresh)
            time.sleep(0.02)
        return True

    def storm(
        self, kinds: Iterable[str] | None, *, seconds: float = 0.0, calm: float = 3.0, say: Say = print
    ) -> Outcome:
        """Strike these blows, or any for so many seconds; then let everything come to rest."""
        began = time.monotonic()
        self._prober.add(PROBE)
        self._fleet.enroll()
        self.pump(lambda: self._fleet.tally.inspections > 0, 30.0)
        blows: list[Blow] = []
        for kind in kinds if kinds is not None else self._endless(began + seconds):
            self.pump(lambda: False, self._random.uniform(0.3, calm))
            blows.append(self._blows.strike(kind))
            self._blows.revive()
            counts = f"{sum(blow.fail_over for blow in blows)} fail-overs, {len(self._doubles)} double"
            say(f"[{time.monotonic() - began:6.1f} s] {blows[-1].sentence()}; {counts}; {self._counts()}")
        self._fleet.accepting = False
        self.pump(lambda: not self._fleet.flying, _ENDING)
        self.pump(lambda: False, self._ttl + 3)
        return Outcome(
            seconds=time.monotonic() - began, blows=blows, doubles=self._doubles, tally=self._fleet.tally,
            answers=len(self._prober.answers), slowest_round=self._prober.longest,
        )  # fmt: skip

    def _endless(self, until: float) -> Iterator[str]:
        while time.monotonic() < until:
            yield from self._random.choices(list(KINDS), list(KINDS.values()))

    def _compare(self, fresh: Sequence[Answer]) -> None:
        for answer in fresh:
            other = self._first.setdefault(answer.xid, answer)
            if other.server != answer.server:
                self._doubles.append(
                    f"{answer.mac} was answered by {other.server} and {answer.server} at {answer.asked:.2f}"
                )

    def _counts(self) -> str:
        tally = self._fleet.tally
        return f"{tally.inspections} inspections, {len(tally.lost)} lost, {len(tally.violations)} idle answered"


def plan(profile: str) -> Plan:
    """Return the installation that chaos runs on."""
    return Plan(options=_OPTIONS.format(profile=profile), program=program)


def _of_kind(kind: str, blows: Sequence[Blow]) -> str:
    gone = [blow for blow in blows if blow.fail_over]
    closed, reopened = [blow.closed for blow in gone], [blow.reopened or 0.0 for blow in gone]
    told = (
        f"closed after {_spread(closed)}, the next one open after {_spread(reopened)}" if gone else "none failed over"
    )
    return f"{kind:>7}  {len(blows):4}  {told}"


def _spread(values: Sequence[float]) -> str:
    if not values:
        return "-"
    ordered = sorted(values)
    p50, p99 = (ordered[min(len(ordered) - 1, int(share * len(ordered)))] for share in (0.5, 0.99))
    return f"p50 {p50:.2f} p99 {p99:.2f} max {ordered[-1]:.2f}"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--database", type=click.Choice(["postgresql", "mariadb"]), default="postgresql", show_default=True)
@click.option("--profile", type=click.Choice(sorted(TTL)), default="default", show_default=True)
@click.option("--seed", default=1, show_default=True)
@click.option("--minutes", default=60.0, show_default=True)
@click.option("--calm", default=3.0, show_default=True, help="Most seconds between two blows.")
@click.option("--keep", is_flag=True, help="Keep the logs in any case.")
def main(*, database: str, profile: str, seed: int, minutes: float, calm: float, keep: bool) -> None:
    """Strike the open filter for a while; count what must not be, and how long machines had to wait."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was set up is taken down then, too
    directory = Path(tempfile.mkdtemp(prefix="ferroscope-pxe-chaos-"))
    click.echo(f"PXE chaos on {database}, profile {profile}, seed {seed}, {minutes:g} minutes; logs in {directory}")
    with private(database) as url, Site(directory, url, plan(profile)) as site:
        outcome = Chaos(site, profile=profile, seed=seed).storm(
            None, seconds=minutes * 60, calm=calm, say=lambda line: (click.echo(line), sys.stdout.flush())[1]
        )
    click.echo("\n".join(outcome.lines()))
    if outcome.violations:
        click.echo("\n".join(["violations:", *outcome.violations, f"logs: {directory}"]))
        sys.exit(1)
    if not keep:
        shutil.rmtree(directory)
    click.echo("one filter at a time, nobody was lost")


if __name__ == "__main__":
    main()
