"""Many inspections at once while Ironic and workers are killed at random; then everything is counted."""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final

import msgspec
import urllib3

from ferroscope_sim.inventory import pxe_mac
from tests.nightly.openstack.ironic.place import Place, expected
from tests.support.processes import until
from tests.support.speed import slowness

# Where a killed Ironic forgets a power change, it is asked again after this time.
EXTRA = "[drivers]\npower_timeout = 5\n[inspector]\ntimeout = 900\n[worker]\nmax_attempts = 100\n"

_PATIENCE: Final = 300.0  # seconds for what is left when nothing is killed any more
_ENDED: Final = ("finished", "error")


class Counted(msgspec.Struct):
    """How it ended; all but ``finished`` and the kills must be 0. The last three are counted in Ironic."""

    kills: int = 0
    finished: int = 0
    failed: int = 0
    lost: int = 0
    locked: int = 0
    half_patched: int = 0
    powered_on: int = 0


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
                if states.get(uuid) == "waiting" and uuid not in called:
                    with suppress(urllib3.exceptions.HTTPError):  # the api was killed: as a ramdisk does, it repeats
                        if self._place.call_back(number) == 202:
                            called.add(uuid)
            if all(states.get(uuid) in _ENDED for uuid in self._nodes):
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


def run(place: Place, machines: int, seed: int, *, pause: tuple[float, float], kills: int) -> Counted:
    """Inspect so many machines while processes are killed, at most ``kills`` times; return what became of them."""
    rng, counted = random.Random(seed), Counted()
    with ThreadPoolExecutor(4) as pool:
        nodes = dict(pool.map(lambda _number: place.enroll(properties={"rack": "7"}), range(machines)))
    assert until(lambda: _states(place).keys() >= nodes.keys(), seconds=120.0 + machines)
    for uuid in nodes:
        place.inspect(uuid)
    ramdisks = Ramdisks(place, nodes)
    ramdisks.start()
    try:
        while counted.kills < kills and not ramdisks.done.wait(rng.uniform(*pause)):
            kill(place, rng)
            counted.kills += 1
        ramdisks.done.wait(_PATIENCE * slowness())
    finally:
        ramdisks.given_up.set()
        ramdisks.join()
    states = _states(place)
    for uuid, number in nodes.items():
        state = states.get(uuid)
        counted.failed += state == "error"
        counted.lost += state not in _ENDED
        if state == "finished":
            counted.finished += 1
            _look_at(place, uuid, number, counted)
    return counted


def _states(place: Place) -> dict[str, str]:
    return dict(place.rows("SELECT uuid, state FROM nodes"))


def _look_at(place: Place, uuid: str, number: int, counted: Counted) -> None:
    until(lambda: place.ironic.node(uuid)["reservation"] is None)
    node: dict[str, Any] = place.ironic.node(uuid)
    wanted = expected(number) | {"rack": "7"}
    counted.locked += node["reservation"] is not None
    counted.powered_on += node["power_state"] != "power off"
    whole = all(node["properties"].get(name) == value for name, value in wanted.items())
    ports = {port["address"] for port in place.ironic.ports(uuid)}
    counted.half_patched += not (whole and pxe_mac(number) in ports)
