"""What the BMC reports: ports before the boot, hardware and health, with a ramdisk or without one."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ferroscope.contracts.bmc import Power
from ferroscope.contracts.errors import BmcError
from ferroscope.contracts.store import Part
from ferroscope.core.model import HARDWARE_CHANGED, Node, Port, Severity
from ferroscope_client.core.reasons import Reason
from ferroscope_client.core.states import State
from tests.fast.worker.conftest import INVENTORY, Service
from tests.fast.worker.test_boot import able, fails_with, machine, set_field
from tests.fast.worker.test_delivery import KilledError, dies_and_is_replaced
from tests.support.rows import each


def test_ports_are_there_before_the_machine_boots() -> None:
    service = able()
    seen: list[list[str]] = []
    service.machine.fail = lambda command: seen.append(service.ports) if command == "power on" else None  # type: ignore[func-returns-value]
    service.boot()
    assert seen == [["02:00:00:00:00:01"]]


def test_a_nic_that_is_another_nodes_port_is_reported_and_left_alone() -> None:
    service = able()
    other = "33333333-3333-4333-8333-333333333333"

    def work(tx: Any) -> None:
        tx.nodes.add(Node(uuid=other, driver="machine"))
        tx.ports.add([Port(uuid="44444444-4444-4444-8444-444444444444", node=other, address="02:00:00:00:00:01")])

    service.store.write(work)
    service.boot()
    assert service.node.state is State.WAITING
    assert any(entry.reason == "port-conflict" for entry in service.journal)


def test_a_bmc_that_knows_no_nics_stops_no_inspection() -> None:
    service = able()
    service.machine.fail = fails_with("nics", transient=True)
    service.boot()
    assert service.node.state is State.WAITING
    assert service.ports == []


def test_the_bmcs_view_is_read_once_and_kept_beside_the_ramdisks() -> None:
    service = able(collect_out_of_band=True)
    service.machine.fail = fails_with("power on", transient=True, times=1)
    service.boot()
    assert machine(service).asked == 1
    service.finish()
    hardware = stored(service)["hardware"]
    assert hardware["sources"]["system_vendor.product_name"] == "machine"
    assert hardware["sources"]["cpu.count"] == "agent"
    service.reapply()
    service.work()
    assert stored(service)["hardware"] == hardware


def test_parts_that_the_bmc_could_not_tell_are_noted_and_not_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    service = able()
    set_field(service, inspect_interface="machine")
    unread = ["/redfish/v1/Systems/1/Storage/2: HTTP 500"]
    monkeypatch.setattr(type(machine(service)), "inventory", lambda *_: INVENTORY | {"unread": unread})
    service.boot()
    assert service.node.state is State.FINISHED
    assert "unread" not in str(stored(service))
    noted = [entry for entry in service.journal if entry.step == "out of band" and entry.severity is Severity.WARNING]
    assert [unread[0] in str(entry.message) for entry in noted] == [True]


@each("interfaces", [[], None])
def test_without_nics_what_the_bmc_has_is_kept_and_the_hooks_decide(
    monkeypatch: pytest.MonkeyPatch, interfaces: list[Any] | None
) -> None:
    """openbmc/bmcweb shows no NIC of a system; Ironic's inspection_hooks can leave validate-interfaces out, too."""
    known = {name: part for name, part in INVENTORY.items() if name != "interfaces"}
    known |= {} if interfaces is None else {"interfaces": interfaces}
    for hooks, state in ((("$default_hooks",), State.ERROR), (("architecture",), State.FINISHED)):
        service = able(hooks=hooks)
        set_field(service, inspect_interface="machine")
        monkeypatch.setattr(type(machine(service)), "inventory", lambda *_: dict(known))
        service.boot()
        assert service.node.state is state
        assert stored(service, "inventory")["cpu"] == INVENTORY["cpu"]
        assert service.ports == []


def test_out_of_band_inspection_touches_no_power() -> None:
    service = able()
    service.machine.power = Power.ON
    set_field(service, inspect_interface="machine")
    service.boot()
    assert service.node.state is State.FINISHED
    assert service.machine.commands == []
    assert set(stored(service)["hardware"]["sources"].values()) == {"machine"}
    assert service.ports == ["02:00:00:00:00:01"]


@each("fails", [False, True])
def test_the_health_is_kept_and_its_failure_fails_nothing(fails: bool) -> None:
    service = able()
    if fails:
        service.machine.fail = fails_with("health", transient=True)
    set_field(service, inspect_interface="machine")
    service.boot()
    assert service.node.state is State.FINISHED
    assert service.node.hardware.get("health") == (None if fails else "critical")
    assert ("health" in stored(service)["out_of_band"]) is not fails
    assert ("components" in service.node.hardware) is not fails
    notes = [entry for entry in service.journal if entry.step == "out of band"]
    assert any("health" in entry.message for entry in notes)
    assert any(entry.severity is Severity.WARNING for entry in notes) is fails


def test_the_health_stays_when_the_bmc_is_not_asked_again_until_the_machine_is_another_one() -> None:
    service = able()
    set_field(service, inspect_interface="machine")
    service.boot()
    first = stored(service)["out_of_band"]
    components = service.node.hardware["components"]
    assert "kept" not in first
    set_field(service)
    for serial in (None, "S1", "S1"):
        inspect_in_band(service, serial)
        report = stored(service)["out_of_band"]
        assert (report["kept"], report["read_at"], report["health"]) == (True, first["read_at"], first["health"])
        assert (service.node.hardware["health"], service.node.hardware["components"]) == ("critical", components)
    assert not any(entry.step == HARDWARE_CHANGED and "problem" in entry.message for entry in service.journal)
    inspect_in_band(service, "S2")
    assert "out_of_band" not in stored(service)
    assert "health" not in service.node.hardware


def inspect_in_band(service: Service, serial: str | None) -> None:
    service.boot()
    service.finish(INVENTORY | {"system_vendor": {"serial_number": serial}})
    assert service.node.state is State.FINISHED


def test_an_out_of_band_inspection_is_run_again_where_its_worker_died() -> None:
    service = able()
    set_field(service, inspect_interface="machine")
    service.start()

    def die(command: str) -> BmcError | None:
        service.machine.fail = lambda _command: None
        raise KilledError

    service.machine.fail = die
    dies_and_is_replaced(service)
    assert service.node.state is State.FINISHED


def test_a_bmc_that_cannot_be_reached_ends_an_out_of_band_inspection_in_error() -> None:
    service = able()
    set_field(service, inspect_interface="machine")
    service.machine.fail = fails_with("inventory", transient=True)
    service.boot()
    assert (service.node.state, service.inspection.reason) == (State.ERROR, "bmc-unreachable")


def stored(service: Service, part: Part = "plugin_data") -> dict[str, Any]:
    inspection = service.node.inspection or ""
    parts = service.store.read(lambda tx: tx.data.load(inspection, (part,)))
    decoded: dict[str, Any] = msgspec.json.decode(parts[part])
    return decoded


def test_a_password_that_was_rejected_when_the_nics_were_read_is_not_sent_again() -> None:
    """BMCs lock accounts after three to five wrong passwords, and one call may cost two."""
    service = able(collect_out_of_band=True)
    asked: list[str] = []

    def rejects(command: str) -> BmcError:
        asked.append(command)
        return BmcError("rejected", transient=False, reason=Reason.BMC_CREDENTIALS)

    service.machine.fail = rejects
    service.boot()
    assert asked == ["inventory"]
    assert "bmc-credentials" in (service.node.last_error or "")
