"""Everything in one place: hosts, processes, the database, machines, operators, faults, and the books."""

from __future__ import annotations

import math
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from ferroscope.bus.local import DATABASE, LocalBus
from ferroscope.config.options import Settings
from ferroscope.contracts.store import Channel
from ferroscope.core.model import Node, Port
from ferroscope.db import schema
from ferroscope_client.core.states import Provision
from tests.simulation.checks import Checks
from tests.simulation.checks.failover import SETTLE
from tests.simulation.clients import Operator
from tests.simulation.cluster import Answer, Host, SimulatedProcess, bury
from tests.simulation.database.server import Server
from tests.simulation.faults import Faults
from tests.simulation.kernel import Kernel, Owner, Task
from tests.simulation.kubernetes.cluster import clusters_of
from tests.simulation.kubernetes.places import Places
from tests.simulation.kubernetes.plot import Plot
from tests.simulation.machines import Machine
from tests.simulation.pxe_filters import Firewall
from tests.simulation.scenario import TIMEOUT, Scenario
from tests.simulation.threads import Signals

# How long an inspection may take after the faults: until it times out, and then to be powered off, in vain for a while.
_SETTLE = TIMEOUT + 120.0
_HTTP_PATIENCE = 10.0


class World:
    """Built from a scenario; ``run`` plays it and raises nothing: see ``kernel.failure``."""

    def __init__(self, scenario: Scenario, *, transcript: bool = False) -> None:
        self.scenario = scenario
        self.kernel = Kernel(scenario.seed, transcript=transcript)
        self.server = Server(self.kernel, schema.metadata, scenario.family)
        self.server.rate = scenario.database_rate
        self.signals = Signals(self.kernel)
        self.process_of: dict[Owner, SimulatedProcess] = {}
        self.processes_started = 0
        self._started_at = 0.0
        self.connections = 0
        self.counted: Counter[str] = Counter()
        self.losing_durable = False
        self.stopping = False
        self.checks = Checks(self)
        self.server.log.watch = self.checks.committing
        self.server.log.forgot = self.checks.forgot
        self.server.transactions.notify = self._notify
        self.kernel.on_fault = self._thread_died
        self.hosts = [Host(self, f"h{number + 1}") for number in range(scenario.hosts)]
        self.firewalls = [Firewall(self, host) for host in self.hosts]
        self.machines = {
            machine.uuid: machine for number in range(scenario.nodes) if (machine := Machine(self, number))
        }
        self.places = Places()
        self.clusters = [] if scenario.site is None else clusters_of(self, scenario.site)
        self.plot = None if scenario.story is None else Plot(self, scenario.story)
        self._listeners: list[tuple[Owner, LocalBus]] = []
        self._hearing = ExitStack()
        self._rng = self.kernel.rng("world")
        self._clients: list[Task] = []
        self.faults = Faults(self)

    # Words.

    def say(self, what: str, actor: str = "world") -> None:
        self.kernel.say(what, actor)

    def count(self, what: str, number: int = 1) -> None:
        self.counted[what] += number

    def name_of(self, node: str) -> str:
        """Return the name of the node's machine."""
        machine = self.machines.get(node)
        return machine.name if machine else node

    def inspection_of(self, node: str) -> str | None:
        """Return the node's present inspection, as committed."""
        row = self.server.peek("nodes", node)
        return None if row is None else row["inspection"]

    def note_exception(self, info: Any) -> None:
        """The product logged an exception; its text helps whoever reads the transcript."""
        exc = info if isinstance(info, BaseException) else (info[1] if isinstance(info, tuple) else None)
        if exc is not None and self.kernel.lines is not None:
            for line in traceback.format_exception(exc)[-3:]:
                self.kernel.say(line.strip().replace("\n", " | ")[:300])

    def spawn(self, name: str, run: Callable[[], object]) -> Task:
        """Start a task outside of the service."""
        task = self.kernel.spawn(self.kernel.world, name, run)
        self._clients.append(task)
        return task

    def _thread_died(self, task: Task, exc: BaseException) -> None:
        text = "".join(traceback.format_exception(exc)[-4:]).strip()
        if task.owner in self.process_of:
            self.say(f"thread died: {text}", str(task))
            self.kernel.fail("thread", f"{task} died of {type(exc).__name__}: {exc}")
        else:
            raise exc

    # The course of things.

    def run(self) -> None:
        """Enrol, let operators and faults loose, let everything come to rest, stop it gracefully."""
        kernel, scenario = self.kernel, self.scenario
        self._enrol()
        for host in self.hosts:
            for roles in scenario.layout:
                self.start_process(host, roles)
        for machine in self.machines.values() if scenario.rounds else ():
            self.spawn(f"operator {machine.name}", Operator(self, machine).work)
        for machine in self.machines.values() if scenario.intruders and scenario.rounds else ():
            self.spawn(f"intruder of {machine.name}", machine.intruder)
        for cluster in self.clusters:
            cluster.start()
        if self.plot is not None:
            self.spawn("story", self.plot.work)
        self.spawn("faults", self.faults.work)
        kernel.run(scenario.active, None if self.plot is None else self.plot.is_over)
        self.faults.stop()
        kernel.run(scenario.active + self._settle, self._quiet)
        if kernel.failure is None:
            self.checks.ending.judge()
        for cluster in self.clusters if kernel.failure is None else ():
            cluster.check.judge()
        if kernel.failure is None:
            self._stop_all()

    @property
    def _settle(self) -> float:
        """Seconds from the last fault until every inspection must have ended.

        The start of a machine may have to wait for the power-ons of all others, a quantum of the throttle each, some of
        them attempted twice. Only then does its own timeout begin.
        """
        if self.clusters:
            return SETTLE
        return _SETTLE + 2 * self.scenario.nodes * self.scenario.settings.worker.reboot_throttle

    def _quiet(self) -> bool:
        at_rest = all(task.done for task in self._clients) and self.checks.ending.at_rest()
        if not all(cluster.check.at_rest() for cluster in self.clusters):
            return False
        return at_rest and self.kernel.now > self.quiet_at

    @property
    def quiet_at(self) -> float:
        """No end before every fault is over and who led can be known."""
        if self.scenario.has_pxe_filters:
            if len(self.running) < len(self.hosts) * len(self.scenario.layout):
                return math.inf  # a lost host is still on its way back
            return max(self.faults.stopped_at, self._started_at) + 3 * self.scenario.settings.lease.numbers().ttl
        profile, period = self.scenario.settings.lease.numbers(), self.scenario.settings.inspector.timeout_period
        return self.faults.stopped_at + (2 * profile.ttl + period + 8.0 if self.faults.hung else 4.0)

    def _stop_all(self) -> None:
        self.stopping = True
        running = [process for process in self.process_of.values() if not process.owner.dead]
        for process in running:
            process.terminate()
        grace = self.scenario.settings.worker.graceful_timeout
        self.kernel.run(self.kernel.now + grace + 10.0, lambda: all(process.owner.dead for process in running))
        for process in running:
            if not process.owner.dead:
                self.kernel.fail("I8", f"{process.owner.name} has not stopped {grace + 10:g} s after SIGTERM")

    def _enrol(self) -> None:
        now = self.server.clock()
        tables = self.server.tables
        for cluster in self.clusters:
            cluster.enrol()
        from ferroscope.db.mapping import Mapper
        from ferroscope.db.nodes import NODE

        ports = Mapper(Port, schema.ports)
        for machine in self.machines.values():
            node = Node(
                uuid=machine.uuid,
                name=machine.name,
                driver="sim",
                provision_state=Provision.MANAGEABLE,
                driver_info={"sim_address": f"192.0.2.{100 + machine.number}"},
                created_at=now,
            )
            port = Port(
                uuid=machine.uuid.replace("4000", "4001"), node=machine.uuid, address=machine.mac, created_at=now
            )
            tables["nodes"].put((node.uuid,), NODE.to_row(node), 0, keep=False)
            tables["ports"].put((port.uuid,), ports.to_row(port), 0, keep=False)

    # Processes.

    def start_process(self, host: Host, roles: tuple[Any, ...]) -> None:
        self._started_at = self.kernel.now
        SimulatedProcess(self, host, roles).start()

    def ended(self, process: SimulatedProcess) -> None:
        """A process has ended by itself: its supervisor starts the next one."""
        if not self.stopping:
            delay = 1.0 if process.exit_code == 0 else self._rng.uniform(0.05, 1.0)
            # Nobody says of a dead filter that it is dead: what it has opened may be open for some seconds more.
            if process.exit_code not in (0, None) and not self.scenario.has_pxe_filters:
                self.kernel.at(0.05, self._release_dead, process)
            self.kernel.at(delay, self._restart, process)

    def crash(self, process: SimulatedProcess, *, supervised: bool, after: float) -> None:
        """Kill a process; a supervisor frees what it held, or nobody does."""
        process.kill()
        if supervised:
            self.kernel.at(self._rng.uniform(0.02, 0.3), self._release_dead, process)
        self.kernel.at(after, self._restart, process)

    def _restart(self, process: SimulatedProcess) -> None:
        if not self.stopping:
            self.start_process(process.host, process.roles)

    def _release_dead(self, process: SimulatedProcess) -> None:
        self.kernel.spawn(process.host.owner, f"bury-{process.member}", lambda: bury(self, process))

    @property
    def running(self) -> list[SimulatedProcess]:
        return [process for process in self.process_of.values() if not process.owner.dead]

    def settings_of(self, host: Host) -> Settings:
        """Return the settings of the processes of this host: each cluster has its own."""
        found = self.scenario.settings
        return next((one.adjusted(found) for one in self.clusters if host in one.hosts), found)

    # Networks.

    def listen(self, bus: LocalBus) -> None:
        """What ``start_watcher`` does: the process hears what others' transactions say."""
        if self.scenario.family == "postgresql":
            self._listeners.append((self.kernel.me().owner, bus))
            for channel in Channel:
                bus.publish(channel)
            self._hearing.enter_context(bus.hearing(DATABASE))  # while the process lives

    def _notify(self, channels: list[str]) -> None:
        self._listeners = [(owner, bus) for owner, bus in self._listeners if not owner.dead]
        for owner, bus in self._listeners:
            for channel in channels:
                owner.host.link.send(lambda bus=bus, channel=channel: bus.publish(channel), None)

    def http(self, method: str, path: str, body: bytes, *, source: str = "127.0.0.1") -> Answer | None:
        """Call the service through a load balancer, from the address ``source``; None where no answer comes."""
        kernel, rng = self.kernel, self._rng
        servers = [process.http for process in self.running if process.http is not None and process.http.accepts]
        if not servers:
            kernel.sleep(0.2)
            return None
        server = rng.choice(servers)
        task, ticket = kernel.me(), kernel.me().ticket
        lost = rng.random() < self.scenario.http_loss * self.faults.active

        def reply(answer: Answer | None, by: Task | None) -> None:
            if answer is not None:
                self.checks.answers.answered(by, answer.status)
            if answer is None or not lost:
                kernel.at(0.0005 + rng.random() * 0.002, kernel.resume, task, ticket, answer)

        kernel.at(0.0005 + rng.random() * 0.002, server.take, method, path, body, source, reply)
        kernel.at(_HTTP_PATIENCE, kernel.resume, task, ticket, None)
        answer: Answer | None = kernel.park()
        return answer
