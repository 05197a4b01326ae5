"""Managed boot and out-of-band inspection through the worker, with workers that die halfway."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from ferroscope.config.options import BootSettings
from ferroscope.contracts.bmc import OutOfBandNic
from ferroscope.contracts.errors import BmcError
from ferroscope.core.model import Document, Node, Port, Severity
from ferroscope.core.states import Event
from ferroscope.core.virtual_media import Image
from ferroscope_client.core.states import State
from tests.fast.worker.conftest import INVENTORY, NODE, Machine, Service, settings
from tests.fast.worker.test_delivery import KilledError, dies_and_is_replaced
from tests.support.rows import each

ISO = "http://192.0.2.1/ramdisk.iso"
API = "http://192.0.2.1:6385"
SECURE = {ISO: ISO.replace("http:", "https:")}
IMAGE = Image(iso=ISO, parameters=f"{API}/v1/ramdisk_parameters/{NODE}/disk.img", secure=SECURE)


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
    service.boot()
    assert service.node.state is State.WAITING
    assert service.machine.commands == ["insert", "power on"]
    assert machine(service).drive == IMAGE
    service.finish()
    assert service.machine.commands == ["insert", "power on", "power off", "eject"]
    assert "inserted_ramdisk" not in service.node.internal


@each("event", [Event.ABORT, Event.TIMEOUT])
def test_it_is_taken_out_however_the_inspection_ends(event: Event) -> None:
    service = able()
    service.boot()
    service.carry_out(event)
    assert service.node.state is State.ERROR
    assert service.machine.commands[-2:] == ["power off", "eject"]


def test_it_stays_powered_where_that_is_wanted_but_without_the_ramdisk() -> None:
    service = able(power_off=False)
    service.inspect()
    assert service.machine.commands == ["insert", "power on", "eject"]


def test_a_drive_that_does_not_let_go_fails_nothing() -> None:
    service = able()
    service.machine.fail = fails_with("eject", transient=False)
    service.inspect()
    assert service.node.state is State.FINISHED
    assert service.node.internal["inserted_ramdisk"]
    assert any(entry.step == "virtual media" and entry.severity is Severity.WARNING for entry in service.journal)


def test_what_was_left_in_is_taken_out_before_a_boot_from_the_network() -> None:
    service = able()
    service.machine.fail = fails_with("eject", transient=False)
    service.inspect()
    service.machine.fail = lambda _command: None
    set_field(service, boot_interface="pxe")
    service.boot()
    assert service.machine.commands[-3:] == ["eject", "boot pxe", "power on"]


def test_a_boot_order_that_is_set_up_by_the_operator_is_left_alone() -> None:
    service = able()
    set_field(service, boot_interface="pxe", management_interface="noop")
    service.carry_out(Event.SET_BOOT_DEVICE, {"boot_device": "disk", "persistent": True})
    service.boot()
    assert service.node.state is State.WAITING
    assert service.machine.commands == ["power on"]


def test_a_worker_that_dies_after_the_power_on_makes_no_second_boot() -> None:
    service = able()
    service.start()

    def die(command: str) -> BmcError | None:
        if command == "get" and service.machine.commands[-1:] == ["power on"]:
            service.machine.fail = lambda _command: None
            raise KilledError
        return None

    service.machine.fail = die
    dies_and_is_replaced(service)
    assert service.node.state is State.WAITING
    assert service.machine.commands == ["insert", "power on"]
    service.carry_out(Event.ABORT)
    assert machine(service).drive is None


def test_managed_boot_that_is_required_but_impossible_fails_at_once_with_its_reason() -> None:
    service = able(require_managed_boot=True, ramdisk_iso="")
    service.boot()
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
    service.boot()
    assert service.machine.commands == ["boot pxe", "power on"]
    assert service.node.internal["inspector_manage_boot"] is True
    (said,) = (entry for entry in service.journal if entry.step == "ipxe")
    assert (said.severity, f"{API}/ipa.kernel" in said.message) == (Severity.INFO, True)
    service.finish()
    assert service.node.state is State.FINISHED


def test_without_a_port_nobody_can_ask_for_the_script_which_is_reported() -> None:
    service = by_script()
    service.boot()
    assert [entry.severity for entry in service.journal if entry.step == "ipxe"] == [Severity.INFO, Severity.WARNING]


@each(("slow", "asked"), [(0.0, 2), (3.0, 3)])
def test_a_machine_that_was_off_a_moment_ago_is_powered_on_without_another_question(slow: float, asked: int) -> None:
    service = Service(settings())
    seen: list[str] = []

    def see(what: str) -> None:
        seen.append(what)
        if what == "boot":
            service.clock.now += slow

    service.machine.fail = see
    service.start()
    service.worker.step()
    assert service.machine.commands == ["boot pxe", "power on"]
    assert seen.count("get") == asked  # first, perhaps before the power-on, and after it
