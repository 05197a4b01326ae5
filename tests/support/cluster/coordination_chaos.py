"""``python -m tests.support.cluster.coordination_chaos --service etcd --minutes 3``: faults for a party with a service.

A second party, which has only the database, gets the same faults at the same time: leaders are killed, frozen, and cut
off from everything. In between, the service is killed, frozen, and cut off from one candidate or from all, while
leaders die. Counted are stale writes and double leaders, and how long it took until there was a successor. Exit code 1
if there was a stale write or a double leader, or if the slowest fail-overs with the service were slower than those of
the database alone.
"""

from __future__ import annotations

import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import click
import msgspec

from bench.quantiles import spread
from tests.support import databases
from tests.support.cluster.etcd_cluster import EtcdCluster, etcd_cluster
from tests.support.cluster.party import SCHEMES, Party, Trail
from tests.support.installation import Played
from tests.support.kubernetes import Cluster
from tests.support.processes import PATIENCE
from tests.support.servers import KeeperProcess, Server

# The defaults of the product, but for heartbeats, which restarted processes are found by.
OPTIONS: Final = "[database]\nstatement_timeout = 2\n"
CLUSTER: Final = "etcd-cluster"
SESSION: Final = 3
TTL: Final = 6.0
# Longer than a session and a lease.
SILENCE: Final = 8.0
# Seconds by which one measurement may be late on a busy machine, and candidates' polls differ: at the p99, both count.
TOLERANCE: Final = 0.5
FAULTS: Final = {
    "kill_leaders": 6,
    "freeze_leaders": 3,
    "cut_leaders": 2,
    "cut_leader_from_service": 1,
    "kill_service": 1,
    "freeze_service": 1,
    "cut_all_from_service": 1,
}
OF_CLUSTERS: Final = {"kill_member_of_service": 4}


class Outcome(msgspec.Struct):
    """What was done and found: ``takeovers`` in seconds, by party, with the service at work and without it."""

    faults: Counter[str] = msgspec.field(default_factory=Counter)
    takeovers: dict[str, list[float]] = msgspec.field(default_factory=dict)
    trails: dict[str, Trail] = msgspec.field(default_factory=dict)
    early: int = 0
    needless: int = 0

    def lines(self) -> list[str]:
        """Return everything in lines."""
        faults = ", ".join(f"{count} {kind}" for kind, count in sorted(self.faults.items()))
        found = [f"faults: {faults}"]
        for name, seconds in sorted(self.takeovers.items()):
            of = spread(seconds)
            times = f"{of.p50 / 1000:.2f} / {of.p99 / 1000:.2f} / {of.max / 1000:.2f} s (p50 / p99 / max)"
            found.append(f"{name}: {len(seconds)} fail-overs, {times}")
        for name, trail in self.trails.items():
            found.append(
                f"{name}: {trail.rows} writes in {trail.epochs} epochs, {trail.stale} stale writes, "
                f"{trail.doubled} epochs with two leaders"
            )
        return [*found, f"{self.early} leases were taken over early; {self.needless} from leaders without the service"]

    def wrong(self) -> list[str]:
        """Return what must not be."""
        found = [f"{name}: {trail}" for name, trail in self.trails.items() if trail.stale or trail.doubled]
        with_service, alone = (spread(self.takeovers.get(name, [])).p99 / 1000 for name in ("service", "sql"))
        if with_service > alone + TOLERANCE:
            found.append(f"fail-over with the service took {with_service:.2f} s, without it {alone:.2f} s (p99)")
        return found


