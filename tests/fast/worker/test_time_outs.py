"""A time-out says what is known of the machine, and of others that called meanwhile."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ferroscope.core.boot_macs import DHCP_STEP, FilterRecord
from ferroscope.core.discovery import RefusedCaller
from ferroscope.core.model import Entry
from ferroscope.core.states import Event
from tests.fast.worker.conftest import NODE, Service
from tests.support import examples


def test_a_time_out_says_after_how_long_it_was_found_which_may_be_later_than_the_option_says(service: Service) -> None:
    service.boot()
    service.clock.now += 9.0
    service.carry_out(Event.TIMEOUT)
    assert f" within {service.settings.inspector.timeout + 10.0:g} s" in str(service.node.last_error)


def _refused(service: Service, message: str, **more: Any) -> None:
    _noted(service, "callback-refused", message, **more)


def _noted(service: Service, step: str, message: str, **more: Any) -> None:
    entry = Entry(node=NODE, inspection=service.node.inspection, step=step, message=message, process="api", **more)
    service.store.write(lambda tx: tx.journal.append([entry]))


def test_a_time_out_says_that_the_machine_called_and_why_it_was_refused(service: Service) -> None:
    service.boot()
    _refused(service, "HTTP 400: first")
    _refused(service, "HTTP 400: no interfaces (from 192.0.2.7)", reason="callback-invalid")
    service.carry_out(Event.TIMEOUT)
    assert service.inspection.reason == "callback-refused"
    said = str(service.node.last_error)
    assert said.startswith("callback refused: HTTP 400: no interfaces")
    assert all(word in said for word in ("HTTP 400: no interfaces", "192.0.2.7", "UTC"))


def test_a_time_out_says_that_the_machine_has_loaded_its_boot_script_so_that_nobody_searches_the_boot_network(
    service: Service,
) -> None:
    service.boot()
    _noted(service, "boot-script", "the boot script of the inspection was loaded from 192.0.2.7")
    service.carry_out(Event.TIMEOUT)
    assert service.inspection.reason == "ramdisk-silent"
    assert all(word in str(service.node.last_error) for word in ("no callback", "boot script", "UTC"))


@pytest.mark.parametrize(
    ("known", "noted", "expected"),
    [
        ((True, True), "dnsmasq on boot1 assigned 10.0.0.50 to 52:54:00:00:00:01", "assigned 10.0.0.50"),
        ((True, True), "dnsmasq on boot1 assigned no address to the DHCP request of", "to the DHCP request of"),
        ((True, True), "", "no DHCP request of it reached boot1"),
        ((True, False), "", "dnsmasq on boot1 assigned no address"),
        ((False, False), "", ""),
    ],
)
def test_a_time_out_says_what_the_boot_host_knows_of_the_machines_dhcp(
    service: Service, known: tuple[bool, bool], noted: str, expected: str
) -> None:
    """``known``: whether its filter reads leases, and requests."""
    record = FilterRecord(host="boot1", open=True, applied=1_000, dhcp=known[0], requests=known[1])
    service.store.write(lambda tx: tx.leases.acquire("pxe/net", "f1", 1e6, data=msgspec.json.encode(record).decode()))
    service.boot()
    if noted:
        _noted(service, DHCP_STEP, noted)
    service.carry_out(Event.TIMEOUT)
    said = str(service.node.last_error)
    assert expected in said
    assert ("boot1" in said) == bool(expected)


def test_a_call_that_was_refused_counts_for_more_than_the_boot_script_before_or_after_it(service: Service) -> None:
    service.boot()
    _noted(service, "boot-script", "the boot script of the inspection was loaded from 192.0.2.7")
    _refused(service, "HTTP 400: first")
    _noted(service, "boot-script", "the boot script of the inspection was loaded from 192.0.2.8")
    service.carry_out(Event.TIMEOUT)
    assert service.inspection.reason == "callback-refused"


def test_a_call_that_was_refused_in_an_inspection_before_says_nothing_of_this_one(service: Service) -> None:
    service.boot()
    _refused(service, "HTTP 400: first")
    service.carry_out(Event.ABORT)
    service.boot()
    service.carry_out(Event.TIMEOUT)
    assert service.inspection.reason == "timeout"


@pytest.mark.parametrize("step", ["callback-refused", "boot-script"])
def test_what_the_machine_did_before_it_was_booted_for_this_inspection_says_nothing_of_it(
    service: Service, step: str
) -> None:
    """It may still be in the ramdisk of an inspection that was restarted, whose secret is another one."""
    service.start()
    _noted(service, step, "the machine as it was before")
    service.clock.now += 1
    service.work()
    service.carry_out(Event.TIMEOUT)
    assert service.inspection.reason == "timeout"


def test_a_time_out_names_the_machine_in_the_inbox_that_has_the_same_bmc(service: Service) -> None:
    twin = examples.node(auto_discovered=True, inbox=True)
    service.store.write(lambda tx: tx.nodes.add(twin))
    service.boot()
    for node in (twin.uuid, NODE):
        service.store.write(lambda tx, node=node: tx.addresses.set_bmc(node, ["192.0.2.9"]))  # type: ignore[misc]
    service.carry_out(Event.TIMEOUT)
    assert service.inspection.reason == "callback-refused"
    assert twin.uuid in str(service.node.last_error)


@pytest.mark.parametrize("callers", [0, 1, 2])
def test_a_time_out_begins_with_its_cause_and_names_the_unknown_machines_that_called(
    service: Service, callers: int
) -> None:
    service.store.write(lambda tx: tx.nodes.add(examples.node(auto_discovered=True, inbox=True)))  # long before
    service.boot()
    for _ in range(callers):
        late = examples.node(auto_discovered=True, inbox=True, created_at=service.clock.time())
        service.store.write(lambda tx, late=late: tx.nodes.add(late))  # type: ignore[misc]
    service.carry_out(Event.TIMEOUT)
    said = str(service.node.last_error)
    assert service.inspection.reason == "timeout"
    assert said.startswith("no callback from the ramdisk within ")
    assert ("called: ferroscope node inbox" in said) == bool(callers)
    assert ("2 unknown machines" in said) == (callers == 2)


def test_a_time_out_names_the_machine_that_called_and_was_refused(service: Service) -> None:
    service.boot()
    caller = RefusedCaller(
        source="192.0.2.66", machine="52:54:00:00:00:99", macs=["52:54:00:00:00:99"], bmc_addresses=[], serial=None,
        reason="lookup-unknown", message="no node has any of these addresses", called_at=service.clock.time(),
    )  # fmt: skip
    service.store.write(lambda tx: tx.refused_callers.put(caller))
    service.carry_out(Event.TIMEOUT)
    said = str(service.node.last_error)
    assert all(word in said for word in ("52:54:00:00:00:99", "192.0.2.66", "ferroscope node inbox"))
