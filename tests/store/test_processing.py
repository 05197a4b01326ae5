"""Processing on every store: all that the hooks did is committed together, or nothing of it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from ferroscope import transition
from ferroscope.bmc.fake import FakeBmc
from ferroscope.config.options import InspectorSettings, Settings, WorkerSettings
from ferroscope.contracts.data import Part, packed
from ferroscope.contracts.store import Query
from ferroscope.core.delivery import Next
from ferroscope.core.model import Document, Inspection, Node, Port
from ferroscope.core.reasons import Reason
from ferroscope.core.states import Event, Provision, State
from ferroscope.db.transaction import Transaction
from ferroscope.hooks import helpers
from ferroscope.hooks.base import HookError, HookTask, InspectionHook
from ferroscope.hooks.loader import LoadedHook, load
from ferroscope.hooks.pipeline import Pipeline
from ferroscope.runtime.system import SystemClock
from ferroscope.worker.loop import Worker
from ferroscope.worker.process import ProcessTask, RuleStep, finish
from ferroscope.worker.services import Services, Task
from ferroscope.worker.tasks import fail
from tests.corpus import ALL
from tests.corpus.machines import MAC, body, disk, lldp, nic, pci
from tests.store.conftest import Adapter
from tests.support import examples

SETTINGS = InspectorSettings(
    hooks=ALL,
    add_ports="all",
    keep_ports="present",
    pci_device_alias=('{"vendor_id": "10de", "product_id": "1eb8", "name": "gpu"}',),
    physical_network_cidr_map=("192.0.2.0/24:rack",),
)
BODY = body(
    {"interfaces": [nic(0, lldp=lldp()), nic(1)], "disks": [disk("a"), disk("b")]},
    pci_devices=[pci("10de", "1eb8")],
    data=[["cpu", "physical_0", "cores", "8"]],
)


class Refusing(InspectionHook):
    """Changes everything that a hook may change; then refuses the data, as long as ``refuses``."""

    def __init__(self) -> None:
        self.refuses = True

    def __call__(self, task: HookTask, inventory: Document, plugin_data: Document) -> None:
        if not self.refuses:
            return
        task.node.properties.clear()
        task.node.extra["half"] = "way"
        task.node.name = "somebody-else"
        plugin_data.clear()
        for port in helpers.current(task).values():
            helpers.remove(task, port)
        raise HookError(Reason.HOOK_FAILED, "it is Friday")


class Site:
    """A node with two ports on a store, and a worker with all hooks, of which one more refuses."""

    def __init__(self, adapter: Adapter) -> None:
        self.adapter = adapter
        adapter.join("m1")
        fields = {"driver": "fake", "provision_state": Provision.MANAGEABLE}
        node = adapter.node(properties={"rack": "7", "capabilities": "a:b"}, **fields)
        self.uuid = node.uuid
        ports = [examples.port(node, address=MAC.format(number), pxe_enabled=False) for number in (0, 9)]
        adapter.write(lambda tx: tx.ports.add(ports))

    def worker(self, hooks: Sequence[LoadedHook]) -> Worker:
        run_hooks = ProcessTask(Pipeline(hooks, SETTINGS), RuleStep())
        settings = Settings(inspector=SETTINGS, worker=WorkerSettings(get_timeout=1.0))
        stop = threading.Event()
        services = Services(self.adapter.store, settings, SystemClock(), stop, member="m1", process="worker")
        tasks: dict[Event, Task] = {
            Event.INSPECT: lambda _attempt: Next(Event.WAIT),  # a machine that boots by itself
            Event.CONTINUE: run_hooks,
            Event.REAPPLY: run_hooks,
            Event.FINISH: finish,
            Event.FAIL: fail,
        }
        return Worker(services, self.adapter.queue, tasks, {"fake": FakeBmc()})

    def inspect(self, worker: Worker, inspection: str, disks: int = 2) -> None:
        """Inspect the node, with a machine that answers at once."""
        write = self.adapter.write
        write(lambda tx: transition.start(tx, tx.nodes.get(self.uuid), inspection=inspection, process="api"))
        self.work(worker)
        inventory = {**BODY["inventory"], "disks": BODY["inventory"]["disks"][:disks]}
        rest = {key: value for key, value in BODY.items() if key != "inventory"}
        parts: dict[Part, bytes] = {
            "inventory": msgspec.json.encode(inventory),
            "unprocessed": msgspec.json.encode(rest),
        }
        write(lambda tx: tx.data.save(inspection, self.uuid, packed(parts)))
        self.submit(worker, Event.CONTINUE)

    def submit(self, worker: Worker, event: Event) -> None:
        self.adapter.write(lambda tx: transition.submit(tx, tx.nodes.get(self.uuid), event, process="api"))
        self.work(worker)

    def reapply(self, worker: Worker, inspection: str, *, of: str) -> None:
        def work(tx: Transaction) -> None:
            new = Inspection(
                uuid=inspection,
                node=self.uuid,
                state=State.REAPPLYING,
                started_at=tx.now,
                manage_boot=False,
                reapplies=of,
            )
            transition.reapply(tx, tx.nodes.get(self.uuid), new, process="api")
            tx.data.save(inspection, self.uuid, packed(tx.data.load(of, ("inventory", "unprocessed"))))

        self.adapter.write(work)
        self.work(worker)

    def work(self, worker: Worker) -> None:
        for _ in range(10):
            if not self.adapter.pending(self.node):
                return
            worker.step()
        raise AssertionError(f"still queued: {self.adapter.pending(self.node)}")

    @property
    def node(self) -> Node:
        return self.adapter.get(self.uuid)

    @property
    def ports(self) -> dict[str, Port]:
        query = Query(filters={"node": self.uuid})
        return {port.address: port for port in self.adapter.read(lambda tx: list(tx.ports.list(query)))}

    def data(self, inspection: str) -> dict[str, Any]:
        parts = self.adapter.read(lambda tx: tx.data.load(inspection, ("inventory", "unprocessed", "plugin_data")))
        return {name: msgspec.json.decode(part) for name, part in parts.items()}


@pytest.mark.parametrize("position", [2, len(ALL)])
def test_hooks_that_fail_half_way_change_nothing_but_the_failure(adapter: Adapter, position: int) -> None:
    site, refusing = Site(adapter), Refusing()
    hooks = list(load(SETTINGS))
    hooks.insert(position, LoadedHook("refusing", refusing))
    worker = site.worker(hooks)
    node, ports = site.node, site.ports
    site.inspect(worker, "i1")
    failed = site.node
    assert failed.state is State.ERROR
    assert "it is Friday" in (failed.last_error or "")
    for name in ("name", "properties", "extra", "driver_info", "instance_info", "attributes", "resource_class"):
        assert getattr(failed, name) == getattr(node, name), name
    assert site.ports == ports
    kept = site.data("i1")
    assert kept["inventory"] == BODY["inventory"]
    assert kept["unprocessed"]["data"] == BODY["data"]
    assert "plugin_data" not in kept
    told = adapter.read(lambda tx: list(tx.journal.list(Query(filters={"inspection": "i1"}, sort_key="id"))))
    assert "it is Friday" in told[-1].message
    assert not any(entry.step == "ports" for entry in told)

    refusing.refuses = False
    site.reapply(worker, "i2", of="i1")
    done = site.node
    assert (done.state, done.last_error) == (State.FINISHED, None)
    assert done.properties["rack"] == "7"
    assert "gpu:1" in done.properties["capabilities"]
    assert set(site.ports) == {MAC.format(0), MAC.format(1)}
    assert site.ports[MAC.format(0)].local_link_connection["port_id"] == "Ethernet7"
    assert site.data("i2")["plugin_data"]["extra"] == {"cpu": {"physical_0": {"cores": 8}}}


def test_the_raid_volume_is_found_in_what_is_stored_of_the_inspection_before(adapter: Adapter) -> None:
    site = Site(adapter)
    worker = site.worker(load(SETTINGS))
    site.inspect(worker, "i1", disks=1)
    assert "root_device" not in site.node.properties
    site.inspect(worker, "i2")
    assert site.node.properties["root_device"] == {"serial": "SERIAL-B"}


def test_a_rule_that_fails_takes_the_hooks_with_it(adapter: Adapter) -> None:
    site = Site(adapter)
    node, ports = site.node, site.ports
    refusal = examples.rule(conditions=[], actions=[{"op": "fail", "args": {"msg": "not in this rack"}}])
    adapter.write(lambda tx: tx.rules.add(refusal))
    site.inspect(site.worker(load(SETTINGS)), "i1")
    failed = site.node
    assert "not in this rack" in (failed.last_error or "")
    assert (failed.properties, failed.extra, site.ports) == (node.properties, node.extra, ports)
    assert "plugin_data" not in site.data("i1")
    told = adapter.read(lambda tx: list(tx.journal.list(Query(filters={"inspection": "i1"}, sort_key="id"))))
    assert not any(entry.step == "ports" for entry in told)
