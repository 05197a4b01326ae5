"""Virtual media of a node: what is accepted, what is queued, and what is listed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ferroscope.bmc.ipmi.driver import IpmiBmc
from ferroscope.bmc.redfish.driver import RedfishBmc
from ferroscope.core.states import Event
from ferroscope.core.virtual_media import SEEN
from tests.api.service import Service, fault

URL = "http://192.0.2.1/image.iso"
CD = {"device_type": "cdrom", "image_url": URL}


@pytest.fixture
def service(sqlite_url: str) -> Service:
    return Service(sqlite_url, drivers={"redfish": RedfishBmc(), "ipmi": IpmiBmc()})


@pytest.fixture
def ident(service: Service) -> str:
    return service.enrol(driver="redfish", driver_info={"redfish_address": "https://192.0.2.9"})


def queued(service: Service, ident: str) -> list[tuple[Event, Any]]:
    return [(request.event, request.payload) for request in service.pending(ident)]


@pytest.mark.parametrize(
    ("device", "source"),
    [("cdrom", {}), ("disk", {"image_download_source": "http"}), ("floppy", {"image_download_source": "local"})],
)
def test_attaching_is_a_command(service: Service, ident: str, device: str, source: dict[str, str]) -> None:
    answer = service.bare_metal.post(f"/v1/nodes/{ident}/vmedia", CD | source | {"device_type": device})
    assert (answer.status_code, answer.text) == (204, "")
    assert queued(service, ident) == [(Event.ATTACH_VMEDIA, {"device_type": device, "image_url": URL})]


def test_what_cannot_be_attached_is_refused(service: Service, ident: str) -> None:
    for body in [
        {},
        {"image_url": URL},
        CD | {"device_type": "usb"},
        CD | {"image_url": "ftp://192.0.2.1/image.iso"},
        CD | {"image_url": "http://192.0.2.1/an image.iso"},
        CD | {"image_download_source": "glance"},
    ]:
        assert service.bare_metal.post(f"/v1/nodes/{ident}/vmedia", body).status_code == 400, body
        assert queued(service, ident) == [], body


@pytest.mark.parametrize(
    ("query", "body", "devices"),
    [
        ("", None, []),
        ("?device_types=cdrom,floppy", None, ["cdrom", "floppy"]),
        ("", {"device_types": "cdrom,disk"}, ["cdrom", "disk"]),  # openstacksdk
        ("", {"device_types": ["disk"]}, ["disk"]),
    ],
)
def test_detaching_is_a_command(service: Service, ident: str, query: str, body: Any, devices: list[str]) -> None:
    answer = service.bare_metal.call("DELETE", f"/v1/nodes/{ident}/vmedia{query}", body)
    assert (answer.status_code, answer.text) == (204, "")
    assert queued(service, ident) == [(Event.DETACH_VMEDIA, {"device_types": devices})]


def test_unknown_devices_cannot_be_detached(service: Service, ident: str) -> None:
    answer = service.bare_metal.delete(f"/v1/nodes/{ident}/vmedia?device_types=cdrom,usb")
    assert (answer.status_code, "Invalid device type(s)" in fault(answer)) == (400, True)


def test_the_list_is_what_was_seen_last(service: Service, ident: str) -> None:
    assert service.bare_metal.get(f"/v1/nodes/{ident}/vmedia").json == []
    drives = [{"media_types": ["CD", "DVD"], "inserted": True, "image": URL}]
    node = service.node(ident)
    changed = msgspec.structs.replace(node, internal=node.internal | {SEEN: drives})
    service.store.write(lambda tx: tx.nodes.update(changed))
    assert service.bare_metal.get(f"/v1/nodes/{ident}/vmedia").json == drives


def test_each_method_exists_from_its_microversion_on(service: Service, ident: str) -> None:
    path = f"/v1/nodes/{ident}/vmedia"
    old, attaches, lists = (service.client(version) for version in ("1.88", "1.89", "1.93"))
    assert [one.post(path, CD).status_code for one in (old, attaches)] == [404, 204]
    assert [one.delete(path).status_code for one in (old, attaches)] == [404, 204]
    assert [one.get(path).status_code for one in (old, attaches, lists)] == [404, 404, 200]


def test_a_driver_without_virtual_media_says_so(service: Service) -> None:
    other = service.enrol(driver="ipmi", driver_info={"ipmi_address": "192.0.2.9"})
    path = f"/v1/nodes/{other}/vmedia"
    for answer, what in (
        (service.bare_metal.post(path, CD), "attach_virtual_media"),
        (service.bare_metal.delete(path), "detach_virtual_media"),
        (service.bare_metal.get(path), "get_virtual_media"),
    ):
        wanted = f"Driver ipmi does not support {what} (disabled or not implemented)."
        assert (answer.status_code, fault(answer)) == (400, wanted)


def test_the_drives_belong_to_the_inspection_as_long_as_it_lasts(service: Service, ident: str) -> None:
    service.wait(ident)
    path = f"/v1/nodes/{ident}/vmedia"
    assert service.bare_metal.post(path, CD).status_code == 409
    assert service.bare_metal.delete(path).status_code == 409
    assert service.bare_metal.get(path).status_code == 200


def test_a_node_without_a_bmc_cannot_have_media(service: Service) -> None:
    bare = service.enrol(driver="redfish")
    assert service.bare_metal.post(f"/v1/nodes/{bare}/vmedia", CD).status_code == 400
    assert service.bare_metal.post("/v1/nodes/nobody/vmedia", CD).status_code == 404
