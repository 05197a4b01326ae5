"""Attached media through the worker: what is commanded and remembered, and who owns the drives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from ferroscope.core.model import Node
from ferroscope.core.states import Event
from ferroscope.core.virtual_media import ATTACHED, SEEN, MediaDevice, Medium
from ferroscope_client.core.states import State
from tests.fast.worker.conftest import NODE, Service, settings
from tests.fast.worker.test_boot import API, IMAGE, ISO, AbleMachine, fails_with

URL = "http://user:secret@192.0.2.2/tools.iso"
PAYLOAD = {"device_type": "cdrom", "image_url": URL}


class MediaMachine(AbleMachine):
    """A machine with a virtual drive more."""

    def __init__(self) -> None:
        super().__init__()
        self.attached: dict[str, str] = {}
        self.kept: tuple[str, ...] | None = None

    def insert_ramdisk(self, node: Node, image: Any) -> str | None:
        self.kept = image.keep
        return super().insert_ramdisk(node, image)

    def attach_medium(self, node: Node, device: MediaDevice, url: str) -> None:
        self._check("attach")
        self.commands.append(f"attach {device}")
        self.attached[device] = url

    def detach_media(self, node: Node, devices: Sequence[MediaDevice]) -> int:
        self._check("detach")
        self.commands.append(f"detach {','.join(devices)}")
        gone = [one for one in self.attached if not devices or one in devices]
        for one in gone:
            del self.attached[one]
        return len(gone)

    def media(self, node: Node) -> Sequence[Medium]:
        self._check("media")
        return [Medium(["CD"], bool(self.attached), next(iter(self.attached.values()), None))]


@pytest.fixture
def service() -> Service:
    made = Service(settings(ramdisk_iso=ISO, callback_endpoint_override=API))
    made.machine = MediaMachine()
    made.worker = made.new_worker("m1")
    return made


def attach(service: Service) -> MediaMachine:
    service.carry_out(Event.ATTACH_VMEDIA, PAYLOAD)
    assert isinstance(service.machine, MediaMachine)
    return service.machine


def test_an_attached_image_is_remembered_and_listed_without_its_password(service: Service) -> None:
    machine = attach(service)
    assert machine.attached == {"cdrom": URL}
    node = service.node
    assert node.internal[ATTACHED] == {"cdrom": URL}
    (seen,) = node.internal[SEEN]
    assert (seen["media_types"], seen["inserted"], "secret" in seen["image"]) == (["CD"], True, False)
    assert not any("secret" in entry.message for entry in service.journal)
    assert node.last_error is None
    service.carry_out(Event.DETACH_VMEDIA, {"device_types": []})
    assert (service.node.internal[ATTACHED], service.node.internal[SEEN][0]["inserted"]) == ({}, False)


def test_only_the_devices_that_are_named_are_detached(service: Service) -> None:
    machine = attach(service)
    service.carry_out(Event.DETACH_VMEDIA, {"device_types": ["floppy"]})
    assert machine.attached == {"cdrom": URL}
    assert service.node.internal[ATTACHED] == {"cdrom": URL}


def test_a_refusal_is_the_nodes_last_error(service: Service) -> None:
    service.machine.fail = fails_with("attach", transient=False)
    attach(service)
    assert "attach failed" in str(service.node.last_error)
    assert ATTACHED not in service.node.internal


def test_drives_that_cannot_be_read_fail_nothing(service: Service) -> None:
    service.machine.fail = fails_with("media", transient=False)
    attach(service)
    assert service.node.last_error is None
    assert service.node.internal[ATTACHED] == {"cdrom": URL}
    assert SEEN not in service.node.internal
    service.carry_out(Event.VERIFY)
    assert service.node.last_error is None


def test_an_inspection_is_told_what_to_spare(service: Service) -> None:
    machine = attach(service)
    service.boot()
    assert service.node.state is State.WAITING
    assert machine.kept == (URL,)
    service.finish()
    assert machine.commands[-1] == "eject"
    assert machine.attached == {"cdrom": URL}


def test_a_command_that_meets_an_inspection_touches_no_drive(service: Service) -> None:
    """It was accepted before the inspection was requested, and comes to the worker after it."""
    service.submit(Event.DETACH_VMEDIA, {"device_types": []})
    service.boot()
    assert service.node.state is State.WAITING
    assert "detach " not in service.machine.commands
    assert isinstance(service.machine, MediaMachine)
    assert service.machine.drive == IMAGE


def test_a_ramdisk_that_was_left_behind_gives_way(service: Service) -> None:
    service.machine.fail = fails_with("eject", transient=False)
    service.inspect()
    assert "inserted_ramdisk" in service.node.internal
    service.machine.fail = lambda _command: None
    machine = attach(service)
    assert machine.commands[-2:] == ["eject", "attach cdrom"]
    assert "inserted_ramdisk" not in service.node.internal
    assert service.node.uuid == NODE
