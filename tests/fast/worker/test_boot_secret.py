"""The secret that a ramdisk gets with its boot, and what becomes of it."""

from __future__ import annotations

import msgspec
import pytest

from ferroscope.contracts.bmc import Power
from ferroscope.core import callback_secret
from ferroscope.core.states import Event
from ferroscope_client.core.states import State
from ferroscope_client.core.values import mask
from tests.fast.worker.conftest import NODE, Service, settings
from tests.fast.worker.test_boot import API, ISO, able, machine, set_field
from tests.support.rows import each

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
    inserted = machine(service).drive
    assert inserted is not None
    parameters = f"{API}/v1/ramdisk_parameters/{NODE}/{callback_secret.disk_key(SECRET)}/disk.img"
    assert (inserted.iso, inserted.parameters) == (ISO, parameters)
    shown = str(mask(service.node.internal))
    assert callback_secret.disk_key(SECRET) not in shown
    service.finish()
    assert service.machine.commands[-1] == "eject"
    assert machine(service).drive is None
    assert service.inspection.secret == callback_secret.ended_secret(SECRET)


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


@each("fields", [{"boot_interface": "ipxe"}, {}])
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


@each("event", [Event.ABORT, Event.TIMEOUT])
def test_however_an_inspection_ends_its_secret_is_not_kept(event: Event) -> None:
    service = Service(settings())
    secured(service)
    service.work()
    service.carry_out(event)
    assert service.inspection.secret == callback_secret.ended_secret(SECRET)


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
