"""JSON patches on nodes."""

from __future__ import annotations

import uuid
from typing import Any

import msgspec
import pytest

from ferroscope.core.states import Event
from tests.api.published import add, remove, replace
from tests.api.service import Service, fault


def test_patch_changes_fields_and_nested_values(service: Service) -> None:
    ident = service.enrol(name="old", properties={"cpus": 1, "list": [1, 3]}, description="x")
    answer = service.bare_metal.patch(
        f"/v1/nodes/{ident}",
        replace("/name", "new"),
        add("/properties/capabilities", "boot_mode:uefi"),
        replace("/properties/cpus", 8),
        add("/properties/list/1", 2),
        add("/properties/list/-", 4),
        remove("/properties/list/0"),
        add("/extra/a~1b~0c", {"deep": True}),
        remove("/description"),
        add("/resource_class", "gold"),
        replace("/maintenance", "true"),
        add("/instance_uuid", "8D4B3A6E-0E8B-4F4E-9F63-1A0C5F7F6E11"),
    )
    assert answer.status_code == 200, answer.text
    node = answer.json
    assert node["name"] == "new"
    assert node["properties"] == {"cpus": 8, "list": [2, 3, 4], "capabilities": "boot_mode:uefi"}
    assert node["extra"] == {"a/b~c": {"deep": True}}
    assert (node["description"], node["resource_class"], node["maintenance"]) == (None, "gold", True)
    assert node["instance_uuid"] == "8d4b3a6e-0e8b-4f4e-9f63-1a0c5f7f6e11"
    assert node["updated_at"] is not None
    shown = service.bare_metal.get(f"/v1/nodes/{ident}").json
    assert shown == node


def test_removed_fields_get_their_defaults(service: Service) -> None:
    ident = service.enrol(name="n", extra={"a": 1}, maintenance=True, retired=True, conductor_group="g")
    paths = ("/name", "/extra", "/maintenance", "/retired", "/conductor_group")
    node = service.bare_metal.patch(f"/v1/nodes/{ident}", *[remove(path) for path in paths]).json
    assert (node["name"], node["extra"], node["maintenance"], node["retired"], node["conductor_group"]) == (
        None,
        {},
        False,
        False,
        "",
    )


@pytest.mark.parametrize(
    ("operation", "named"),
    [
        (replace("/uuid", str(uuid.uuid4())), "/uuid"),
        (replace("/provision_state", "active"), "/provision_state"),
        (add("/auto_discovered", True), "/auto_discovered"),
        (add("/colour", "red"), "/colour"),
        (remove("/driver"), "driver"),
        (replace("/properties", [1]), "properties"),
        (replace("/properties/missing", 1), "missing"),
        (add("/properties/a/b/c", 1), "'/properties/a/b/c'"),
        (add("/properties/list/9", 1), "index"),
        (replace("/name", "no spaces"), "no spaces"),
        ({"op": "move", "path": "/name", "from": "/extra"}, "move"),
    ],
)
def test_bad_operation_is_400_names_itself_and_changes_nothing(
    service: Service, operation: dict[str, Any], named: str
) -> None:
    ident = service.enrol(name="same", properties={"list": [1]})
    before = service.bare_metal.get(f"/v1/nodes/{ident}").json
    answer = service.bare_metal.patch(f"/v1/nodes/{ident}", add("/extra/first", 1), operation)
    assert answer.status_code == 400, answer.text
    assert named in fault(answer)
    assert service.bare_metal.get(f"/v1/nodes/{ident}").json == before


@pytest.mark.parametrize("body", [[], {}])
def test_patch_needs_operations(service: Service, body: Any) -> None:
    ident = service.enrol()
    assert service.bare_metal.call("PATCH", f"/v1/nodes/{ident}", body).status_code == 400


def test_patch_cannot_nest_without_end(service: Service) -> None:
    ident = service.enrol()
    path, statuses = "/extra", []
    for _ in range(4):
        value: Any = {}
        for _ in range(20):
            value = {"a": value}
        path += "/a" * 20
        statuses.append(service.bare_metal.patch(f"/v1/nodes/{ident}", add(path, value)).status_code)
    assert 400 in statuses
    assert service.bare_metal.get(f"/v1/nodes/{ident}").status_code == 200


def test_reset_interfaces_goes_with_a_new_driver(service: Service) -> None:
    ident = service.enrol(boot_interface="ipxe", power_interface="fake")
    path = f"/v1/nodes/{ident}?reset_interfaces=true"
    assert service.bare_metal.patch(path, add("/extra/a", 1)).status_code == 400
    node = service.bare_metal.patch(path, replace("/driver", "sim")).json
    assert (node["driver"], node["boot_interface"], node["power_interface"]) == ("sim", "fake", "fake")
    assert service.client("1.44").patch(path, replace("/driver", "sim")).status_code == 406


def test_a_field_newer_than_the_version_cannot_be_cleared_by_a_value(service: Service) -> None:
    path = f"/v1/nodes/{service.enrol()}"
    for version, name, value in (("1.50", "description", None), ("1.45", "conductor_group", "")):
        assert service.client(version).patch(path, replace(f"/{name}", value)).status_code == 406, name
        assert service.client(version).patch(path, {"op": "remove", "path": f"/{name}"}).status_code == 200, name


def test_node_can_be_edited_while_it_is_inspected(service: Service) -> None:
    ident = service.enrol()
    service.wait(ident)
    service.step(ident, Event.CONTINUE)
    answer = service.bare_metal.patch(f"/v1/nodes/{ident}", add("/extra/note", "look here"))
    assert answer.status_code == 200
    assert answer.json["provision_state"] == "inspecting"
    service.step(ident, Event.FINISH)
    assert service.bare_metal.get(f"/v1/nodes/{ident}").json["extra"] == {"note": "look here"}


def test_node_cannot_be_its_own_parent(service: Service) -> None:
    ident = service.enrol(name="loop")
    answer = service.bare_metal.patch(f"/v1/nodes/{ident}", add("/parent_node", "loop"))
    assert answer.status_code == 400


def test_patches_cannot_make_a_node_larger_than_a_document_may_be(service: Service) -> None:
    ident = service.enrol()
    path, part = f"/v1/nodes/{ident}", "A" * 400_000
    assert service.bare_metal.patch(path, add("/extra/k1", part)).status_code == 200
    assert service.bare_metal.patch(path, add("/properties/k2", part)).status_code == 200
    refused = service.bare_metal.patch(path, add("/extra/k3", part), add("/description", "d"))
    assert refused.status_code == 413
    assert "extra: 800" in fault(refused)
    node = service.bare_metal.get(path).json
    assert (sorted(node["extra"]), node["description"]) == (["k1"], None)
    # What is too large already, by an earlier release or by rules, may shrink.
    stored = service.node(ident)
    large = msgspec.structs.replace(stored, extra={"k": part * 4, "small": 1})
    service.store.write(lambda tx: tx.nodes.update(large))
    assert service.bare_metal.patch(path, remove("/extra/small")).status_code == 200
    assert service.bare_metal.patch(path, add("/extra/small", 11)).status_code == 413
    assert service.bare_metal.patch(path, remove("/extra/k")).status_code == 200
