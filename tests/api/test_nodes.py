"""Enrolling, listing, showing, changing and deleting nodes."""

from __future__ import annotations

import uuid

from tests.api.service import Client, Service, fault

# Every field of a full representation, as the reference lists them for version 1.115.
_REFERENCE_FIELDS = """
allocation_uuid automated_clean bios_interface boot_interface boot_mode chassis_uuid clean_step conductor
conductor_group console_enabled console_interface created_at deploy_interface deploy_step description
disable_power_off driver driver_info driver_internal_info extra fault firmware_interface health inspect_interface
inspection_finished_at inspection_started_at instance_info instance_name instance_uuid last_error lessee links
maintenance maintenance_reason management_interface name network_data network_interface owner parent_node portgroups
ports
power_interface power_state properties protected protected_reason provision_state provision_updated_at raid_config
raid_interface rescue_interface reservation resource_class retired retired_reason secure_boot service_step shard
states storage_interface target_power_state target_provision_state target_raid_config traits updated_at uuid
vendor_interface volume
"""
REFERENCE_FIELDS = frozenset(_REFERENCE_FIELDS.split())
_OLDEST_FIELDS = """
chassis_uuid console_enabled created_at driver driver_info extra instance_info instance_uuid last_error links
maintenance maintenance_reason ports power_state properties provision_state provision_updated_at reservation
target_power_state target_provision_state updated_at uuid
"""
OLDEST_FIELDS = frozenset(_OLDEST_FIELDS.split())


def test_create_answers_201_with_location_and_every_field(bare_metal: Client) -> None:
    answer = bare_metal.post("/v1/nodes", {"driver": "fake-hardware", "name": "rack1.u3", "extra": {"a": [1]}})
    assert answer.status_code == 201
    node = answer.json
    assert answer.headers["Location"].endswith(f"/v1/nodes/{node['uuid']}")
    assert set(node) == REFERENCE_FIELDS | {
        "auto_discovered",
        "deviations",
        "hardware",
        "inbox",
        "labels",
        "maintenance_until",
        "notes",
        "orphaned_at",
    }
    assert (node["provision_state"], node["name"], node["extra"]) == ("enroll", "rack1.u3", {"a": [1]})
    assert node["created_at"].endswith("+00:00")
    assert (node["updated_at"], node["auto_discovered"], node["traits"]) == (None, False, [])


def test_fields_are_hidden_below_their_microversion(service: Service) -> None:
    ident = service.enrol(name="n")
    assert set(service.client("1.1").get(f"/v1/nodes/{ident}").json) == OLDEST_FIELDS
    assert "name" in service.client("1.5").get(f"/v1/nodes/{ident}").json
    assert "disable_power_off" not in service.client("1.94").get(f"/v1/nodes/{ident}").json


def test_node_is_found_by_uuid_in_any_case_and_by_name(service: Service) -> None:
    ident = service.enrol(name="Node_1")
    for by in (ident, ident.upper(), ident.replace("-", ""), "Node_1"):
        assert service.bare_metal.get(f"/v1/nodes/{by}").json["uuid"] == ident
    assert service.bare_metal.get("/v1/nodes/node_1").status_code == 404
    assert service.client("1.4").get("/v1/nodes/Node_1").status_code == 404


def test_given_uuid_is_kept_and_unique(bare_metal: Client) -> None:
    ident = str(uuid.uuid4())
    assert bare_metal.post("/v1/nodes", {"driver": "sim", "uuid": ident}).json["uuid"] == ident
    again = bare_metal.post("/v1/nodes", {"driver": "sim", "uuid": ident.upper()})
    assert again.status_code == 409
    assert ident in fault(again)


def test_old_versions_enrol_as_available(service: Service) -> None:
    answer = service.client("1.10").post("/v1/nodes", {"driver": "sim"})
    assert answer.json["provision_state"] == "available"
    ident = answer.json["uuid"]
    assert service.client("1.1").get(f"/v1/nodes/{ident}").json["provision_state"] is None


