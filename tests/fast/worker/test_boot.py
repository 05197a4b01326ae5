"""Managed boot and out-of-band inspection through the worker, with workers that die halfway."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from ferroscope.config.options import BootSettings
from ferroscope.contracts.bmc import Image, OutOfBandNic, Power
from ferroscope.contracts.errors import BmcError
from ferroscope.core import callback_secret
from ferroscope.core.model import HARDWARE_CHANGED, Document, Node, Port, Severity
from ferroscope.core.states import Event, State
from ferroscope.core.values import mask
from tests.fast.worker.conftest import INVENTORY, NODE, Machine, Service, settings

ISO = "http://192.0.2.1/ramdisk.iso"
API = "http://192.0.2.1:6385"
IMAGE = Image(iso=ISO, parameters=f"{API}/v1/ramdisk_parameters/{NODE}/disk.img")


class AbleMachine(Machine):
    """A machine whose BMC has a virtual drive and knows its hardware."""

    def __init__(self) -> None:
        super().__init__()
        self.drive: Image | None = None
        self.asked = 0
        self.remark: str | None = None

    def insert_ramdisk(self, node: Node, image: Image) -> str | None:
        self._check("insert")
        self.commands.append("insert")
        self.drive = image
        return self.remark

    def eject_ramdisk(self, node: Node, image: Image) -> bool:
        self._check("eject")
        was_in, self.drive = self.drive == image, None
        if was_in:
            self.commands.append("eject")
        return was_in

    def nics(self, node: Node) -> Sequence[OutOfBandNic]:
        self._check("nics")
        return [OutOfBandNic(mac="02:00:00:00:00:01", name="1"), OutOfBandNic("02:00:00:00:00:02", "2", enabled=False)]

    def inventory(self, node: Node) -> Document:
        self._check("inventory")
        self.asked += 1
        return INVENTORY | {"system_vendor": {"product_name": "R640"}}

    def health(self, node: Node) -> Document:
        self._check("health")
        firmware = [{"component": "bmc", "name": "bmc", "version": "7.0"}]
        return {"firmware": firmware, "health": {"state": "critical", "parts": [], "complete": False}}


def fails_with(command: str, *, transient: bool, times: int = 1000) -> Callable[[str], BmcError | None]:
    left = [times]

    def fail(asked: str) -> BmcError | None:
        if asked != command or not left[0]:
            return None
        left[0] -= 1
        return BmcError(f"{command} failed", transient=transient)

    return fail


def able(**inspector: Any) -> Service:
    known: dict[str, Any] = {"ramdisk_iso": ISO, "callback_endpoint_override": API}
    made = Service(settings(**known | inspector))
    made.machine = AbleMachine()
    made.worker = made.new_worker("m1")
    return made


def machine(service: Service) -> AbleMachine:
    assert isinstance(service.machine, AbleMachine)
    return service.machine


def set_field(service: Service, **attributes: Any) -> None:
    service.store.write(lambda tx: tx.nodes.update(msgspec.structs.replace(tx.nodes.get(NODE), attributes=attributes)))


def test_the_ramdisk_is_inserted_before_the_power_on_and_taken_out_in_the_end() -> None:
    service = able()
    service.start()
    service.work()
    assert service.node.state is State.WAITING
    assert service.machine.commands == ["insert", "power on"]
    assert machine(service).drive == IMAGE
    service.call_back()
    service.work()
    assert service.machine.commands == ["insert", "power on", "power off", "eject"]
    assert "inserted_ramdisk" not in service.node.internal


@pytest.mark.parametrize("event", [Event.ABORT, Event.TIMEOUT])
def test_it_is_taken_out_however_the_inspection_ends(event: Event) -> None:
    service = able()
    service.start()
    service.work()
    service.submit(event)
    service.work()
    assert service.node.state is State.ERROR
    assert service.machine.commands[-2:] == ["power off", "eject"]


def test_it_stays_powered_where_that_is_wanted_but_without_the_ramdisk() -> None:
    service = able(power_off=False)
    service.start()
    service.work()
    service.call_back()
    service.work()
    assert service.machine.commands == ["insert", "power on", "eject"]


def test_a_start_that_fails_leaves_no_ramdisk_behind() -> None:
    service = able()
    service.machine.fail = fails_with("power on", transient=False)
    service.start()
    service.work()
    assert service.node.state is State.ERROR
    assert service.machine.commands == ["insert", "eject"]


def test_a_start_that_gives_up_leaves_no_ramdisk_behind() -> None:
    service = able()
    service.machine.fail = fails_with("power on", transient=True)
    service.start()
    service.work()
    assert service.node.state is State.ERROR
    assert machine(service).drive is None


def test_a_drive_that_does_not_let_go_fails_nothing() -> None:
    service = able()
    service.machine.fail = fails_with("eject", transient=False)
    service.start()
    service.work()
    service.call_back()
    service.work()
    assert service.node.state is State.FINISHED
    assert service.node.internal["inserted_ramdisk"]
    assert any(entry.step == "virtual media" and entry.severity is Severity.WARNING for entry in service.journal)


def test_what_was_left_in_is_taken_out_before_a_boot_from_the_network() -> None:
    service = able()
    service.machine.fail = fails_with("eject", transient=False)
    service.start()
    service.work()
    service.call_back()
    service.work()
    service.machine.fail = lambda _command: None
    set_field(service, boot_interface="pxe")
    service.start()
    service.work()
    assert service.machine.commands[-3:] == ["eject", "boot pxe", "power on"]


def test_a_boot_order_that_is_set_up_by_the_operator_is_left_alone() -> None:
    service = able()
    set_field(service, boot_interface="pxe", management_interface="noop")
    service.submit(Event.SET_BOOT_DEVICE, {"boot_device": "disk", "persistent": True})
    service.work()
    service.start()
    service.work()
    assert service.node.state is State.WAITING
    assert service.machine.commands == ["power on"]


def test_a_worker_that_dies_after_the_power_on_makes_no_second_boot() -> None:
    service = able()
    service.start()

    def die(command: str) -> BmcError | None:
        if command == "get" and service.machine.commands[-1:] == ["power on"]:
            service.machine.fail = lambda _command: None
            raise KeyboardInterrupt
        return None

    service.machine.fail = die
    with pytest.raises(KeyboardInterrupt):
        service.work()
    service.kill("m1")
    service.worker = service.new_worker("m2")
    service.work()
    assert service.node.state is State.WAITING
    assert service.machine.commands == ["insert", "power on"]
    service.submit(Event.ABORT)
    service.work()
    assert machine(service).drive is None


def test_managed_boot_that_is_required_but_impossible_fails_at_once_with_its_reason() -> None:
    service = able(require_managed_boot=True, ramdisk_iso="")
    service.start()
    service.work()
    assert (service.node.state, service.inspection.reason) == (State.ERROR, "unmanaged-boot")
    assert service.machine.commands == []


def by_script() -> Service:
    boot = BootSettings(machine_script_url=f"{API}/v1/boot.ipxe", http_url=API)
    made = Service(msgspec.structs.replace(settings(callback_endpoint_override=API), boot=boot))
    asks = msgspec.structs.replace(made.node, attributes={"boot_interface": "ipxe"})
    made.store.write(lambda tx: tx.nodes.update(asks))
    return made


def test_a_machine_that_boots_by_a_script_of_ours_boots_once_from_the_network() -> None:
    service = by_script()
    port = Port(uuid="33333333-3333-4333-8333-333333333333", node=NODE, address="02:00:00:00:00:01")
    service.store.write(lambda tx: tx.ports.add([port]))
    service.start()
    service.work()
    assert service.machine.commands == ["boot pxe", "power on"]
    assert service.node.internal["inspector_manage_boot"] is True
    (said,) = (entry for entry in service.journal if entry.step == "ipxe")
    assert (said.severity, f"{API}/ipa.kernel" in said.message) == (Severity.INFO, True)
    service.call_back()
    service.work()
    assert service.node.state is State.FINISHED


def test_without_a_port_nobody_can_ask_for_the_script_which_is_told() -> None:
    service = by_script()
    service.start()
    service.work()
    assert [entry.severity for entry in service.journal if entry.step == "ipxe"] == [Severity.INFO, Severity.WARNING]


def test_ports_are_there_before_the_machine_boots() -> None:
    service = able()
    seen: list[list[str]] = []
    service.machine.fail = lambda command: seen.append(service.ports) if command == "power on" else None  # type: ignore[func-returns-value]
    service.start()
    service.work()
    assert seen == [["02:00:00:00:00:01"]]


def test_a_nic_that_is_another_nodes_port_is_told_and_left_alone() -> None:
    service = able()
    other = "33333333-3333-4333-8333-333333333333"

    def work(tx: Any) -> None:
        tx.nodes.add(Node(uuid=other, driver="machine"))
        tx.ports.add([Port(uuid="44444444-4444-4444-8444-444444444444", node=other, address="02:00:00:00:00:01")])

    service.store.write(work)
    service.start()
    service.work()
    assert service.node.state is State.WAITING
    assert any(entry.reason == "port-conflict" for entry in service.journal)


def test_a_bmc_that_knows_no_nics_stops_no_inspection() -> None:
    service = able()
    service.machine.fail = fails_with("nics", transient=True)
    service.start()
    service.work()
    assert service.node.state is State.WAITING
    assert service.ports == []


def test_the_bmcs_view_is_read_once_and_kept_beside_the_ramdisks() -> None:
    service = able(collect_out_of_band=True)
    service.machine.fail = fails_with("power on", transient=True, times=1)
    service.start()
    service.work()
    assert machine(service).asked == 1
    service.call_back()
    service.work()
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
    service.start()
    service.work()
    assert service.node.state is State.FINISHED
    assert "unread" not in str(stored(service))
    noted = [entry for entry in service.journal if entry.step == "out of band" and entry.severity is Severity.WARNING]
    assert [unread[0] in str(entry.message) for entry in noted] == [True]


def test_out_of_band_inspection_touches_no_power() -> None:
    service = able()
    service.machine.power = Power.ON
    set_field(service, inspect_interface="machine")
    service.start()
    service.work()
    assert service.node.state is State.FINISHED
    assert service.machine.commands == []
    assert set(stored(service)["hardware"]["sources"].values()) == {"machine"}
    assert service.ports == ["02:00:00:00:00:01"]


@pytest.mark.parametrize("fails", [False, True])
def test_the_health_is_kept_and_its_failure_fails_nothing(fails: bool) -> None:
    service = able()
    if fails:
        service.machine.fail = fails_with("health", transient=True)
    set_field(service, inspect_interface="machine")
    service.start()
    service.work()
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
    service.start()
    service.work()
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
    service.start()
    service.work()
    service.call_back(INVENTORY | {"system_vendor": {"serial_number": serial}})
    service.work()
    assert service.node.state is State.FINISHED


def test_an_out_of_band_inspection_is_run_again_where_its_worker_died() -> None:
    service = able()
    set_field(service, inspect_interface="machine")
    service.start()

    def die(command: str) -> BmcError | None:
        service.machine.fail = lambda _command: None
        raise KeyboardInterrupt

    service.machine.fail = die
    with pytest.raises(KeyboardInterrupt):
        service.work()
    service.kill("m1")
    service.worker = service.new_worker("m2")
    service.work()
    assert service.node.state is State.FINISHED


def test_a_bmc_that_cannot_be_reached_ends_an_out_of_band_inspection_in_error() -> None:
    service = able()
    set_field(service, inspect_interface="machine")
    service.machine.fail = fails_with("inventory", transient=True)
    service.start()
    service.work()
    assert (service.node.state, service.inspection.reason) == (State.ERROR, "bmc-unreachable")


def stored(service: Service) -> dict[str, Any]:
    inspection = service.node.inspection or ""
    parts = service.store.read(lambda tx: tx.data.load(inspection, ("plugin_data",)))
    decoded: dict[str, Any] = msgspec.json.decode(parts["plugin_data"])
    return decoded


SECRET = "s" * 43


def secured(service: Service, delivery: str = "planned") -> None:
    service.start(secret=SECRET, secret_delivery=delivery)


def test_the_parameter_disk_carries_the_secret_which_is_required_before_the_machine_runs() -> None:
    service = able()
    secured(service)
    delivered: list[str | None] = []
    service.machine.fail = lambda command: (
        delivered.append(service.inspection.secret_delivery) if command == "power on" else None
    )
    service.work()
    assert delivered == ["virtual-media"]
    assert machine(service).drive == Image(
        iso=ISO, parameters=f"{API}/v1/ramdisk_parameters/{NODE}/{callback_secret.disk_key(SECRET)}/disk.img"
    )
    shown = str(mask(service.node.internal))
    assert callback_secret.disk_key(SECRET) not in shown
    service.call_back()
    service.work()
    assert service.machine.commands[-1] == "eject"
    assert machine(service).drive is None
    assert service.inspection.secret == callback_secret.ended(SECRET)


def test_a_successor_of_a_killed_worker_boots_with_the_same_secret() -> None:
    service = able()
    secured(service)

    def killed(command: str) -> None:
        if command == "power on":
            raise KeyboardInterrupt

    service.machine.fail = killed
    with pytest.raises(KeyboardInterrupt):
        service.worker.step()
    first = machine(service).drive
    service.machine.fail = lambda _command: None
    service.kill("m1")
    service.worker = service.new_worker("m2")
    service.work()
    assert service.node.state is State.WAITING
    assert machine(service).drive == first
    assert (service.inspection.secret, service.inspection.secret_delivery) == (SECRET, "virtual-media")


@pytest.mark.parametrize("fields", [{"boot_interface": "ipxe"}, {}])
def test_a_machine_that_cannot_get_the_planned_disk_needs_no_secret(fields: dict[str, str]) -> None:
    service = able()
    secured(service)
    set_field(service, **fields)  # changed after the inspection was requested
    if not fields:
        machine(service).remark = "no virtual drive for the ramdisk's parameters"
    service.work()
    assert service.inspection.secret_delivery == "none"


def test_what_the_boot_script_delivers_is_left_to_the_api() -> None:
    service = Service(settings())
    secured(service, "boot-script")
    service.work()
    assert service.inspection.secret_delivery == "boot-script"


@pytest.mark.parametrize("event", [Event.ABORT, Event.TIMEOUT])
def test_however_an_inspection_ends_its_secret_is_not_kept(event: Event) -> None:
    service = Service(settings())
    secured(service)
    service.work()
    service.submit(event)
    service.work()
    assert service.inspection.secret == callback_secret.ended(SECRET)


def test_a_second_boot_of_an_inspection_may_look_itself_up_again() -> None:
    service = Service(settings())
    service.start()

    def killed(command: str) -> None:
        if command == "get" and "power on" in service.machine.commands:
            raise KeyboardInterrupt

    service.machine.fail = killed
    with pytest.raises(KeyboardInterrupt):
        service.worker.step()
    node = service.node
    got = node.internal | {"agent": {"inspection": node.inspection, "token_sha256": "0" * 64}}
    service.store.write(lambda tx: tx.nodes.update(msgspec.structs.replace(node, internal=got)))
    service.machine.power = Power.OFF  # it crashed
    looked_up: list[bool] = []

    def looks_itself_up(command: str) -> None:
        if command == "power on":
            now = service.node
            looked_up.append("agent" not in now.internal)
            new = now.internal | {"agent": {"inspection": now.inspection, "token_sha256": "1" * 64}}
            service.store.write(lambda tx: tx.nodes.update(msgspec.structs.replace(now, internal=new)))

    service.machine.fail = looks_itself_up
    service.kill("m1")
    service.worker = service.new_worker("m2")
    service.work()
    assert service.node.state is State.WAITING
    assert looked_up == [True]
    assert service.node.internal["agent"]["token_sha256"] == "1" * 64
