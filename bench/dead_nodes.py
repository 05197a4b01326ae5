"""``dead-nodes``: seconds from NotReady until the StatefulSet's pod of a dead node runs elsewhere, by who frees it.

A real control plane with hollow nodes; three of them lose power at a time, at random moments. In one run: Kubernetes
alone, the rule to delete such pods as soon as their node is not ready, and ``ferroscope failover`` in both modes, with
default options, with two processes, and with BMCs that answer after a second. Then its leader is killed meanwhile.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import click
import msgspec
import requests

from bench.cycle import scratch
from bench.quantiles import spread
from bench.report import Report
from tests.nightly.kubernetes.fleet import Fleet
from tests.nightly.kubernetes.witness import Witness
from tests.support.processes import until

_DEFAULT: Final = {"max_unhealthy": "50%", "storm_cooldown": "1", "max_power_offs": "1000"}
_LABEL: Final = _DEFAULT | {"mode": "label", "label_selector": "app:db", "label_namespaces": "default"}
_AT_ONCE: Final = 3
_GIVE_UP: Final = 120.0
_ALONE: Final = 60.0  # seconds for which Kubernetes alone is watched
_ANSWER: Final = 1.0  # seconds until a BMC answers


class Freed(msgspec.Struct, frozen=True):
    """The seconds that the pods took; ``missing`` did not run elsewhere in time."""

    way: str
    seconds: list[float]
    missing: int
    twice: int
    unproven: int


def measure(directory: Path, *, nodes: int, rounds: int, seed: int = 1) -> list[Freed]:
    """Let nodes die ``rounds`` times, three at a time, for each way."""
    chance = random.Random(seed)
    with Fleet(directory / "fleet", nodes=nodes, controllers=0, options=_DEFAULT, lease="default") as fleet:
        fleet.deploy("db", replicas=nodes)
        until(lambda: len(fleet.places("db")) == nodes)
        found = [_way("Kubernetes alone", fleet, chance, 1, seconds=_ALONE)]
        with _original(fleet):
            found.append(_way("rule: delete if not ready", fleet, chance, rounds))
        label = fleet.configure(_LABEL, name="label.conf")
        for way, config in (("mode = label", label), ("mode = proof", fleet.config)):
            for _ in range(2):
                fleet.add_controller(config)
            found.append(_way(way, fleet, chance, rounds))
            if config is fleet.config:
                found.append(_way("mode = proof, leader killed", fleet, chance, rounds, kill=True))
            for one in fleet.controllers:
                one.kill()
            fleet.controllers.clear()
    return found


def _way(
    name: str, fleet: Fleet, chance: random.Random, rounds: int, *, seconds: float = _GIVE_UP, kill: bool = False
) -> Freed:
    with Witness(fleet) as witness:
        died = sum(_round(fleet, witness, chance, seconds, kill=kill) for _ in range(rounds))
    took = [one.seconds for one in witness.replaced]
    proven = "proof" in name
    return Freed(name, took, died - len(took), len(witness.twice), len(witness.unproven()) if proven else 0)


def _round(fleet: Fleet, witness: Witness, chance: random.Random, seconds: float, *, kill: bool) -> int:
    """Let three nodes with pods die; return how many pods that were."""
    homes = fleet.places("db")
    dying = [fleet.machines[name] for name in chance.sample(sorted(set(homes)), _AT_ONCE)]
    names = {machine.name for machine in dying}
    lost = sum(1 for home in homes if home in names)
    before = len(witness.replaced)
    for machine in dying:
        machine.delay = _ANSWER
        machine.lose_power()
        time.sleep(chance.uniform(0.0, 2.0))
    if kill:
        until(lambda: not any(fleet.cluster.is_ready(name) for name in names))
        time.sleep(chance.uniform(0.0, 28.0))
        leader = fleet.a_leader()
        leader.kill()
    until(lambda: len(witness.replaced) >= before + lost, seconds=seconds)
    if kill:
        leader.start()
        leader.wait_ready()
    fleet.settle(seconds=300)
    until(lambda: len(set(fleet.places("db"))) >= _AT_ONCE and len(fleet.places("db")) == len(fleet.machines))
    return lost


@contextmanager
def _original(fleet: Fleet) -> Iterator[None]:
    """Delete the pods of each node that is not ready, by label and node name, as soon as that is seen."""
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.2):
            with suppress(requests.RequestException):
                dead = [name for name in fleet.machines if fleet.cluster.readiness(name) != "True"]
                _delete(fleet, dead)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _delete(fleet: Fleet, dead: Sequence[str]) -> None:
    for name in dead:
        path = "/api/v1/namespaces/default/pods"
        found = fleet.cluster.call("GET", f"{path}?labelSelector=app%3Ddb&fieldSelector=spec.nodeName%3D{name}")
        for pod in found["items"]:
            fleet.cluster.call("DELETE", f"{path}/{pod['metadata']['name']}", {"gracePeriodSeconds": 0})


def _wrong(one: Freed) -> str:
    return f"{one.way}: {one.missing} missing, {one.twice} times twice, {one.unproven} without proof"


@click.command("dead-nodes")
@click.pass_obj
@click.option("--nodes", default=9, show_default=True)
@click.option("--rounds", default=8, show_default=True, help="Of each way; three nodes die in each.")
def command(found: tuple[Report, Path], nodes: int, rounds: int) -> None:
    """How long the pods of a dead Kubernetes node take to run elsewhere."""
    report, directory = found
    report.section(f"dead-nodes: {nodes} hollow nodes, three die at a time; from NotReady to running elsewhere")
    with scratch(directory) as place:
        freed = measure(place, nodes=nodes, rounds=rounds)
    rows = [(one.way, len(one.seconds), spread(one.seconds), one.missing, one.twice, one.unproven) for one in freed]
    titles = ("freed by", "pods", "ms, p50 / p99 / max", "not in time", "ran twice", "without proof")
    report.table(titles, rows)
    report.keep("dead-nodes", freed)
    ways = {one.way: spread(one.seconds).p99 / 1000 for one in freed}
    report.figure("dead node: running elsewhere with proof, p99 s", "sqlite", ways["mode = proof"], most=35)
    report.figure("dead node: running elsewhere in mode label, p99 s", "sqlite", ways["mode = label"], most=3)
    added = ways["mode = proof, leader killed"] - ways["mode = proof"]
    report.figure("dead node: added by a leader's death, p99 s", "sqlite", added, most=7)
    report.wrong([_wrong(one) for one in freed if one.twice or one.unproven or (one.missing and "mode" in one.way)])
