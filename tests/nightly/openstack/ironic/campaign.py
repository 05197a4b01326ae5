"""Many inspections at once while Ironic and workers are killed at random; then everything is counted.

``python -m tests.nightly.openstack.ironic.campaign --machines 1000 --seed 1``

It takes as long as inspections go on ending, whatever the number of machines: it stops only if none ends for five
minutes, first without further kills, and then for good. What is still under way then is not lost: something will
carry it on, and the report says what each one waits for.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import msgspec
import urllib3

from ferroscope_sim.inventory import pxe_mac
from tests.nightly.openstack.ironic.place import Place, expected
from tests.support.bare_metal import ironic as run_ironic
from tests.support.processes import until

# Where a killed Ironic forgets a power change, it is asked again after this time.
EXTRA = "[drivers]\npower_timeout = 5\n[inspector]\ntimeout = 900\n[worker]\nmax_attempts = 100\n"


# Where there are many nodes: a copy of a thousand each second would keep Ironic from everything else.
_SELDOM: Final = "[registry]\nsync_period = 30\n"
# No inspection has ended for so many seconds: what is left will not end by itself, or not while processes are killed.
_STALLED: Final = 300.0
_REPORT_INTERVAL: Final = 30.0
_ENDED: Final = ("finished", "error")


class Counted(msgspec.Struct):
    """How it ended; all but ``machines``, ``finished`` and the kills must be 0.

    ``lost``: neither ended nor waiting for anything that could end it. ``under_way``: not ended, but some request or
    the machine's callback will carry it on; ``unfinished`` says for each of both what it waits for. The last three
    are counted among those that finished, in Ironic.
    """

    machines: int
    finished: int = 0
    failed: int = 0
    under_way: int = 0
    lost: int = 0
    kills: int = 0
    locked: int = 0
    half_patched: int = 0
    powered_on: int = 0
    seconds: float = 0.0
    unfinished: list[str] = []

    @property
    def whole(self) -> bool:
        """Whether every inspection finished, and left its node in Ironic as it has to be."""
        return self.finished == self.machines and not (self.locked or self.half_patched or self.powered_on)


class Ramdisks(threading.Thread):
    """Calls back for every machine that waits; ``done`` is set when all inspections have ended.

    ``answered``: the last status of a callback, by node. ``ended``: how many have ended.
    """

    def __init__(self, place: Place, nodes: dict[str, int]) -> None:
        super().__init__()
        self._place, self._nodes = place, nodes
        self.done, self.given_up = threading.Event(), threading.Event()
        self.answered: dict[str, int] = {}
        self.ended = 0
        self._ended_at = time.monotonic()

    @property
    def stalled(self) -> float:
        """Return for how many seconds no inspection has ended."""
        return time.monotonic() - self._ended_at

    def run(self) -> None:
        called: set[str] = set()
        while not self.given_up.wait(0.2):
            states = _states(self._place)
            for uuid, number in self._nodes.items():
                if states.get(uuid) == "waiting" and uuid not in called:
                    try:
                        self.answered[uuid] = self._place.call_back(number)
                    except urllib3.exceptions.HTTPError:
                        continue  # the api was killed; as a ramdisk does, it repeats the callback
                    if self.answered[uuid] == 202:
                        called.add(uuid)
            ended = sum(states.get(uuid) in _ENDED for uuid in self._nodes)
            if ended > self.ended:
                self.ended, self._ended_at = ended, time.monotonic()
            if ended == len(self._nodes):
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


def run(place: Place, machines: int, seed: int, *, pause: tuple[float, float], kills: float = math.inf) -> Counted:
    """Inspect so many machines while processes are killed, at most ``kills`` times; return what became of them."""
    rng, counted = random.Random(seed), Counted(machines)
    with ThreadPoolExecutor(4) as pool:
        nodes = dict(pool.map(lambda _number: place.enroll(properties={"rack": "7"}), range(machines)))
    assert until(lambda: _states(place).keys() >= nodes.keys(), seconds=120.0 + machines)
    began = reported = time.monotonic()
    for uuid in nodes:
        place.inspect(uuid)
    ramdisks = Ramdisks(place, nodes)
    ramdisks.start()
    try:
        while not ramdisks.done.wait(rng.uniform(*pause)):
            if counted.kills >= kills or ramdisks.stalled > _STALLED:
                break
            kill(place, rng)
            counted.kills += 1
            if time.monotonic() > reported + _REPORT_INTERVAL:
                reported = time.monotonic()
                print(f"{reported - began:.0f} s: {counted.kills} kills, {ramdisks.ended} ended", flush=True)
        quiet = time.monotonic()  # undisturbed, what is left has to end
        while not ramdisks.done.wait(1.0) and min(ramdisks.stalled, time.monotonic() - quiet) < _STALLED:
            pass
    finally:
        ramdisks.given_up.set()
        ramdisks.join()
    counted.seconds = time.monotonic() - began
    _count(place, nodes, ramdisks, counted)
    return counted


def _states(place: Place) -> dict[str, str]:
    return dict(place.rows("SELECT uuid, state FROM nodes"))


def _count(place: Place, nodes: dict[str, int], ramdisks: Ramdisks, counted: Counted) -> None:
    """Count how every inspection ended, and say of those that did not what they wait for."""
    states, requests = _states(place), _requests(place)
    for uuid, number in nodes.items():
        state = states.get(uuid, "gone")
        if state == "finished":
            counted.finished += 1
            _look_at(place, uuid, number, counted)
        elif state == "error":
            counted.failed += 1
            counted.unfinished.append(f"{uuid} failed: {place.status(uuid).get('error')}")
        else:
            waits_for = requests.get(uuid) or _ramdisk(state, ramdisks.answered.get(uuid))
            counted.under_way += waits_for is not None
            counted.lost += waits_for is None
            counted.unfinished.append(f"{uuid} is {state} and waits for {waits_for}; {_there(place, uuid)}")


def _requests(place: Place) -> dict[str, str]:
    """Return the requests on the queue in words, by node."""
    found = place.rows("SELECT node, event, attempt, holder, due_at FROM requests ORDER BY id")
    words: dict[str, list[str]] = {}
    for node, event, attempt, holder, due in found:
        whose = f"claimed by {holder}" if holder else f"due in {due - time.time():.1f} s"
        words.setdefault(node, []).append(f"the request {event} (attempt {attempt}, {whose})")
    return {node: " and ".join(those) for node, those in words.items()}


def _ramdisk(state: str, answered: int | None) -> str | None:
    if state != "waiting":
        return None
    return "its callback" if answered is None else f"its callback, last answered {answered}"


def _there(place: Place, uuid: str) -> str:
    """Return in words how the node is in Ironic, and the last step of its timeline here."""
    node = place.ironic.node(uuid)
    there = ", ".join(f"{name} {node[name]}" for name in ("reservation", "power_state", "target_power_state"))
    return f"in Ironic: {there}; last step: {(place.steps(uuid) or ['none'])[-1]}"


def _look_at(place: Place, uuid: str, number: int, counted: Counted) -> None:
    until(lambda: place.ironic.node(uuid)["reservation"] is None)
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
        Place(Path(directory), ironic, workers=2, extra=EXTRA + _SELDOM) as place,
    ):
        counted = run(place, given.machines, given.seed, pause=(4.0, 12.0))
    for line in counted.unfinished:
        print(line)
    print(msgspec.structs.replace(counted, unfinished=[]))
    sys.exit(0 if counted.whole else 1)


if __name__ == "__main__":
    main()
