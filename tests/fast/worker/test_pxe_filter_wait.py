"""A power-on waits for the open PXE filter, for a bounded time, and the timeline says so."""

from __future__ import annotations

import msgspec
import pytest

from ferroscope.core.boot_macs import FilterRecord
from ferroscope.core.model import LeaseClaim, Port, Severity
from ferroscope.core.states import Event
from ferroscope.worker.start import PXE_FILTER_WAIT_SECONDS
from ferroscope_client.core.reasons import Reason
from ferroscope_client.core.states import State
from tests.fast.worker.conftest import NODE, Service

MAC = "52:54:00:00:00:01"
POWER_ON = "power on"


@pytest.fixture
def filtered(service: Service) -> Service:
    port = Port(uuid="22222222-2222-4222-8222-222222222222", node=NODE, address=MAC)
    service.store.write(lambda tx: tx.ports.add([port]))
    return service


def open_pxe_filter(service: Service, *, applied: int = 10_000, network: str = "pxe/net") -> LeaseClaim:
    record = msgspec.json.encode(FilterRecord(host="boot1", open=True, applied=applied)).decode()
    return service.store.write(lambda tx: tx.leases.acquire(network, "filter", 1000.0, data=record))


def again(service: Service) -> str:
    """Give the inspection up and ask for the next one; what became of that at once."""
    service.submit(Event.ABORT)
    service.worker.step()
    service.start()
    return service.worker.step()


def newest(service: Service) -> int:
    return service.store.read(lambda tx: tx.macs.newest(node=NODE))


def notes(service: Service) -> list[tuple[Severity, str | None]]:
    """Severity and reason of what the timeline says about PXE filters."""
    return [(entry.severity, entry.reason) for entry in service.journal if entry.step == "pxe filter"]


NAMED = [(Severity.INFO, None)]
WARNED = [(Severity.WARNING, Reason.PXE_FILTER_CLOSED)]


def test_without_a_pxe_filter_nothing_is_waited_for_and_nothing_noted(filtered: Service) -> None:
    filtered.start()
    filtered.worker.step()
    assert POWER_ON in filtered.machine.commands
    assert notes(filtered) == []


def test_where_no_pxe_filter_is_known_the_database_is_not_asked_each_time(filtered: Service) -> None:
    filtered.start()
    filtered.worker.step()
    open_pxe_filter(filtered, applied=0)
    assert again(filtered).endswith("next")
    filtered.clock.now += 1.1
    assert again(filtered).endswith("retry")


def test_an_open_pxe_filter_that_has_applied_the_change_is_named_on_the_timeline(filtered: Service) -> None:
    open_pxe_filter(filtered)
    filtered.start()
    filtered.worker.step()
    assert POWER_ON in filtered.machine.commands
    assert notes(filtered) == NAMED
    assert any("net on boot1 in epoch 1" in entry.message for entry in filtered.journal)


def test_a_pxe_filter_that_is_behind_is_waited_for_without_holding_the_worker(filtered: Service) -> None:
    lease = open_pxe_filter(filtered, applied=0)
    filtered.start()
    assert "retry" in filtered.worker.step()
    assert filtered.machine.commands == []
    record = msgspec.json.encode(FilterRecord(host="boot1", open=True, applied=newest(filtered))).decode()
    filtered.store.write(lambda tx: tx.leases.renew(lease, 1000.0, data=record))
    filtered.clock.now += 1.0
    filtered.worker.step()
    assert POWER_ON in filtered.machine.commands
    assert filtered.node.state is State.WAITING


def test_a_pxe_filter_that_never_opens_delays_a_power_on_for_a_bounded_time(filtered: Service) -> None:
    open_pxe_filter(filtered, applied=0)
    filtered.start()
    began = filtered.clock.now
    for _ in range(200):
        filtered.worker.step()
        if POWER_ON in filtered.machine.commands:
            break
        filtered.clock.now += 0.3
    assert PXE_FILTER_WAIT_SECONDS <= filtered.clock.now - began < 20
    assert notes(filtered) == WARNED


def test_what_a_start_waited_for_a_worker_is_not_the_pxe_filters_time(filtered: Service) -> None:
    open_pxe_filter(filtered, applied=0)
    filtered.start()
    filtered.clock.now += 900.0
    for _ in range(3):
        filtered.worker.step()
        filtered.clock.now += 0.3
    assert POWER_ON not in filtered.machine.commands


def test_a_network_whose_pxe_filters_were_stopped_or_gave_no_sign_for_long_is_not_waited_for(filtered: Service) -> None:
    lease = open_pxe_filter(filtered, applied=0)
    filtered.store.write(lambda tx: tx.leases.release(lease))
    other = open_pxe_filter(filtered, applied=0, network="pxe/other")
    filtered.clock.now = other.lease.expires_at + 301
    filtered.start()
    filtered.beat("m1")
    filtered.worker.step()
    assert POWER_ON in filtered.machine.commands


@pytest.mark.parametrize(("unknown", "noted"), [(True, NAMED), (False, WARNED)])
def test_a_node_without_a_port_is_powered_on_with_a_warning_where_unknown_machines_do_not_pass(
    service: Service, unknown: bool, noted: list[tuple[Severity, str | None]]
) -> None:
    record = FilterRecord(host="boot1", open=True, applied=10_000, unknown=unknown)
    data = msgspec.json.encode(record).decode()
    service.store.write(lambda tx: tx.leases.acquire("pxe/net", "filter", 1000.0, data=data))
    service.start()
    service.worker.step()
    assert POWER_ON in service.machine.commands
    assert notes(service) == noted
