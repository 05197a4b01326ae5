"""``python -m tests.support.cluster.chaos --database postgresql --seed 1 --minutes 30``: fault injection under load.

Inspections run all the time while processes are killed, frozen, partitioned and restarted in an order that depends on
the seed. ``--kills 1000,200,100 --inspections 10000`` runs a campaign of kills instead (``campaign.py``). At the end,
the installation is audited. Exit code 1 if an inspection was lost or a step took effect twice; the logs are kept then.
"""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Final

import click
import msgspec

from tests.support import databases
from tests.support.cluster.audit import Audit, audit
from tests.support.cluster.campaign import Campaign, Kills, Report
from tests.support.cluster.cluster import Cluster, Plan
from tests.support.cluster.faults import FaultInjector
from tests.support.cluster.operator import Operator
from tests.support.processes import until

# The audit compares what happened to machines with the inspections in the database, so all of them are kept.
FAST: Final = """
[worker]
threads = 4
member_ttl = 3
max_attempts = 5
get_timeout = 1
[lease]
profile = fast
[database]
statement_timeout = 2
[inspector]
timeout = 60
timeout_period = 1
retention_period = 1
retention_number = 0
"""
# Among a thousand random kills, some hit the same request several times; that must not fail it.
CAMPAIGN: Final = FAST.replace("max_attempts = 5", "max_attempts = 20").replace("threads = 4", "threads = 2")
SILENCE: Final = 3.6  # longer than the times to live of FAST
KINDS: Final = {
    "kill_worker": 10,
    "kill_leader": 2,
    "kill_api": 3,
    "freeze_worker": 2,
    "cut_worker": 2,
    "restart_worker": 2,
}


class Outcome(msgspec.Struct, frozen=True):
    """What was done, and what the audit found."""

    audit: Audit
    faults: dict[str, int]
    exits: dict[int, int]
    seconds: float
    slowest: float

    def lines(self) -> list[str]:
        """Return everything in lines, counts first."""
        rate = self.audit.inspections / self.seconds
        return [
            f"{self.seconds:.0f} s, {rate:.1f} inspections/s, the slowest took {self.slowest:.1f} s",
            *(f"{kind:>26}  {count}" for kind, count in sorted(self.faults.items())),
            f"{'exit codes':>26}  {self.exits}",
            *self.audit.lines(),
        ]


def storm(
    cluster: Cluster, *, seed: int, kinds: dict[str, int], seconds: float | None = None, calm: float = 2.0
) -> Outcome:
    """Inject faults while inspections run; then wait until the installation is idle, and audit it.

    ``kinds`` are weights for ``seconds`` long, or, without a time, exact numbers.
    """
    operator = Operator(cluster, rounds=None, at_once=min(100, cluster.plan.nodes))
    injector = FaultInjector(cluster, seed=seed, silence=SILENCE)
    began = time.monotonic()
    operator.start()
    until(lambda: operator.ended >= 5)
    for fault in injector.shuffled(kinds) if seconds is None else injector.endless(kinds):
        if seconds is not None and time.monotonic() - began >= seconds:
            break
        injector.inject(fault)
        injector.pause(calm * 0.25, calm)
    injector.revive()
    operator.finish()
    cluster.settle()
    operator.done()
    elapsed = time.monotonic() - began
    slowest = max((flight.ended - flight.accepted for flight in operator.flights), default=0.0)
    until(lambda: not _busy(cluster))
    return Outcome(audit(cluster, operator), injector.counts(), dict(injector.exits), elapsed, slowest)


def _busy(cluster: Cluster) -> bool:
    with cluster.counters() as fleet:
        return fleet.status(nodes=False).on > 0


class KillsType(click.ParamType[Kills]):
    """``W,A,L``: three numbers."""

    name = "W,A,L"

    def convert(self, value: str | Kills, param: click.Parameter | None, ctx: click.Context | None) -> Kills:
        if isinstance(value, Kills):
            return value
        try:
            workers, apis, leaders = (int(word) for word in value.split(","))
        except ValueError:
            self.fail(f"{value!r} is not three numbers, as in 1000,200,100", param, ctx)
        return Kills(workers, apis, leaders)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--database", type=click.Choice(["postgresql", "mariadb"]), default="postgresql", show_default=True)
@click.option("--seed", default=1, show_default=True)
@click.option("--minutes", default=30.0, show_default=True)
@click.option("--nodes", default=200, show_default=True, help="Simulated machines.")
@click.option("--workers", default=3, show_default=True, help="Worker processes, or supervisors.")
@click.option("--supervised", default=0, show_default=True, help="Processes under the supervisor of each worker.")
@click.option("--calm", default=2.0, show_default=True, help="Longest pause between two faults, in seconds.")
@click.option("--kills", type=KillsType(), help="Instead: kill so many workers, apis and leaders ...")
@click.option("--inspections", default=10_000, show_default=True, help="... during so many inspections.")
def main(
    *,
    database: str,
    seed: int,
    minutes: float,
    nodes: int,
    workers: int,
    supervised: int,
    calm: float,
    kills: Kills | None,
    inspections: int,
) -> None:
    """Inject faults into an installation for a while; then count what was lost and what happened twice."""
    special = () if kills else ("sim-ramdisk-error-1",)
    supervised = supervised or (4 if kills else 0)
    options = CAMPAIGN if kills else FAST
    plan = Plan(
        nodes=nodes, workers=workers, supervised=supervised, isolated=not kills, options=options, special=special
    )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was set up is taken down then, too
    directory = Path(tempfile.mkdtemp(prefix="ferroscope-chaos-"))
    with databases.private(database) as (url, _), Cluster(directory, url, plan) as cluster:
        outcome: Outcome | Report
        if kills:
            outcome = Campaign(cluster, kills, inspections, seed=seed, tell=partial(click.echo, err=True)).run()
        else:
            outcome = storm(cluster, seed=seed, seconds=minutes * 60, kinds=KINDS, calm=calm)
    click.echo(f"chaos on {database}, seed {seed}:")
    click.echo("\n".join(outcome.lines()))
    sys.stdout.flush()
    if outcome.audit.violations:
        click.echo("\n".join(["violations:", *outcome.audit.violations, f"logs: {directory}"]))
        sys.exit(1)
    shutil.rmtree(directory)
    click.echo("nothing was lost, nothing happened twice")


if __name__ == "__main__":
    main()
