"""``python -m tests.support.pxe.chaos --minutes 60 --seed 1 --database postgresql``: faults on the open filter's host.

Machines are inspected all the time, a prober asks all hosts every 50 ms, and the host whose filter is open is killed,
frozen, partitioned or has its clock stepped, in an order that depends on the seed. Exit code 1 if two hosts answered
one question, an idle machine got an answer, or an inspection was lost; the logs are kept then.
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

from bench.quantiles import spread
from tests.support.databases import private
from tests.support.pxe.faults import KINDS, Fault, FaultInjector, program
from tests.support.pxe.fleet import Fleet, Tally
from tests.support.pxe.prober import Answer, Prober
from tests.support.pxe.site import Plan, Site

# An unknown MAC, which every open filter admits: it shows which one is open.
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
    """Faults and observations. ``doubles`` describes each question that two servers answered."""

    seconds: float
    faults: list[Fault]
    doubles: list[str]
    tally: Tally
    answers: int
    slowest_round: float

    @property
    def violations(self) -> list[str]:
        """Everything that is a violation."""
        stuck = [fault.summary() for fault in self.faults if fault.reopened is None]
        return [*self.doubles, *self.tally.violations, *self.tally.lost, *stuck]

    def lines(self) -> list[str]:
        """Return everything in lines."""
        gone = [fault for fault in self.faults if fault.fail_over]
        lines = [
            f"{self.seconds:.0f} s, {len(self.faults)} faults, {len(gone)} fail-overs, {self.answers} answers",
            f"instants with two servers answering: {len(self.doubles)}",
            f"answers to idle machines (I5): {len(self.tally.violations)}; "
            f"seconds from an inspection's end to the last answer {_spread(self.tally.late)}",
            f"inspections: {self.tally.inspections}, lost: {len(self.tally.lost)}",
            f"seconds from power-on to the first answer {_spread(self.tally.waited)}; "
            f"{self.tally.again} times no host answered during a pass of the boot order, and the machine retried",
            f"longest time between two rounds of the prober: {self.slowest_round:.3f} s",
        ]
        for kind in sorted({fault.kind for fault in self.faults}):
            lines.append(_of_kind(kind, [fault for fault in self.faults if fault.kind == kind]))
        lines.append(f"seconds dark per fail-over {_spread([fault.dark for fault in gone])}")
        return lines


class Chaos:
    """Probes and inspects in an installation that is running; ``storm`` injects the faults."""

    def __init__(self, site: Site, *, profile: str, seed: int, machines: int = 12, at_once: int = 4) -> None:
        self._ttl = TTL[profile]
        self._prober: Prober = site.lab.prober()
        # A leader that is partitioned does not hear of the end of an inspection before its own lease ends.
        self._fleet = Fleet(site, self._prober, count=machines, at_once=at_once, bound=self._ttl + 2, seed=seed)
        self._injector = FaultInjector(site, self._prober, PROBE, ttl=self._ttl, seed=seed, pump=self.pump)
        self._random = random.Random(seed)
        self._first: dict[int, Answer] = {}
        self._doubles: list[str] = []
        self._heard = 0

    def pump(self, until: Callable[[], bool], seconds: float) -> bool:
        """Run machines, operator and prober until a condition holds; return False on timeout."""
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
        """Inject these faults, or random ones for ``seconds``; then wait until everything is idle."""
        began = time.monotonic()
        self._prober.add(PROBE)
        self._fleet.enroll()
        self.pump(lambda: self._fleet.tally.inspections > 0, 30.0)
        faults: list[Fault] = []
        for kind in kinds if kinds is not None else self._endless(began + seconds):
            self.pump(lambda: False, self._random.uniform(0.3, calm))
            faults.append(self._injector.inject(kind))
            self._injector.revive()
            counts = f"{sum(fault.fail_over for fault in faults)} fail-overs, {len(self._doubles)} double"
            say(f"[{time.monotonic() - began:6.1f} s] {faults[-1].summary()}; {counts}; {self._counts()}")
        self._fleet.accepting = False
        self.pump(lambda: not self._fleet.flying, _ENDING)
        self.pump(lambda: False, self._ttl + 3)
        return Outcome(
            seconds=time.monotonic() - began, faults=faults, doubles=self._doubles, tally=self._fleet.tally,
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


def _of_kind(kind: str, faults: Sequence[Fault]) -> str:
    gone = [fault for fault in faults if fault.fail_over]
    closed, reopened = [fault.closed for fault in gone], [fault.reopened or 0.0 for fault in gone]
    described = (
        f"closed after {_spread(closed)}, the next one open after {_spread(reopened)}" if gone else "none failed over"
    )
    return f"{kind:>7}  {len(faults):4}  {described}"


def _spread(values: Sequence[float]) -> str:
    if not values:
        return "-"
    found = spread(values)
    return f"p50 {found.p50 / 1000:.2f} p99 {found.p99 / 1000:.2f} max {found.max / 1000:.2f}"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--database", type=click.Choice(["postgresql", "mariadb"]), default="postgresql", show_default=True)
@click.option("--profile", type=click.Choice(sorted(TTL)), default="default", show_default=True)
@click.option("--seed", default=1, show_default=True)
@click.option("--minutes", default=60.0, show_default=True)
@click.option("--calm", default=3.0, show_default=True, help="Longest pause between two faults, in seconds.")
@click.option("--keep", is_flag=True, help="Keep the logs in any case.")
def main(*, database: str, profile: str, seed: int, minutes: float, calm: float, keep: bool) -> None:
    """Inject faults for a while; count violations, and how long machines had to wait."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was set up is taken down then, too
    directory = Path(tempfile.mkdtemp(prefix="ferroscope-pxe-chaos-"))
    click.echo(f"PXE chaos on {database}, profile {profile}, seed {seed}, {minutes:g} minutes; logs in {directory}")
    with private(database) as (url, _), Site(directory, url, plan(profile)) as site:
        outcome = Chaos(site, profile=profile, seed=seed).storm(
            None, seconds=minutes * 60, calm=calm, say=lambda line: (click.echo(line), sys.stdout.flush())[1]
        )
    click.echo("\n".join(outcome.lines()))
    if outcome.violations:
        click.echo("\n".join(["violations:", *outcome.violations, f"logs: {directory}"]))
        sys.exit(1)
    if not keep:
        shutil.rmtree(directory)
    click.echo("one filter at a time, no inspection lost")


if __name__ == "__main__":
    main()
