"""A whole service in memory with a clock that tests move: one worker, one scripted machine."""

from __future__ import annotations

import copy
import math
import threading
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from ferroscope import transition
from ferroscope.bus.local import LocalBus
from ferroscope.config.options import DriverSettings, InspectorSettings, Settings, WorkerSettings
from ferroscope.contracts.bmc import BootDevice, Power
from ferroscope.contracts.errors import BmcError
from ferroscope.contracts.remote import Images, Unchecked
from ferroscope.contracts.store import Query, packed
from ferroscope.core.model import GIVEN, Claim, Entry, Inspection, Member, Node, Request
from ferroscope.core.states import Event
from ferroscope.db import Transaction
from ferroscope.hooks.pipeline import from_settings
from ferroscope.runtime.system import SystemClock
from ferroscope.worker.loop import Worker
from ferroscope.worker.services import Services
from ferroscope.worker.start import PxeFilterWait, RebootThrottle
from ferroscope.worker.tasks import build
from ferroscope_client.core.states import Provision, State
from tests.support.manual_clock import ManualClock, ManualStop
from tests.support.stores import claim_from, open_queue, open_store

NODE = "11111111-1111-4111-8111-111111111111"
INVENTORY: dict[str, Any] = {
    "interfaces": [{"name": "eth0", "mac_address": "02:00:00:00:00:01", "ipv4_address": "192.0.2.1", "lldp": []}],
    "cpu": {"architecture": "x86_64", "count": 8},
    "memory": {"physical_mb": 4096},
    "boot": {"pxe_interface": "02:00:00:00:00:01"},
    "disks": [],
}


class Machine:
    """A BMC that notes every command; ``fail`` is consulted before each."""

    def __init__(self) -> None:
        self.power = Power.OFF
        self.commands: list[str] = []
        self.once: BootDevice | None = None
        self.fail: Callable[[str], BmcError | None] = lambda _command: None

    def validate(self, node: Node) -> str | None:
        return node.driver_info.get("wrong")

    def get_power(self, node: Node) -> Power:
        self._check("get")
        return self.power

    def set_power(self, node: Node, power: Power) -> None:
        self._check(str(power))
        self.commands.append(str(power))
        if power is Power.ON and self.power is not Power.ON:
            self.boots()
        self.power = power

    def reboot(self, node: Node) -> None:
        self._check("reboot")
        self.commands.append("reboot")
        self.power = Power.ON
        self.boots()

    def boots(self) -> None:
        self.once = None

    def set_boot_device(self, node: Node, device: BootDevice, *, persistent: bool) -> None:
        self._check("boot")
        self.commands.append(f"boot {device}{' always' if persistent else ''}")
        self.once = device

    def get_boot_device(self, node: Node) -> tuple[BootDevice | None, bool | None]:
        return self.once, None if self.once is None else False

    def clear_boot_device(self, node: Node, device: BootDevice) -> bool:
        self._check("clear")
        if self.once is not device:
            return False
        self.commands.append(f"clear {device}")
        self.once = None
        return True

    def _check(self, command: str) -> None:
        if error := self.fail(command):
            raise error


