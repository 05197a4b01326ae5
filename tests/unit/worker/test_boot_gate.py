"""A power-on waits for the open PXE gate, for a bounded time, and the timeline says so."""

from __future__ import annotations

import msgspec
import pytest

from ferroscope.core.boot_macs import GateRecord
from ferroscope.core.model import Lease, Port
from ferroscope.core.reasons import Reason
from ferroscope.core.states import Event, State
from tests.unit.worker.conftest import NODE, Service

MAC = "52:54:00:00:00:01"
POWER_ON = "power on"


@pytest.fixture
def gated(service: Service) -> Service:
    port = Port(uuid="22222222-2222-4222-8222-222222222222", node=NODE, address=MAC)
    service.store.write(lambda tx: tx.ports.add([port]))
    return service


def open_gate(service: Service, *, applied: int = 10_000, network: str = "pxe/net") -> Lease:
    record = msgspec.json.encode(GateRecord(host="boot1", open=True, applied=applied)).decode()
    return service.store.write(lambda tx: tx.leases.acquire(network, "gate", 1000.0, data=record))


def again(service: Service) -> str:
    """Give the inspection up and ask for the next one; what became of that at once."""
    service.submit(Event.ABORT)
    service.worker.step()
    service.start()
    return service.worker.step()


def newest(service: Service) -> int:
    return service.store.read(lambda tx: tx.macs.newest(node=NODE))


def steps(service: Service) -> list[str]:
    return [entry.message for entry in service.journal if entry.step == "pxe gate"]


def test_without_a_gate_nothing_is_waited_for_and_nothing_noted(gated: Service) -> None:
    gated.start()
    gated.worker.step()
    assert POWER_ON in gated.machine.commands
    assert steps(gated) == []


def test_where_no_gate_is_known_the_database_is_not_asked_each_time(gated: Service) -> None:
    gated.start()
    gated.worker.step()
    open_gate(gated, applied=0)
    assert again(gated).endswith("next")
    gated.clock.now += 1.1
    assert again(gated).endswith("retry")


def test_an_open_gate_that_has_applied_the_change_is_named_on_the_timeline(gated: Service) -> None:
    open_gate(gated)
    gated.start()
    gated.worker.step()
    assert POWER_ON in gated.machine.commands
    assert steps(gated) == ["the open gate lets its MACs pass: net on boot1 in epoch 1"]


def test_a_gate_that_is_behind_is_waited_for_without_holding_the_worker(gated: Service) -> None:
    lease = open_gate(gated, applied=0)
    gated.start()
    assert "retry" in gated.worker.step()
    assert gated.machine.commands == []
    record = msgspec.json.encode(GateRecord(host="boot1", open=True, applied=newest(gated))).decode()
    gated.store.write(lambda tx: tx.leases.renew(lease, 1000.0, data=record))
    gated.clock.now += 1.0
    gated.worker.step()
    assert POWER_ON in gated.machine.commands
    assert gated.node.state is State.WAITING


def test_a_gate_that_never_opens_delays_a_power_on_for_a_bounded_time(gated: Service) -> None:
    open_gate(gated, applied=0)
    gated.start()
    began = gated.clock.now
    for _ in range(200):
        gated.worker.step()
        if POWER_ON in gated.machine.commands:
            break
        gated.clock.now += 0.3
    assert gated.settings.pxe_filter.allow_timeout <= gated.clock.now - began < 20
    assert steps(gated) == ["powered on although the PXE gate is not open, or is behind: net"]
    assert [entry.reason for entry in gated.journal if entry.step == "pxe gate"] == [Reason.GATE_CLOSED]


def test_what_a_start_waited_for_a_worker_is_not_the_gates_time(gated: Service) -> None:
    open_gate(gated, applied=0)
    gated.start()
    gated.clock.now += 900.0
    for _ in range(3):
        gated.worker.step()
        gated.clock.now += 0.3
    assert POWER_ON not in gated.machine.commands


def test_a_network_whose_gates_were_stopped_or_gave_no_sign_for_long_is_not_waited_for(gated: Service) -> None:
    lease = open_gate(gated, applied=0)
    gated.store.write(lambda tx: tx.leases.release(lease))
    other = open_gate(gated, applied=0, network="pxe/other")
    gated.clock.now = other.expires_at + 301
    gated.start()
    gated.beat("m1")
    gated.worker.step()
    assert POWER_ON in gated.machine.commands


@pytest.mark.parametrize(("unknown", "said"), [(True, "the open gate lets"), (False, "the node has no port")])
def test_a_node_without_a_port_is_powered_on_with_a_warning_where_unknown_machines_do_not_pass(
    service: Service, unknown: bool, said: str
) -> None:
    record = GateRecord(host="boot1", open=True, applied=10_000, unknown=unknown)
    data = msgspec.json.encode(record).decode()
    service.store.write(lambda tx: tx.leases.acquire("pxe/net", "gate", 1000.0, data=data))
    service.start()
    service.worker.step()
    assert POWER_ON in service.machine.commands
    assert [message[: len(said)] for message in steps(service)] == [said]
