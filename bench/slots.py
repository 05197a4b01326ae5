"""``python -m bench.slots [NUMBER ...]``: the memory of a worker of which so many requests wait for a BMC at once.

A process of its own for each number: a worker's pool over SQLite, and one listener that accepts connections and
never answers. Prints the number, its threads, and its resident memory in MiB.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import threading
from typing import Final

from bench.usage import memory
from ferroscope import transition
from ferroscope.bmc.drivers import DriverOptions
from ferroscope.bmc.sim.driver import SimBmc
from ferroscope.config.options import DatabaseSettings, Settings, WorkerSettings
from ferroscope.core.model import Member, Node
from ferroscope.core.states import Provision
from ferroscope.db.prepare import ensure_schema
from ferroscope.db.store import Store
from ferroscope.hooks.pipeline import from_settings
from ferroscope.runtime.backend import open_backend
from ferroscope.runtime.system import SystemClock
from ferroscope.worker.loop import Worker
from ferroscope.worker.pool import WorkerPool
from ferroscope.worker.start import PxeFilterWait, RebootThrottle
from ferroscope.worker.tasks import build
from tests.support.processes import until

_NUMBERS: Final = (1, 64, 256)
_ME: Final = "BENCH_SLOTS_DATABASE"


def measure(number: int, url: str) -> None:
    """Let ``number`` requests wait for silent BMCs, and print what that takes."""
    settings = Settings(database=DatabaseSettings(connection=url), worker=WorkerSettings(bmc_slots=number))
    clock, stop = SystemClock(), threading.Event()
    backend = open_backend(settings, clock=clock, stop=stop, listen=False)
    store = backend.store
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    address = f"127.0.0.1:{listener.getsockname()[1]}"
    throttle = RebootThrottle(0.0, holder="m", store=store, clock=clock, profile=settings.lease.numbers())
    store.write(lambda tx: tx.members.beat(Member(id="m", host="h", pid=1, role="worker"), 600.0))
    worker = Worker(
        store=store,
        queue=backend.queue,
        tasks=build(from_settings(settings.inspector), throttle, PxeFilterWait(0.0)),
        drivers={"sim": SimBmc(DriverOptions(command_timeout=600.0))},
        settings=settings,
        clock=clock,
        stop=stop,
        member="m",
        process="bench",
    )
    for one in range(number):
        uuid = f"11111111-1111-4111-8111-{one:012d}"
        info = {"sim_address": address, "sim_node": str(one)}
        node = Node(uuid=uuid, driver="sim", driver_info=info, provision_state=Provision.MANAGEABLE)
        _start(store, node)
    idle = memory(os.getpid()).rss
    WorkerPool(worker).start()
    until(lambda: _busy() >= number)
    threading.Event().wait(1.0)
    print(f"{number} waiting: {_busy()} threads, {memory(os.getpid()).rss:.1f} MB, {idle:.1f} MB before", flush=True)
    os._exit(0)  # nobody waits for the BMCs


def _busy() -> int:
    return sum(one.name.startswith("worker-bmc-") for one in threading.enumerate())


def _start(store: Store, node: Node) -> None:
    store.write(lambda tx: tx.nodes.add(node))
    store.write(lambda tx: transition.start(tx, node, inspection=node.uuid, process="bench"))


if __name__ == "__main__":
    if _ME in os.environ:
        measure(int(sys.argv[1]), os.environ[_ME])
    for asked in [int(text) for text in sys.argv[1:]] or _NUMBERS:
        with tempfile.TemporaryDirectory() as directory:
            url = f"sqlite:///{directory}/slots.db"
            ensure_schema(Settings(database=DatabaseSettings(connection=url)), upgrade=True)
            command = [sys.executable, "-m", "bench.slots", str(asked)]
            subprocess.run(command, check=True, env={**os.environ, _ME: url})  # ourselves