class Service:
    """What a test drives: operator, ramdisk and worker in one object."""

    def __init__(self, settings: Settings, *, real_time: bool = False) -> None:
        self.settings = settings
        self.clock: Any = SystemClock() if real_time else ManualClock()
        self.stop: Any = threading.Event() if real_time else ManualStop(self.clock)
        self.bus = LocalBus()
        self.store = open_store(bus=self.bus, clock=self.clock)
        self.queue = open_queue(self.store, bus=self.bus, clock=self.clock, poll_seconds=0.0)
        self.machine = Machine()
        self.images: Images = Unchecked()
        self.claim_valid_for: Callable[[float], float] = lambda _confirmed_at: math.inf
        self._inspections = 0
        self.worker = self.new_worker("m1")
        node = Node(uuid=NODE, name="one", driver="machine", provision_state=Provision.MANAGEABLE)
        self.store.write(lambda tx: tx.nodes.add(node))

    def new_worker(self, member: str) -> Worker:
        self.beat(member)
        throttle = RebootThrottle(
            self.settings.worker.reboot_throttle,
            holder=member,
            store=self.store,
            clock=self.clock,
            profile=self.settings.lease.numbers(),
        )
        pxe_filter = PxeFilterWait()
        services = Services(
            self.store,
            self.settings,
            self.clock,
            self.stop,
            member=member,
            process=f"worker {member}",
            claim_valid_for=self.claim_valid_for,
            images=self.images,
            power_poll_seconds=1.0,
        )
        tasks = build(from_settings(self.settings.inspector), throttle, pxe_filter)
        return Worker(services, self.queue, tasks, {"machine": self.machine})

    def use(self, store: Any) -> None:
        """Have the worker's attempts use this store."""
        self.worker.services = copy.copy(self.worker.services)
        self.worker.services.store = store

    def beat(self, member: str, ttl: float = 1e6) -> None:
        record = Member(id=member, host="h", pid=1, role="worker")
        self.store.write(lambda tx: tx.members.beat(record, ttl))

    def claim(self, member: str = "") -> Claim | None:
        """Have the worker, or another member, claim a request, and do nothing about it."""
        return claim_from(
            self.queue, member or self.worker.services.member, self.settings.worker.get_timeout, self.stop
        )

    def kill(self, member: str) -> None:
        """The member is gone, and somebody has seen it die."""
        self.store.write(lambda tx: tx.members.leave(member, died=True))

    def start(self, **options: Any) -> Node:
        self._inspections += 1
        ident = f"22222222-2222-4222-8222-{self._inspections:012d}"
        return self.store.write(
            lambda tx: transition.start(tx, tx.nodes.get(NODE), inspection=ident, process="api", **options)
        )

    def submit(self, event: Event, payload: dict[str, Any] | None = None) -> None:
        """Queue the event; a time-out when it is time for one."""
        if event is Event.TIMEOUT:
            self.clock.now += self.settings.inspector.timeout + 1.0
        self.store.write(lambda tx: transition.submit(tx, tx.nodes.get(NODE), event, process="api", payload=payload))

    def call_back(self, inventory: Any = INVENTORY, **unprocessed: Any) -> None:
        """The ramdisk's callback, as the api stores it."""
        parts = {"inventory": msgspec.json.encode(inventory), "unprocessed": msgspec.json.encode(unprocessed)}
        inspection = self.node.inspection or ""
        self.store.write(lambda tx: tx.data.save(inspection, NODE, packed(parts)))
        self.submit(Event.CONTINUE)

    def reapply(self, inventory: Any = None, **unprocessed: Any) -> Node:
        """A reapply of what is stored for the newest inspection, or of an inventory that is given."""
        self._inspections += 1
        before = self.node.inspection or ""
        new = Inspection(
            uuid=f"22222222-2222-4222-8222-{self._inspections:012d}",
            node=NODE,
            state=State.REAPPLYING,
            started_at=0.0,
            manage_boot=False,
            reapplies=before if inventory is None else GIVEN,
        )

        def work(tx: Transaction) -> Node:
            parts = tx.data.load(before, ("inventory", "unprocessed", "out_of_band"))
            if inventory is not None:
                parts = {"inventory": msgspec.json.encode(inventory), "unprocessed": msgspec.json.encode(unprocessed)}
            node = transition.reapply(tx, tx.nodes.get(NODE), new, process="api")
            tx.data.save(new.uuid, NODE, packed(parts))
            return node

        return self.store.write(work)

    def work(self) -> list[str]:
        """Let the worker work until the queue is empty."""
        said = []
        while self.pending:
            self.clock.now += 1.0
            said.append(self.worker.step())
            assert len(said) < 100, said
        return said

    def boot(self, **options: Any) -> None:
        """Start an inspection, and let the worker boot the machine."""
        self.start(**options)
        self.work()

    def finish(self, inventory: Any = INVENTORY, **unprocessed: Any) -> None:
        """Let the ramdisk call back, and the worker process its data."""
        self.call_back(inventory, **unprocessed)
        self.work()

    def inspect(self) -> None:
        """Let one whole inspection pass."""
        self.boot()
        self.finish()

    def carry_out(self, event: Event, payload: dict[str, Any] | None = None) -> None:
        """Queue the event, and let the worker carry it out."""
        self.submit(event, payload)
        self.work()

    @property
    def node(self) -> Node:
        return self.store.read(lambda tx: tx.nodes.get(NODE))

    @property
    def inspection(self) -> Inspection:
        ident = self.node.inspection or ""
        return self.store.read(lambda tx: tx.inspections.get(ident))

    @property
    def pending(self) -> list[Request]:
        return list(self.store.read(lambda tx: tx.requests.pending(NODE)))

    @property
    def ports(self) -> list[str]:
        return [port.address for port in self.store.read(lambda tx: tx.ports.list(Query(filters={"node": NODE})))]

    @property
    def journal(self) -> list[Entry]:
        return list(self.store.read(lambda tx: tx.journal.list(Query(filters={"node": NODE}, sort_key="id"))))

    @property
    def steps(self) -> list[str]:
        return [entry.step for entry in self.journal]


def settings(**inspector: Any) -> Settings:
    return Settings(
        worker=WorkerSettings(get_timeout=0.0),
        inspector=InspectorSettings(**inspector),
        drivers=DriverSettings(power_timeout=5.0),
    )


@pytest.fixture
def service() -> Service:
    return Service(settings())
