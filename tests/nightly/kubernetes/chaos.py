"""``python -m tests.nightly.kubernetes.chaos --faults 1000 --seed 1``: nodes, BMCs, the API server and leaders fail.

Each node has a thread that breaks it in an order that depends on the seed, and repairs it; another one breaks what they
share. At the end everything is repaired, and ``witness`` judges by the API server's audit log, the hollow kubelets and
the machines' power. Exit code 1 if something was forced without proof, a pod ran twice, or a remediation was lost.

A BMC that lies and does not obey is only asked about nodes that are cut off for a short time: for longer, the lie would
be believed (see docs/explanation/proof-of-death.md).
"""

from __future__ import annotations

import random
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import click
import requests

from bench.quantiles import spread
from ferroscope.core.remediation import Phase
from tests.nightly.kubernetes.fleet import QUICK, Fleet
from tests.nightly.kubernetes.rack import Machine, Says
from tests.nightly.kubernetes.witness import Witness
from tests.support.installation import Played
from tests.support.kubernetes import GRACE
from tests.support.processes import until

_PATIENCE: Final = 180.0  # seconds in which the pods of a dead node must run elsewhere, whatever else fails
_NOTICED: Final = 3 * GRACE  # seconds in which a machine without power is a failed node, and a remediation begins
_WEIGHTS: Final = {
    "flap": 40, "partition": 14, "power loss": 12, "hang": 10, "partition, BMC silent": 5,
    "power loss, BMC flapping": 5, "hang, BMC says error": 5, "BMC says off, machine on": 6,
    "BMC says on, machine off": 3, "partition, BMC says unknown": 4, "power loss, BMC says changing": 3,
    "partition, mistaken machine": 5, "hang, finalizer": 4, "power loss, cordoned": 3,
}  # fmt: skip
_SHARED: Final = {
    "leader killed": 6, "leader frozen": 5, "leader killed in a phase": 6, "leader frozen in a phase": 5,
    "API server killed": 2, "API server frozen": 4, "etcd frozen": 1,
}  # fmt: skip
_SAYS: Final[dict[str, Says]] = {
    "silent": "silent", "flapping": "flapping", "error": "error", "on": "on", "unknown": "unknown",
    "changing": "changing",
}  # fmt: skip
_FINALIZER: Final = "example.invalid/kept"
_STARTS: Final = 30
_PHASES: Final = (Phase.DWELL, Phase.POWERING_OFF, Phase.EVACUATING, Phase.EVACUATED, Phase.RETURNING)