class Storm:
    """Faults for two parties, ``service`` behind a coordination service and ``sql`` without, at the same time."""

    def __init__(self, service: Server | EtcdCluster | Cluster, parties: dict[str, Party], seed: int) -> None:
        self._service = service
        self._faults = FAULTS | (OF_CLUSTERS if isinstance(service, EtcdCluster) else {})
        self._parties = parties
        self._random = random.Random(seed)
        self.outcome = Outcome()

    def run(self, seconds: float) -> Outcome:
        """Inject faults for so long, but at least one of each kind; then judge."""
        until = time.monotonic() + seconds
        first = self._random.sample(list(self._faults), len(self._faults))
        while first or time.monotonic() < until:
            kind = first.pop() if first else self._random.choices(list(self._faults), list(self._faults.values()))[0]
            self._rest()
            getattr(self, kind)()
            self.outcome.faults[kind] += 1
        self._rest()
        self.outcome.trails = {name: party.trail() for name, party in self._parties.items()}
        logs = [one.log.read_text(errors="replace") for one in self._parties["service"].candidates]
        self.outcome.early = sum(log.count("lease taken over from a lost member") for log in logs)
        return self.outcome

    def kill_leaders(self) -> None:
        """SIGKILL."""
        self._replace("", lambda _party, leader: leader.kill())

    def freeze_leaders(self) -> None:
        """SIGSTOP for longer than a session and a lease."""
        with self._replaced("", lambda _party, leader: leader.freeze()) as leaders:
            time.sleep(max(0.0, SILENCE - TTL))
            for leader in leaders.values():
                leader.thaw()

    def cut_leaders(self) -> None:
        """Partition the leaders from the database, and from the service where there is one, as if their hosts were."""

        def cut(party: Party, leader: Played) -> None:
            for link in party.links[leader.name]:
                link.cut()

        with self._replaced("", cut) as leaders:
            for name, leader in leaders.items():
                for link in self._parties[name].links[leader.name]:
                    link.heal()

    def cut_leader_from_service(self) -> None:
        """Partition a leader from the service alone: it goes on, for it renews its lease."""
        party = self._parties["service"]
        leader, epoch = party.wait_led()
        link = party.links[leader.name][1]
        link.cut()
        time.sleep(SILENCE)
        self.outcome.needless += party.leader()[1] != epoch
        link.heal()

    def kill_service(self) -> None:
        """SIGKILL the service; leaders die meanwhile; it comes back with what it still has."""
        self._service.kill()
        self._without_service()
        self._service.start()

    def kill_member_of_service(self) -> None:
        """SIGKILL one of the service's members; leaders die while the others elect, or later."""
        assert isinstance(self._service, EtcdCluster)
        self._service.kill_one()
        time.sleep(self._random.uniform(0.0, 2 * SESSION))
        self._replace(" without one of its members", lambda _party, leader: leader.kill())
        self._service.start()

    def freeze_service(self) -> None:
        """SIGSTOP the service; leaders die meanwhile."""
        self._service.freeze()
        self._without_service()
        self._service.thaw()

    def cut_all_from_service(self) -> None:
        """Partition the service from everybody; leaders die meanwhile."""
        links = [of_one[1] for of_one in self._parties["service"].links.values()]
        for link in links:
            link.cut()
        self._without_service()
        for link in links:
            link.heal()

    def _without_service(self) -> None:
        time.sleep(self._random.uniform(0.0, 2 * SESSION))
        self._replace(" during an outage", lambda _party, leader: leader.kill())

    def _replace(self, when: str, harm: Callable[[Party, Played], None]) -> None:
        with self._replaced(when, harm):
            pass

    @contextmanager
    def _replaced(self, when: str, harm: Callable[[Party, Played], None]) -> Iterator[dict[str, Played]]:
        """Harm both leaders at once, and measure how long it takes until there are others."""
        leaders = {name: party.wait_led() for name, party in self._parties.items()}
        began = {}
        for name, (leader, _) in leaders.items():
            harm(self._parties[name], leader)
            began[name] = time.monotonic()
        waiting = set(leaders)
        while waiting and time.monotonic() < max(began.values()) + PATIENCE:
            for name in sorted(waiting):
                if self._parties[name].leader()[1] > leaders[name][1]:
                    self.outcome.takeovers.setdefault(name + when, []).append(time.monotonic() - began[name])
                    waiting.remove(name)
            time.sleep(0.02)
        assert not waiting, f"nobody leads: {waiting}"
        yield {name: leader for name, (leader, _) in leaders.items()}

    def _rest(self) -> None:
        """Wait until everything is as at the beginning."""
        for party in self._parties.values():
            party.revive()
            party.wait_led()
        everybody = partial(self._parties["service"].all_see, len(self._parties["service"].candidates))
        deadline = time.monotonic() + PATIENCE
        while not everybody():
            assert time.monotonic() < deadline, "the candidates do not find back to the service"
            time.sleep(0.1)
        time.sleep(self._random.uniform(0.2, 1.7))  # a renewal interval: takeovers begin at any point of it


def storm(
    directory: Path,
    urls: Sequence[str],
    service: Server | EtcdCluster | Cluster,
    *,
    seconds: float,
    seed: int,
    candidates: int,
) -> Outcome:
    """Run a storm on two parties, with a database each."""
    with ExitStack() as stack:
        parties = {}
        for name, url, its_service in zip(("service", "sql"), urls, (service, None), strict=True):
            place = directory / name
            place.mkdir()
            party = Party(
                place, url, OPTIONS, service=its_service, session=SESSION, candidates=candidates, can_be_cut=True
            )
            parties[name] = stack.enter_context(party)
        return Storm(service, parties, seed).run(seconds)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--service", "kind", type=click.Choice([*SCHEMES, CLUSTER, "kubernetes"]), default="etcd", show_default=True
)
@click.option("--minutes", default=3.0, show_default=True)
@click.option("--seed", default=1, show_default=True)
@click.option("--candidates", default=3, show_default=True, help="Processes of each party.")
def main(kind: str, minutes: float, seed: int, candidates: int) -> None:
    """Count stale writes and double leaders while a coordination service and its clients are harmed."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was set up is taken down then, too
    directory = Path(tempfile.mkdtemp(prefix="ferroscope-coordination-"))
    with ExitStack() as stack:
        stack.enter_context(closing(KeeperProcess()))
        database = Server("postgresql", "postgresql")
        one, other = (stack.enter_context(databases.fresh(database)) for _ in range(2))
        if kind == "kubernetes":
            (directory / kind).mkdir()
            service: Server | EtcdCluster | Cluster = stack.enter_context(Cluster(directory / kind))
        elif kind == CLUSTER:
            service = stack.enter_context(etcd_cluster())
        else:
            service = Server(kind, kind)
        outcome = storm(directory, (one, other), service, seconds=minutes * 60, seed=seed, candidates=candidates)
    click.echo("\n".join([f"chaos with {kind}, seed {seed}:", *outcome.lines()]))
    if wrong := outcome.wrong():
        click.echo("\n".join(["violations:", *wrong, f"logs: {directory}"]))
        sys.exit(1)
    shutil.rmtree(directory)


if __name__ == "__main__":
    main()
