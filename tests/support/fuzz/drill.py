"""The drill: a service in real processes, callbacks from many connections, and what must be true at the end.

No answer is a 5xx, every node comes to rest, no process dies or logs a fault, and memory stays where it was.
"""

from __future__ import annotations

import configparser
import multiprocessing
import sys
import threading
import time
from collections import Counter
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import msgspec
import urllib3

from bench.service import ROLES, Service, executable, service
from bench.usage import memory
from ferroscope_sim.inventory import pxe_mac
from tests.corpus import ALL
from tests.support.fuzz.flatness import Sample
from tests.support.fuzz.mutate import Mutator
from tests.support.fuzz.wire import NO_ANSWER, Wire
from tests.support.processes import until
from tests.support.units import environment

_REST_SECONDS: Final = 90.0
_ENDED: Final = frozenset({"manageable", "inspect failed", "available"})
_DISCOVERED: Final = 500
_LOOKS: Final = 100


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How much, from which seed, over how many connections, at how many nodes; ``progress``: a line after so many."""

    callbacks: int
    seed: int = 1
    connections: int = 8
    senders: int = 2
    progress: int = 0
    nodes: int = 24


class Outcome(msgspec.Struct, kw_only=True):
    """What was seen; ``faults`` is everything that must not be, and must be empty."""

    statuses: dict[int, int] = {}
    seconds: float = 0.0
    processed: int = 0
    memory: dict[str, list[Sample]] = {}
    faults: list[str] = []

    @property
    def rate(self) -> float:
        return sum(self.statuses.values()) / self.seconds

    def told(self) -> str:
        """Return it as a person reads it."""
        answers = ", ".join(f"{count} x {status or 'closed'}" for status, count in sorted(self.statuses.items()))
        return f"{answers} in {self.seconds:.1f} s ({self.rate:.0f}/s); {self.processed} inspections ended"


def drill(plan: Plan, directory: Path, database_url: str) -> Outcome:
    """Run it, and return what was seen."""
    commands = {role: ["env", *_environment(role), executable()] for role in ROLES}
    with service(directory, database_url, commands=commands, extra=_settings()) as running:
        http = urllib3.PoolManager(headers={"X-OpenStack-Ironic-API-Version": "1.95"}, retries=False)
        herd = Herd(http, running.url, plan.nodes)
        mutator = Mutator(plan.seed, herd.machines)
        outcome = Outcome()
        herd.start()
        began = time.monotonic()
        answered = _bombard(plan, running, herd, outcome)
        outcome.seconds = time.monotonic() - began
        outcome.statuses = dict(answered)
        herd.stop()
        outcome.faults += herd.bring_to_rest(mutator)
        outcome.processed = herd.ended
        outcome.faults += [f"{name} died" for name, role in running.roles.items() if role.process.poll() is not None]
        http.clear()
    outcome.faults += [line for role in running.roles.values() for line in role.faults()][:20]
    return outcome


def _environment(role: str) -> list[str]:
    """Return the variables of the role's unit: without them glibc keeps what was freed, and memory is not flat."""
    return [f"{name}={value}" for name, value in environment(role).items()]


def _settings() -> str:
    return (
        f"[inspector]\nhooks = {','.join(ALL)}\nretention = 5\nretention_period = 2\npermit_active = true\n"
        "[auto_discovery]\nenabled = true\ndriver = fake-hardware\n"
        f"max_waiting = {_DISCOVERED}\nmax_per_minute = 100000\n"
        "[api]\nthreads = 8\nfailure_rate = 0\n[worker]\nthreads = 2\n"
    )


def _bombard(plan: Plan, running: Service, herd: Herd, outcome: Outcome) -> Counter[int]:
    """Let the senders send everything; look at the memory a hundred times in between."""
    spawn = multiprocessing.get_context("spawn")
    configured = configparser.ConfigParser(strict=False, interpolation=None)
    configured.read(running.config)
    ports = (int(configured["api"]["bare_metal_port"]), int(configured["api"]["introspection_port"]))
    senders, pipes = [], []
    for index in range(plan.senders):
        ours, theirs = spawn.Pipe(duplex=False)
        process = spawn.Process(target=_send_all, args=(theirs, plan, index, ports, herd.machines), daemon=True)
        process.start()
        theirs.close()
        senders.append(process)
        pipes.append(ours)
    total: Counter[int] = Counter()
    sent = looked = told = 0
    began = time.monotonic()
    open_pipes = list(pipes)
    while open_pipes:
        for pipe in multiprocessing.connection.wait(open_pipes, timeout=1.0):
            assert isinstance(pipe, Connection)
            try:
                number, counted, bad = pipe.recv()
            except EOFError:
                open_pipes.remove(pipe)
                continue
            sent += number
            total.update(counted)
            outcome.faults += bad
        if sent >= looked + plan.callbacks // _LOOKS:
            looked = sent
            _look(running, outcome, sent)
        if plan.progress and sent >= told + plan.progress:
            told = sent
            held = ", ".join(f"{name} {memory(role.pid).rss:.0f} MiB" for name, role in running.roles.items())
            print(f"{sent} sent, {sent / (time.monotonic() - began):.0f}/s, {held}", file=sys.stderr, flush=True)
    for process in senders:
        process.join()
        if process.exitcode:
            outcome.faults.append(f"a sender ended with {process.exitcode}")
    for pipe in pipes:
        pipe.close()
    if sent != plan.callbacks:
        outcome.faults.append(f"only {sent} of {plan.callbacks} callbacks were sent: see the senders' tracebacks")
    return total