def test_bad_body_is_400_and_says_what(bare_metal: Client) -> None:
    for body, named in [
        ({}, "driver"),
        ({"driver": "ipmi"}, "fake-hardware"),
        ({"driver": "sim", "colour": "red"}, "colour"),
        ({"driver": "sim", "name": "not a name"}, "not a name"),
        ({"driver": "sim", "name": "x" * 256}, "name"),
        ({"driver": "sim", "name": "detail"}, "detail"),
        ({"driver": "sim", "name": str(uuid.uuid4())}, "UUID"),
        ({"driver": "sim", "properties": []}, "properties"),
        ({"driver": "sim", "properties": {"memory_mb": "big", "cpus": "8"}}, "memory_mb='big'."),
        ({"driver": "sim", "properties": {"local_gb": -1}}, "local_gb=-1"),
        ({"driver": "sim", "maintenance": "perhaps"}, "maintenance"),
        ({"driver": "sim", "resource_class": "x" * 81}, "resource_class"),
        ({"driver": "sim", "conductor_group": "a b"}, "conductor_group"),
        ({"driver": "sim", "chassis_uuid": str(uuid.uuid4())}, "chassis"),
        ({"driver": "sim", "parent_node": "nobody"}, "parent_node"),
        ("", "body"),
    ]:
        answer = bare_metal.post("/v1/nodes", body)
        assert answer.status_code == 400, body
        assert named in fault(answer), body


def test_fields_newer_than_the_version_are_406(service: Service) -> None:
    answer = service.client("1.20").post("/v1/nodes", {"driver": "sim", "resource_class": "gold"})
    assert answer.status_code == 406
    assert "1.21" in fault(answer)
    assert service.client("1.20").post("/v1/nodes", {"driver": "sim", "resource_class": None}).status_code == 201


def test_delete(service: Service) -> None:
    ident = service.enrol(name="gone")
    answer = service.bare_metal.delete("/v1/nodes/gone")
    assert (answer.status_code, answer.content) == (204, b"")
    assert service.bare_metal.get(f"/v1/nodes/{ident}").status_code == 404
    assert service.bare_metal.delete(f"/v1/nodes/{ident}").status_code == 404


def test_delete_during_an_inspection_is_409_and_says_how_to_abort(service: Service) -> None:
    ident = service.enrol()
    service.wait(ident)
    answer = service.bare_metal.delete(f"/v1/nodes/{ident}")
    assert answer.status_code == 409
    assert "abort" in fault(answer)
    assert service.bare_metal.get(f"/v1/nodes/{ident}").status_code == 200


def test_delete_of_an_instances_node_is_409_outside_maintenance(service: Service) -> None:
    ident = service.enrol(instance_uuid=str(uuid.uuid4()))
    assert service.bare_metal.delete(f"/v1/nodes/{ident}").status_code == 409
    service.bare_metal.put(f"/v1/nodes/{ident}/maintenance", {"reason": "swap"})
    assert service.bare_metal.delete(f"/v1/nodes/{ident}").status_code == 204


def test_delete_of_a_protected_node_is_403_in_maintenance_too(service: Service) -> None:
    ident = service.enrol()
    service.alter(ident, attributes={"protected": True, "protected_reason": "the head node"})
    service.bare_metal.put(f"/v1/nodes/{ident}/maintenance", {"reason": "swap"})
    answer = service.bare_metal.delete(f"/v1/nodes/{ident}")
    assert answer.status_code == 403
    assert "protected" in fault(answer)
    assert "the head node" in fault(answer)
    service.bare_metal.patch(f"/v1/nodes/{ident}", {"op": "replace", "path": "/protected", "value": False})
    assert service.bare_metal.delete(f"/v1/nodes/{ident}").status_code == 204


def test_impossible_names_are_4xx(bare_metal: Client) -> None:
    for ident in ["no%20body", "%00", "%ff"]:
        answer = bare_metal.get(f"/v1/nodes/{ident}")
        assert answer.status_code in (400, 404), ident
        assert fault(answer), ident