class Chaos:
    """Breaks ``fleet`` until ``faults`` were injected or ``seconds`` are over."""

    def __init__(self, fleet: Fleet, witness: Witness, *, seed: int, faults: int, seconds: float, at_once: int) -> None:
        self.counts: Counter[str] = Counter()
        self.late: list[str] = []
        self.left_off: list[str] = []
        self.powered_on = 0  # by the operator, because a remediation asked for it
        self.started_over = 0
        self.ended: list[str] = []
        self._off_since: dict[str, float] = {}
        self._fleet = fleet
        self._witness = witness
        self._seed = seed
        self._faults = faults
        self._ends_at = time.monotonic() + seconds
        self._turns = threading.Semaphore(at_once)
        self._lock = threading.Lock()
        self._done = threading.Semaphore(0)
        self._released = threading.Event()
        self.fault: BaseException | None = None

    def run(self) -> None:
        """Inject all of them; return when every thread has repaired what it broke."""
        breakers = [threading.Thread(target=self._shared, daemon=True)]
        machines = self._fleet.machines.values()
        breakers += [threading.Thread(target=self._one, args=(one,), daemon=True) for one in machines]
        for thread in breakers:
            thread.start()
        for _ in breakers:
            while not self._done.acquire(timeout=20):
                said = f"{sum(self.counts.values())} faults, {len(self._fleet.active())} remediations in progress"
                click.echo(f"{said}, {len(self._witness.replaced)} pods replaced", err=True)
        if self.fault is not None:
            raise self.fault

    def release(self) -> None:
        """Let the threads end, and with them all that they have started: the kernel kills it then."""
        self._released.set()

    @property
    def over(self) -> bool:
        done = sum(self.counts.values()) >= self._faults
        return done or self.fault is not None or time.monotonic() >= self._ends_at

    def _note(self, kind: str) -> None:
        with self._lock:
            self.counts[kind] += 1

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as fault:  # noqa: BLE001  # raised where all threads are joined
            self.fault = self.fault or fault
        self._done.release()
        self._released.wait()

    # One node.

    def _one(self, machine: Machine) -> None:
        chance = random.Random(f"{self._seed}/{machine.name}")

        def work() -> None:
            while not self.over:
                with self._turns:
                    if self.over:
                        return
                    kind = chance.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
                    self._break(machine, kind, chance)
                    self._repair(machine)
                time.sleep(chance.uniform(0.5, 4.0))

        self._guarded(work)

    def _break(self, machine: Machine, kind: str, chance: random.Random) -> None:
        self._note(kind)
        if kind == "flap":
            self._cut(machine, chance.uniform(1.0, GRACE + 3.0))
        elif kind == "partition":
            self._cut(machine, chance.uniform(GRACE, GRACE + 25.0))
        elif kind == "BMC says off, machine on":
            machine.says, machine.obeys = "off", False
            self._cut(machine, chance.uniform(1.0, GRACE - 1.0))
        else:
            about = kind.partition("BMC ")[2].removeprefix("says ").partition(",")[0]
            machine.says = _SAYS.get(about, "truth")
            self._end(machine, kind, chance)

    def _cut(self, machine: Machine, seconds: float) -> None:
        machine.node.cut()
        time.sleep(seconds)
        machine.node.heal()

    def _end(self, machine: Machine, kind: str, chance: random.Random) -> None:
        """The node is gone for good, until its pods run elsewhere."""
        here, began = self._pods_of(machine), time.time()
        kept = self._mistake(machine, kind, chance)
        if kind.startswith("hang"):
            machine.hang()
        elif kind.startswith("partition"):
            machine.node.cut()
        else:
            machine.lose_power()
        if machine.says != "truth" or kind.endswith(("mistaken machine", "cordoned")):
            time.sleep(chance.uniform(5.0, 40.0))
            machine.says = "truth"
            self._correct(machine)
        if kept:
            # What waits for its finalizers is dead: the machine comes back without it.
            if not until(lambda: machine.on and self._fleet.cluster.is_ready(machine.name), seconds=_PATIENCE):
                self.late.append(f"{machine.name} stays off for {kept}: {self._fleet.reason(machine.name)!r}")
            self._keep(kept, kept=False)

        def settled() -> bool:
            self._start_over(machine)
            # A power-on that was under way may have undone the fault: then its pods run there.
            return self._gone(here, machine) or self._booted(machine, began)

        if not until(settled, seconds=_PATIENCE):
            self.late.append(f"{machine.name} after {kind}: {self._fleet.reason(machine.name)!r}, {sorted(here)}")

    def _start_over(self, machine: Machine) -> None:
        """Do what a remediation asks for that has stopped because another node was said to have its machine."""
        if not self._stopped(machine):
            return
        self._insist(lambda: self._fleet.annotate(machine.name, failover_paused="true"))
        until(lambda: not self._stopped(machine), seconds=_PATIENCE)
        self._insist(lambda: self._fleet.annotate(machine.name))
        self.started_over += 1

    def _stopped(self, machine: Machine) -> bool:
        found = [one for one in self._fleet.active() if one.node == machine.name]
        return any(one.stopped == one.reason == "machine-contradicts" for one in found)

    # What people do: they name the wrong machine, cordon a node that then fails, or have finalizers on their pods.

    def _mistake(self, machine: Machine, kind: str, chance: random.Random) -> list[str]:
        """Do what ``kind`` says before the node fails; return the names of the pods that have a finalizer."""
        fleet, kept = self._fleet, list[str]()
        if kind.endswith("mistaken machine"):
            other = chance.choice([name for name in fleet.machines if name != machine.name])
            self._insist(lambda: fleet.annotate(machine.name, machine=f"machine-of-{other}"))
        elif kind.endswith("cordoned"):
            self._insist(lambda: fleet.cordon(machine.name, cordoned=True))
        elif kind.endswith("finalizer"):
            self._insist(lambda: kept.extend(one for one in self._names_on(machine) if one not in kept))
            self._keep(kept, kept=True)
        return kept

    def _correct(self, machine: Machine) -> None:
        self._insist(lambda: self._fleet.annotate(machine.name))
        self._insist(lambda: self._fleet.cordon(machine.name, cordoned=False))

    def _keep(self, names: Sequence[str], *, kept: bool) -> None:
        for name in names:
            body = {"metadata": {"finalizers": [_FINALIZER] if kept else None}}
            self._insist(lambda name=name, body=body: self._change_pod(name, body))  # type: ignore[misc]

    def _change_pod(self, name: str, body: dict[str, Any]) -> None:
        if self._fleet.pod(name) is not None:
            self._fleet.change(f"/api/v1/namespaces/default/pods/{name}", body)

    def _insist(self, call: Callable[[], object]) -> None:
        """Repeat a call until the API server, which may be frozen or dead, has carried it out."""

        def done() -> bool:
            try:
                call()
            except requests.RequestException:
                return False
            return True

        if not until(done, seconds=_PATIENCE):
            raise TimeoutError("the API server does not carry out what an operator asks for")

    def _names_on(self, machine: Machine) -> list[str]:
        pods = [one for one in self._fleet.cluster.pods() if one["spec"].get("nodeName") == machine.name]
        return [name for one in pods if (name := str(one["metadata"]["name"])).startswith("db-")]

    def _pods_of(self, machine: Machine) -> set[str]:
        """Return the UIDs of the pods of the StatefulSet there, if the API server answers."""
        try:
            pods = self._fleet.cluster.pods()
        except requests.RequestException:
            return set()
        mine = [one["metadata"] for one in pods if one["spec"].get("nodeName") == machine.name]
        return {str(one["uid"]) for one in mine if one["name"].startswith("db-")}

    def _gone(self, uids: set[str], machine: Machine) -> bool:
        """Whether the cluster has none of these any more; it is the controllers' work to delete them."""
        time.sleep(0.3)
        try:
            return not uids & {str(one["metadata"]["uid"]) for one in self._fleet.cluster.pods()}
        except requests.RequestException:
            return False

    def _booted(self, machine: Machine, since: float) -> bool:
        """Whether the machine was powered on since then, and its node is ready."""
        try:
            return machine.on and machine.power[-1][0] > since and self._fleet.cluster.is_ready(machine.name)
        except requests.RequestException:
            return False

    def _repair(self, machine: Machine) -> None:
        machine.says, machine.obeys = "truth", True
        self._correct(machine)
        machine.node.heal()
        machine.go_on()
        machine.boot()
        self._off_since.pop(machine.name, None)
        if not until(lambda: self._back(machine), seconds=_PATIENCE):
            self.late.append(f"{machine.name} does not come back: {self._fleet.reason(machine.name)!r}")

    def _back(self, machine: Machine) -> bool:
        reason = self._fleet.reason(machine.name)
        if not machine.on and reason == "left-off":
            # Its BMC lied that it was off, and did not lie any more when it got the command.
            self.powered_on += 1
            machine.boot()
        if machine.on or reason:
            self._off_since.pop(machine.name, None)
        elif time.monotonic() - self._off_since.setdefault(machine.name, time.monotonic()) > _NOTICED:
            self.left_off.append(f"{machine.name} at {time.time():.1f}, power {machine.power[-6:]}")
            machine.boot()
        time.sleep(0.3)
        return machine.on and self._fleet.cluster.is_ready(machine.name)

    # What all share.

    def _shared(self) -> None:
        chance = random.Random(f"{self._seed}/shared")

        def work() -> None:
            while not self.over:
                time.sleep(chance.uniform(2.0, 12.0))
                self._restart_ended()
                kind = chance.choices(list(_SHARED), list(_SHARED.values()))[0]
                if kind.startswith("leader"):
                    self._break_leader(kind, chance)
                else:
                    self._break_server(kind, chance)

        self._guarded(work)

    def _restart_ended(self) -> None:
        """Start controllers that have ended by themselves again, as a service manager does; none should."""
        for one in self._fleet.controllers:
            if not one.alive:
                self.ended.append(f"{one.name}, exit code {one.process.returncode}: {one.output()[-300:]}")
                _start(one)

    def _break_leader(self, kind: str, chance: random.Random) -> None:
        if kind.endswith("in a phase"):
            phase = chance.choice(_PHASES)
            if not until(lambda: any(one.phase is phase for one in self._fleet.active())):
                return
        if (leader := self._fleet.leader()) is None:
            return
        self._note(kind)
        (leader.kill if "killed" in kind else leader.freeze)()
        time.sleep(chance.uniform(0.2, 8.0))
        if "killed" in kind:
            _start(leader)
        else:
            leader.thaw()

    def _break_server(self, kind: str, chance: random.Random) -> None:
        self._note(kind)
        cluster = self._fleet.cluster
        server = cluster.etcd if "etcd" in kind else cluster.api_server
        (server.kill if "killed" in kind else server.freeze)()
        time.sleep(chance.uniform(0.5, 6.0))
        (server.start if "killed" in kind else server.thaw)()


