"""Hosts, and the service's processes on them: started, terminated, killed, frozen, started again.

What runs in a process is ``runtime.process.Process`` itself, with everything that it starts. A
host's supervisor does what ``runtime.supervisor`` does for a child that died, by the same code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
from falcon import testing

from ferroscope.config.errors import StartError
from ferroscope.contracts.errors import StoreError
from ferroscope.contrib.boot.pxe_filter.process import ROLE as PXE_FILTER
from ferroscope.contrib.boot.pxe_filter.process import PxeFilterProcess
from ferroscope.contrib.kubernetes.cluster import ROLE
from ferroscope.runtime import role_process
from ferroscope.runtime.process import ServiceProcess
from ferroscope.runtime.supervisor import Supervisor
from tests.simulation.database.server import EPOCH
from tests.simulation.kernel import Owner, Task
from tests.simulation.network import Link
from tests.simulation.threads import Flag

if TYPE_CHECKING:
    from tests.simulation.world import World


class HostClock:
    """Runs at its own rate from its own zero; its wall clock can be set wrong."""

    def __init__(self, world: World, rate: float, boot: float) -> None:
        self._kernel = world.kernel
        self.rate = rate
        self._boot = boot
        self.wall_offset = 0.0

    def time(self) -> float:
        return EPOCH + self._kernel.now * self.rate + self.wall_offset

    def monotonic(self) -> float:
        return self._boot + self._kernel.now * self.rate


class Host:
    def __init__(self, world: World, name: str) -> None:
        rng = world.kernel.rng(f"host {name}")
        self.name = name
        self.clock = HostClock(world, world.scenario.host_rate(rng), rng.uniform(0, 1e6))
        self.link = Link(world.kernel, name)
        self.bmc_up = True
        self.boot = f"{name}-1"
        self.owner = Owner(f"supervisor@{name}", rate=self.clock.rate, host=self)


class Answer(msgspec.Struct, frozen=True):
    status: int
    body: bytes


class HttpServer:
    """Stands in for ``http_server.server.HttpServer``: no sockets, a task for each call."""

    def __init__(self, world: World, process: SimulatedProcess, app: Callable[..., Any]) -> None:
        self._world = world
        self._process = process
        self._app = app
        self.accepts = False
        self._calls: dict[int, Callable[[Answer | None], object]] = {}
        self._number = 0
        self._idle = Flag(world.kernel)

    def start(self) -> None:
        self.accepts = True
        self._process.http = self
        self._process.owner.on_death.append(self._reset)

    def is_alive(self) -> bool:
        return self.accepts

    def is_responsive(self) -> bool:
        return True

    def stop(self, timeout: float) -> None:
        self.accepts = False
        if self._calls:
            self._idle.wait(timeout)

    def take(
        self,
        method: str,
        path: str,
        body: bytes,
        source: str,
        reply: Callable[[Answer | None, Task | None], object],
    ) -> None:
        """Serve a call of ``source`` in a thread of the process; ``reply`` gets None where the connection breaks."""
        if not self.accepts or self._process.owner.dead:
            reply(None, None)
            return
        self._number += 1
        number = self._number
        self._calls[number] = lambda answer: reply(answer, None)

        def serve() -> None:
            task = self._world.kernel.me()
            answer = self._serve(method, path, body, source)
            self._calls.pop(number, None)
            if not self._calls:
                self._idle.set()
                self._idle.clear()
            reply(answer, task)

        self._world.kernel.spawn(self._process.owner, f"http-{number}", serve)

    def _serve(self, method: str, path: str, body: bytes, source: str) -> Answer:
        status: list[str] = []
        headers = {"X-OpenStack-Ironic-API-Version": "1.84", "Content-Type": "application/json"}
        path, _, query = path.partition("?")
        environ = testing.create_environ(
            path=path,
            query_string=query,
            method=method,
            body=body,
            headers=headers,
            host="localhost",
            port=6385,
            remote_addr=source,
        )
        parts = self._app(environ, lambda line, _headers, _exc=None: status.append(line))
        return Answer(int(status[0][:3]), b"".join(parts))

    def _reset(self) -> None:
        for reply in self._calls.values():
            reply(None)
        self._calls.clear()


class SimulatedProcess:
    """One process from its start to its end; ``member`` is the id under which it joins."""

    def __init__(self, world: World, host: Host, roles: tuple[Any, ...]) -> None:
        world.processes_started += 1
        number = world.processes_started
        self.world = world
        self.host = host
        self.roles = roles
        self.member = f"m{number}"
        name = "all" if len(roles) == 3 else roles[0]
        self.owner = Owner(f"{name}-{number}@{host.name}", rate=host.clock.rate, host=host)
        self.owner.host = host
        self.http: HttpServer | None = None
        self.exit_code: int | None = None
        self.terminated_at: float | None = None
        self._missed = 0.0
        self.ended_at: float | None = None
        self.listeners: list[Any] = []
        world.process_of[self.owner] = self

    def start(self) -> None:
        self.world.kernel.spawn(self.owner, "main", self._main)

    def _main(self) -> None:
        self.world.say("starts", self.owner.name)
        settings = self.world.settings_of(self.host)
        try:
            if PXE_FILTER in self.roles:
                code = PxeFilterProcess(settings).run()
            elif ROLE in self.roles:
                code = role_process.run(ROLE, settings)
            else:
                code = ServiceProcess(settings, self.roles, member=self.member, sockets=[]).run()
        except StartError as exc:
            self.world.say(f"could not start: {exc}", self.owner.name)
            code = 1
        self.exit(code)

    def exit(self, code: int) -> None:
        """The process ends with ``code``; what is left of its threads ends with it."""
        if self.exit_code is not None:
            return
        self.exit_code = code
        self.ended_at = self.world.kernel.now
        self.world.say(f"exits with {code}", self.owner.name)
        self.world.checks.stopping.exited(self)
        self.world.kernel.kill(self.owner)
        self.world.ended(self)

    @property
    def stopped_in(self) -> float:
        """How many seconds it took to stop, without those for which it was frozen."""
        assert self.terminated_at is not None
        assert self.ended_at is not None
        return self.ended_at - self.terminated_at - (self.owner.missed - self._missed)

    def terminate(self) -> None:
        """SIGTERM."""
        if self.terminated_at is None and not self.owner.dead:
            self.terminated_at = self.world.kernel.now
            self._missed = self.owner.missed
            self.world.say("gets SIGTERM", self.owner.name)
            self.world.signals.terminate(self.owner)

    def kill(self) -> None:
        """SIGKILL."""
        if not self.owner.dead:
            self.exit_code = -9
            self.ended_at = self.world.kernel.now
            self.world.say("is killed", self.owner.name)
            self.world.kernel.kill(self.owner)


def bury(world: World, process: SimulatedProcess) -> None:
    """Do what a supervisor does when its child has died: free what it held."""
    supervisor = Supervisor(world.scenario.settings, 1, lambda _member: 0)
    try:
        supervisor._release_dead(process.member, 9)
    except StoreError:
        world.say(f"could not bury {process.owner.name}")
