"""A thread that ends, for whatever reason, ends its process: none goes on without a heart, a worker or a task."""

from __future__ import annotations

import threading
from typing import Any, NoReturn

import pytest

from ferroscope.config.options import ApiSettings, Settings, WorkerSettings
from ferroscope.core.model import DEFAULT
from ferroscope.http_server.server import HttpServer, bind
from ferroscope.periodic.singleton import Singleton
from ferroscope.runtime.member import Membership
from ferroscope.runtime.system import SystemClock
from ferroscope.worker.loop import Worker
from ferroscope.worker.pool import Dispatcher
from ferroscope.worker.services import Services
from ferroscope.worker.slots import Slots
from ferroscope_client.core.obstacles import Lane
from tests.support.processes import PATIENCE
from tests.support.rows import each


class End(BaseException):
    """What no ``except Exception`` sees."""


class Broken:
    """Whatever is asked of it fails."""

    name = "periodic/broken"
    period = 1.0

    def __getattr__(self, _name: str) -> Any:
        def fail(*_args: Any, **_options: Any) -> NoReturn:
            raise End

        return fail


@each("what", ["heartbeat", "worker", "task"])
def test_a_loop_that_ends_sets_the_stop_flag(what: str) -> None:
    stop, broken = threading.Event(), Broken()
    anything: Any = broken
    clock = SystemClock()
    if what == "heartbeat":
        settings = WorkerSettings(member_ttl=0.004)
        run = Membership(anything, settings, role="worker", stop=stop, clock=clock)._run
    elif what == "worker":
        services = Services(anything, Settings(), clock, stop, member="me", process="me")
        worker = Worker(services, anything, {}, {})
        run = Dispatcher(Lane.COMPUTE, Slots(1, clock=clock, stop=stop), worker).run
    else:
        run = Singleton(
            lambda: anything, anything, keep=anything, profile=DEFAULT, bus=anything, clock=clock, stop=stop
        ).run
    with pytest.raises(End):
        run()
    assert stop.is_set()


def test_a_server_whose_thread_ends_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = threading.Event()
    listener = bind("127.0.0.1", 0)
    server = HttpServer(lambda *_: [], ApiSettings(), [listener], failed=failed.set)

    async def end() -> None:
        listener.close()

    monkeypatch.setattr(server, "_serve", end)
    server.start()
    assert failed.wait(PATIENCE)
    server.stop(0)