def _start(controller: Played) -> None:
    """Start it until it is ready, as a service manager does: it ends at once if the API server does not answer."""
    controller.start()
    for _ in range(_STARTS):
        until(lambda: controller.ready() or not controller.alive)
        if controller.ready() or "cannot reach the API server" not in controller.output():
            break
        controller.start()
    controller.wait_ready()


def perform(
    directory: Path, *, nodes: int, faults: int, seed: int, minutes: float, at_once: int
) -> tuple[list[str], bool]:
    """Do it all; return what came out in lines, and whether all is well."""
    with Fleet(directory, nodes=nodes, options=QUICK | {"max_unhealthy": "60%"}, seed=seed) as fleet:
        fleet.deploy("db", replicas=nodes)
        fleet.deploy("web", kind="Deployment", replicas=nodes)
        assert until(lambda: len(fleet.places("db")) == nodes)
        began = time.monotonic()
        with Witness(fleet) as witness:
            chaos = Chaos(fleet, witness, seed=seed, faults=faults, seconds=minutes * 60, at_once=at_once)
            chaos.run()
            took = time.monotonic() - began
            lost: list[str] = []
            try:
                fleet.settle(seconds=150)
            except AssertionError as error:
                lost.append(str(error))
            if not until(lambda: len(fleet.places("db")) == nodes):
                lost.append(f"only {len(fleet.places('db'))} of {nodes} pods run at the end")
        chaos.release()
        forced, unproven, booting, ages = witness.forced(), witness.unproven(), witness.booting(), witness.ages()
        while_ready, commands = witness.while_ready(), sum(len(one.commands) for one in fleet.machines.values())
        ends = Counter(f"{one.phase}: {one.reason}" for one in fleet.records())
    times, age = spread([one.seconds for one in witness.replaced]), spread(ages)
    lines = [
        f"{sum(chaos.counts.values())} faults in {took / 60:.1f} minutes, seed {seed}, {nodes} nodes",
        *(f"{count:>6}  {kind}" for kind, count in sorted(chaos.counts.items())),
        f"{sum(ends.values())} remediations",
        *(f"{count:>6}  {kind}" for kind, count in sorted(ends.items())),
        f"{len(forced)} forced: {dict(Counter(one.what for one in forced))}; {witness.looks} looks at the kubelets",
        f"{len(unproven)} forced without proof; {len(booting)} after a boot by the operator, before its kubelet ran",
        f'the BMC\'s "off" was {age.p50:.0f} / {age.p99:.0f} / {age.max:.0f} ms old (p50 / p99 / longest) when the API '
        "server had received what it proves, the way there included",
        f"{commands} power commands; {len(while_ready)} times a machine was commanded off while its node was ready",
        f"{len(witness.twice)} times a pod of a StatefulSet was seen running twice",
        f"{len(chaos.late)} not replaced or not back within {_PATIENCE:.0f} s, {len(lost)} lost at the end",
        f"{len(chaos.ended)} controllers ended by themselves",
        f"{len(chaos.left_off)} machines left without power by a remediation that had ended; "
        f"an operator was asked {chaos.powered_on} times to power one on, and {chaos.started_over} times to "
        "let one start over whose machine was taken for another",
        f"not ready to running elsewhere: {len(witness.replaced)} pods, "
        f"{times.p50 / 1000:.1f} / {times.p99 / 1000:.1f} s (p50 / p99), beside all other faults",
        *(f"  while ready: {one}" for one in while_ready[:20]),
        *(f"  unproven: {one}" for one in unproven[:20]),
        *(f"  twice: {one}" for one in witness.twice[:20]),
        *(f"  late: {one}" for one in chaos.late[:20]),
        *(f"  without power: {one}" for one in chaos.left_off[:20]),
        *(f"  ended: {one}" for one in chaos.ended[:20]),
        *(f"  lost: {one}" for one in lost),
    ]
    return lines, not (while_ready or unproven or witness.twice or lost or chaos.late or chaos.left_off or chaos.ended)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--faults", default=1000, show_default=True, help="End after so many.")
@click.option("--minutes", default=30.0, show_default=True, help="Or after this time; everything is repaired then.")
@click.option("--seed", default=1, show_default=True)
@click.option("--nodes", default=12, show_default=True)
@click.option("--at-once", default=5, show_default=True, help="The most nodes that are broken at a time.")
def main(faults: int, minutes: float, seed: int, nodes: int, at_once: int) -> None:
    """Break a cluster with failed-node controllers, and count what they did wrong."""
    directory = Path(tempfile.mkdtemp(prefix="ferroscope-kubernetes-chaos-"))
    lines, well = perform(directory, nodes=nodes, faults=faults, seed=seed, minutes=minutes, at_once=at_once)
    click.echo("\n".join(lines))
    if well:
        shutil.rmtree(directory, ignore_errors=True)
        return
    click.echo(f"the logs are in {directory}", err=True)
    sys.exit(1)


if __name__ == "__main__":
    main()
