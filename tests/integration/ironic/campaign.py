"""Many inspections at once while Ironic and workers are killed at random; then everything is counted.

``python -m tests.integration.ironic.campaign --machines 1000 --seed 1``
"""

from __future__ import annotations

import argparse
import random
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from ferroscope_sim.inventory import pxe_mac
from tests.integration.ironic.place import Place, expected
from tests.support.bare_metal import ironic as run_ironic
from tests.support.processes import until

# Where a killed Ironic forgets a power change, it is asked again after this time.
EXTRA = "[drivers]\npower_timeout = 5\n[inspector]\ntimeout = 900\n[worker]\nmax_attempts = 100\n"


class Counted(msgspec.Struct):
    """How it ended; all but ``machines``, ``finished`` and the kills must be 0."""

    machines: int
    finished: int = 0
    kills: int = 0
    lost: int = 0
    locked: int = 0
    half_patched: int = 0
    powered_on: int = 0
    seconds: float = 0.0


class Ramdisks(threading.Thread):
    """Calls back for every machine that waits; ``done`` is set when all inspections have ended."""

    def __init__(self, place: Place, nodes: dict[str, int]) -> None:
        super().__init__()
        self._place, self._nodes = place, nodes
        self.done, self.given_up = threading.Event(), threading.Event()

    def run(self) -> None:
        called: set[str] = set()
        while not self.given_up.wait(0.2):
            states = _states(self._place)
            for uuid, number in self._nodes.items():
                if states.get(uuid) == "waiting" and uuid not in called and self._place.call_back(number) == 202:
                    called.add(uuid)
            if all(states.get(uuid) in ("finished", "error") for uuid in self._nodes):
                self.done.set()
                return


def kill(place: Place, rng: random.Random) -> None:
    """Kill Ironic, a worker, or both, and start them again; in the main thread, with which they would end."""
    victims = rng.choice(("ironic", "worker", "both"))
    worker = rng.choice(place.workers)
    if victims != "ironic":
        worker.kill()
    if victims != "worker":
        place.ironic.kill_all()
    time.sleep(rng.uniform(0.0, 1.0))
    if victims != "worker":
        place.ironic.start()
        place.ironic.wait_answers()
    if victims != "ironic":
        worker.start()
        worker.wait_ready()


def run(place: Place, machines: int, seed: int, *, pause: tuple[float, float], seconds: float) -> Counted:
    """Inspect so many machines while processes are killed; return what became of them."""
    rng, counted = random.Random(seed), Counted(machines)
    with ThreadPoolExecutor(4) as pool:
        nodes = dict(pool.map(lambda _number: place.enroll(properties={"rack": "7"}), range(machines)))
    assert until(lambda: all(place.node(uuid) for uuid in nodes), seconds=120)
    began = time.monotonic()
    for uuid in nodes:
        place.inspect(uuid)
    ramdisks = Ramdisks(place, nodes)
    ramdisks.start()
    try:
        while not ramdisks.done.wait(rng.uniform(*pause)) and time.monotonic() < began + seconds:
            kill(place, rng)
            counted.kills += 1
        ramdisks.done.wait(120.0)  # undisturbed, what is left has to end
    finally:
        ramdisks.given_up.set()
        ramdisks.join()
    counted.seconds = time.monotonic() - began
    states = _states(place)
    for uuid, number in nodes.items():
        counted.finished += states.get(uuid) == "finished"
        counted.lost += states.get(uuid) not in ("finished", "error")
        _look_at(place, uuid, number, counted)
    return counted


def _states(place: Place) -> dict[str, str]:
    return dict(place.rows("SELECT uuid, state FROM nodes"))


def _look_at(place: Place, uuid: str, number: int, counted: Counted) -> None:
    until(lambda: place.ironic.node(uuid)["reservation"] is None, seconds=10)
    node: dict[str, Any] = place.ironic.node(uuid)
    wanted = expected(number) | {"rack": "7"}
    counted.locked += node["reservation"] is not None
    counted.powered_on += node["power_state"] != "power off"
    whole = all(node["properties"].get(name) == value for name, value in wanted.items())
    ports = {port["address"] for port in place.ironic.ports(uuid)}
    counted.half_patched += not (whole and pxe_mac(number) in ports)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--machines", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as directory,
        run_ironic(Path(directory) / "ironic") as ironic,
        Place(Path(directory), ironic, workers=2, extra=EXTRA) as place,
    ):
        print(run(place, given.machines, given.seed, pause=(4.0, 12.0), seconds=900.0))


if __name__ == "__main__":
    main()
