"""Copies of an attached Ironic's nodes, and JSON patches that make only the wanted changes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ferroscope.core import bmc_access, ironic_nodes
from ferroscope.core.delivery import NotInspectableError, check_inspectable
from ferroscope.core.model import Node
from ferroscope_client.core.states import State
from tests.support.rows import each

UUID = "11111111-1111-4111-8111-111111111111"
DOCUMENT: dict[str, Any] = {
    "uuid": UUID,
    "name": "one",
    "driver": "redfish",
    "driver_info": {"redfish_address": "https://192.0.2.1", "redfish_password": "******", "redfish_username": "root"},
    "properties": {"capabilities": "zone:blue,boot_mode:uefi", "rack": "7"},
    "extra": {"asset": "1"},
    "maintenance": False,
    "provision_state": "manageable",
    "traits": ["CUSTOM_A"],
    "owner": "project",
    "protected": True,
    "retired": False,
}


def changed(**changes: Any) -> Node:
    return ironic_nodes.copy_node(DOCUMENT | changes, None)


def after(node: Node, **changes: Any) -> Node:
    return msgspec.structs.replace(node, **changes)


def test_a_copy_has_ironics_fields_and_no_secret() -> None:
    node = changed()
    assert (node.name, node.driver, node.owner, node.provision_state) == ("one", "redfish", "project", "manageable")
    assert (node.attributes["traits"], node.attributes["protected"]) == (["CUSTOM_A"], True)
    assert "retired" not in node.attributes
    assert "******" not in str(node.driver_info)
    assert ironic_nodes.copy_node(DOCUMENT, node) == node


def test_a_secret_that_stays_in_ironic_still_belongs_to_the_address_of_its_bmc() -> None:
    node = changed()
    moved = after(node, driver_info=node.driver_info | {"redfish_address": "https://198.51.100.9"})
    assert bmc_access.exposed_fields(node, moved, ()) == (["redfish_address"], ["redfish_password"])


def test_values_of_a_wrong_type_are_not_believed() -> None:
    node = changed(properties=None, extra=["x"], owner=7, maintenance="yes", name="n" * 300)
    assert (node.properties, node.extra, node.owner, node.maintenance, node.name) == ({}, {}, None, False, None)


@each("state", ["enroll", "manageable", "inspecting", "inspect wait", "inspect failed"])
def test_a_node_is_inspected_in_the_states_of_ironic_inspector(state: str) -> None:
    check_inspectable(changed(provision_state=state))


@each("state", ["available", "active", "clean wait", "unrescue failed", "deploy hold"])
def test_a_node_that_ironic_uses_is_not_inspected(state: str) -> None:
    with pytest.raises(NotInspectableError, match=state):
        check_inspectable(changed(provision_state=state))
    assert changed(provision_state=state).provision_state == state


def test_a_node_in_maintenance_is_not_inspected() -> None:
    with pytest.raises(NotInspectableError, match="fan broken"):
        check_inspectable(changed(maintenance=True, maintenance_reason="fan broken"))


def test_a_failed_inspection_is_shown_although_ironic_does_not_know_of_it() -> None:
    failed = after(changed(), state=State.ERROR)
    assert ironic_nodes.copy_node(DOCUMENT, failed).provision_state == "inspect failed"
    assert ironic_nodes.copy_node(DOCUMENT | {"provision_state": "active"}, failed).provision_state == "active"


def results(node: Node) -> Node:
    return after(
        node,
        properties={"capabilities": "zone:blue,boot_mode:bios,seen:yes", "memory_mb": 4096},
        extra={"asset": "1", "found": "yes"},
        resource_class="large",
        attributes=node.attributes | {"traits": ["CUSTOM_B"], "description": "new"},
    )


def apply(patch: list[dict[str, Any]], document: dict[str, Any]) -> dict[str, Any]:
    """Apply a patch as Ironic does."""
    result: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(document))
    for one in patch:
        *parents, last = one["path"].strip("/").split("/")
        target = result
        for name in parents:
            target = target[name]
        if one["op"] == "remove":
            del target[last]
        else:
            target[last] = one["value"]
    return result


def test_only_what_differs_is_patched_and_a_second_time_nothing() -> None:
    node = changed()
    wanted = ironic_nodes.changes(node, results(node))
    meanwhile = DOCUMENT | {"extra": {"asset": "1", "theirs": "kept"}, "description": "new"}
    patch = ironic_nodes.patch(wanted, meanwhile)
    done = apply(patch, meanwhile)
    assert done["properties"] == {"capabilities": "zone:blue,boot_mode:bios,seen:yes", "memory_mb": 4096}
    assert done["extra"] == {"asset": "1", "theirs": "kept", "found": "yes"}
    assert done["resource_class"] == "large"
    assert "/description" not in [one["path"] for one in patch]
    assert ironic_nodes.patch(wanted, done) == []
    assert ironic_nodes.traits(wanted, ["CUSTOM_A", "CUSTOM_C"]) == ["CUSTOM_B", "CUSTOM_C"]
    assert ironic_nodes.traits(wanted, ["CUSTOM_B"]) is None


def test_capabilities_that_others_changed_meanwhile_are_kept() -> None:
    node = changed()
    wanted = ironic_nodes.changes(node, results(node))
    meanwhile = DOCUMENT | {"properties": {"capabilities": "zone:green,boot_mode:uefi,theirs:1"}}
    found = apply(ironic_nodes.patch(wanted, meanwhile), meanwhile)["properties"]["capabilities"]
    assert sorted(found.split(",")) == ["boot_mode:bios", "seen:yes", "theirs:1", "zone:green"]


def test_a_document_with_a_key_that_no_patch_can_name_is_replaced_with_what_others_wrote() -> None:
    node = changed()
    wanted = ironic_nodes.changes(node, after(node, extra={"a.b/c": 1}))
    patch = ironic_nodes.patch(wanted, DOCUMENT | {"extra": {"asset": "1", "theirs": 2}})
    assert patch == [{"op": "replace", "path": "/extra", "value": {"theirs": 2, "a.b/c": 1}}]


def test_values_of_encrypted_documents_are_not_recorded() -> None:
    node = changed()
    later = after(node, driver_info=node.driver_info | {"redfish_username": "admin", "redfish_password": "pa55"})
    wanted = ironic_nodes.changes(node, later)
    assert "pa55" not in str(wanted)
    paths = {
        one["path"]: one["value"] for one in ironic_nodes.patch(ironic_nodes.with_secrets(wanted, later), DOCUMENT)
    }
    assert paths == {"/driver_info/redfish_username": "admin", "/driver_info/redfish_password": "pa55"}


def test_what_is_observed_is_never_written() -> None:
    node = changed()
    assert ironic_nodes.changes(node, after(node, power_state="power off", target_power_state=None)) == []