def _send_all(
    pipe: Connection, plan: Plan, index: int, ports: tuple[int, int], machines: list[tuple[str, str]]
) -> None:
    """One sender process: its share of the callbacks, on several connections at once."""
    mutator = Mutator(plan.seed, machines)
    share = iter(range(index, plan.callbacks, plan.senders))
    lock = threading.Lock()

    def work() -> None:
        wire = Wire(*ports)
        counted: Counter[int] = Counter()
        bad: list[str] = []
        sent = 0
        while True:
            with lock:
                number = next(share, None)
            if number is not None:
                callback = mutator.make(number)
                sent += 1
                statuses = wire.send(callback)
                counted.update(statuses or [NO_ANSWER])
                bad += [f"callback {number} ({callback.framing}) was answered {s}" for s in statuses if s >= 500]
            if number is None or sum(counted.values()) >= 100:
                with lock:
                    pipe.send((sent, dict(counted), bad))
                counted, bad, sent = Counter(), [], 0
            if number is None:
                wire.close()
                return

    threads = [threading.Thread(target=work) for _ in range(plan.connections // plan.senders)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _look(running: Service, outcome: Outcome, sent: int) -> None:
    for name, role in running.roles.items():
        outcome.memory.setdefault(name, []).append(Sample(sent, memory(role.pid).rss))


class Herd:
    """The nodes at which callbacks are aimed: starts whichever has ended, until it is told to stop."""

    def __init__(self, http: urllib3.PoolManager, url: str, nodes: int) -> None:
        self._http = http
        self._url = url
        self.machines = [(pxe_mac(1000 + index), self._enroll(pxe_mac(1000 + index))) for index in range(nodes)]
        self._mac_of = {uuid: mac for mac, uuid in self.machines}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.ended = 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def bring_to_rest(self, mutator: Mutator) -> list[str]:
        """Let every machine that is waited for call back properly, and approve data that is held because it contradicts
        what a mutated callback said before; return what does not come to rest then.
        """

        def rested() -> bool:
            states = self._states()
            for uuid, state in states.items():
                if state == "inspect wait" and uuid in self._mac_of:
                    self._call("POST", "/v1/continue_inspection", mutator.plain(self._mac_of[uuid]))
                    self._call("POST", f"/v1/nodes/{uuid}/approve")
            return not set(states.values()) & {"inspecting", "inspect wait"} and self._queued() == 0

        if until(rested, seconds=_REST_SECONDS):
            return []
        left = {uuid: state for uuid, state in self._states().items() if state in ("inspecting", "inspect wait")}
        return [f"{len(left)} nodes are stuck: {left}", f"{self._queued()} requests are on the queue"]

    def _run(self) -> None:
        while not self._stop.wait(0.1):
            for uuid, state in self._states().items():
                if state in _ENDED and uuid in self._mac_of:
                    answer = self._call("PUT", f"/v1/nodes/{uuid}/states/provision", b'{"target":"inspect"}')
                    self.ended += answer.status == 202

    def _states(self) -> dict[str, str]:
        answer = self._call("GET", "/v1/nodes?fields=uuid,provision_state&limit=1000")
        return {node["uuid"]: node["provision_state"] for node in msgspec.json.decode(answer.data)["nodes"]}

    def _queued(self) -> int:
        text = self._call("GET", "/metrics").data.decode()
        lines = [line for line in text.splitlines() if line.startswith("ferroscope_queue_requests{")]
        return int(sum(float(line.rpartition(" ")[2]) for line in lines))

    def _enroll(self, mac: str) -> str:
        uuid = str(msgspec.json.decode(self._call("POST", "/v1/nodes", b'{"driver":"fake-hardware"}').data)["uuid"])
        self._call("POST", "/v1/ports", msgspec.json.encode({"node_uuid": uuid, "address": mac}))
        self._call("PUT", f"/v1/nodes/{uuid}/states/provision", b'{"target":"inspect"}')
        return uuid

    def _call(self, method: str, path: str, body: bytes | None = None) -> Any:
        headers = {"X-OpenStack-Ironic-API-Version": "1.1" if "continue" in path else "1.95"}
        return self._http.request(method, self._url + path, body=body, headers=headers)
