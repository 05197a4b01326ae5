"""Paths, texts and newer microversions answer as the Bare Metal service does.

Each request here was also sent to a real Ironic 39. Each test names the section of its API reference, or of the history
of its microversions. Texts are those of Ironic; where ours go on after them, only the beginning is compared.
Differences that are deliberate are in docs/reference/deviations.md.
"""

from __future__ import annotations

import pytest

from tests.api.published import replace
from tests.api.service import Service, fault, message
from tests.support import examples

# Paths. Source: the history of the API's versions, 1.91 (.json) and 1.88 (names of ports); "Agent Heartbeat".


def test_old_callers_may_add_json_to_a_path(service: Service) -> None:
    ident = service.enrol(name="rack")
    odd = service.enrol(name="odd.json")
    old = service.client("1.90")
    assert old.get(f"/v1/nodes/{ident}.json").json["uuid"] == ident
    assert old.get("/v1/nodes/rack.json").json["uuid"] == ident
    assert old.get("/v1/nodes/odd.json").json["uuid"] == odd
    assert len(old.get("/v1/nodes.json").json["nodes"]) == 2
    assert old.patch(f"/v1/nodes/{ident}.json", replace("/extra", {"a": 1})).status_code == 200
    for newer in (service.client("1.91"), service.client(None)):
        assert newer.get(f"/v1/nodes/{ident}.json").status_code == 404
    assert service.bare_metal.get("/v1/nodes/odd.json").json["uuid"] == odd
    assert old.delete(f"/v1/nodes/{ident}.json").status_code == 204


def test_a_heartbeat_of_nobody_is_refused(service: Service) -> None:
    for version in ("1.21", "1.22", "1.115"):
        answer = service.client(version).post("/v1/heartbeat", {"callback_url": "http://127.0.0.1"})
        assert (answer.status_code, fault(answer)) == (400, "Missing mandatory parameter: node_ident")


def test_a_heartbeat_may_have_its_node_in_the_body(service: Service) -> None:
    beat = {"callback_url": "http://127.0.0.1:9999", "agent_token": "x", "node_ident": examples.uuid()}
    for version, body, status in (
        ("1.21", beat, 404),
        ("1.22", beat | {"agent_version": "9"}, 400),
        ("1.22", beat, 404),
        ("1.115", beat, 404),
    ):
        answer = service.client(version).post("/v1/heartbeat", body)
        assert (answer.status_code, answer.json is not None) == (status, True), answer.text


# Texts that the functional tests of python-ironicclient and python-ironic-inspector-client look for.


@pytest.mark.parametrize("path", ["/v1/nodes", "/v1/chassis"])
def test_what_is_no_uuid_is_said_in_ironics_words(service: Service, path: str) -> None:
    answer = service.bare_metal.post(path, {"driver": "fake-hardware"} | {"uuid": "!@#$^*&%^"})
    assert answer.status_code == 400
    assert path != "/v1/nodes" or fault(answer) == "Expected UUID for uuid: '!@#$^*&%^'"


def test_an_unknown_driver_is_no_valid_host(service: Service) -> None:
    created = service.bare_metal.post("/v1/nodes", {"driver": "odd"})
    changed = service.bare_metal.patch(f"/v1/nodes/{service.enrol()}", replace("/driver", "odd"))
    for answer in (created, changed):
        assert (answer.status_code, fault(answer).partition(" Reason: ")[0]) == (400, "No valid host was found.")


@pytest.mark.parametrize("operation", ["remove", "replace"])
def test_a_path_that_does_not_exist_cannot_be_patched(service: Service, operation: str) -> None:
    change = {"op": operation, "path": "/extra/odd", "value": 1}
    answer = service.bare_metal.patch(f"/v1/nodes/{service.enrol()}", change)
    assert (answer.status_code, f"can't {operation} a non-existent object" in fault(answer)) == (400, True)


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_an_introspection_rule_was_not_found(service: Service, method: str) -> None:
    ident = "5b1a0d5c-3f26-4a3e-9f0e-5a1d1b7f9a01"
    answer = service.introspection.call(method, f"/v1/rules/{ident}")
    assert (answer.status_code, message(answer)) == (404, f"Rule {ident} was not found")


# Inspection rules. Source: "Update Inspection Rule", and its functional tests.


def test_a_rule_may_be_patched_with_a_template_as_path(service: Service) -> None:
    action = {"op": "set-attribute", "args": ["/properties/a", 1]}
    rule = service.bare_metal.post("/v1/inspection_rules", {"actions": [action]}).json
    actions = [
        {"op": "set-attribute", "args": ["{{ /properties/cpu_model }}", "cpu_xyz"]},
        {"op": "set-port-attribute", "args": {"port_id": "x", "path": "{inventory[x]}", "value": 1}},
    ]
    conditions = [{"op": "eq", "args": ["{{ inventory.cpu.count }}", 8]}]
    answer = service.bare_metal.patch(
        f"/v1/inspection_rules/{rule['uuid']}", replace("/actions", actions), replace("/conditions", conditions)
    )
    assert (answer.status_code, answer.json["actions"], answer.json["conditions"]) == (200, actions, conditions)


# Newer microversions. Source: the history of the API's versions.

SINCE = [("description", 97, "the one on top"), ("vendor", 100, "acme"), ("category", 101, "management")]


@pytest.mark.parametrize(("field", "since", "value"), SINCE)
def test_fields_of_ports_have_their_versions(service: Service, field: str, since: int, value: str) -> None:
    body = {"node_uuid": service.enrol(), "address": examples.mac(), field: value}
    assert service.client(f"1.{since - 1}").post("/v1/ports", body).status_code == 406
    port = service.client(f"1.{since}").post("/v1/ports", body).json
    path = f"/v1/ports/{port['uuid']}"
    assert (port[field], service.client(f"1.{since - 1}").get(path).json.get(field)) == (value, None)
    assert service.client(f"1.{since - 1}").patch(path, replace(f"/{field}", "x")).status_code == 406
    assert service.bare_metal.patch(path, {"op": "remove", "path": f"/{field}"}).json[field] is None


def test_ports_are_available_for_dynamic_port_groups_unless_set(service: Service) -> None:
    body = {"node_uuid": service.enrol(), "address": examples.mac()}
    port = service.bare_metal.post("/v1/ports", body).json
    path = f"/v1/ports/{port['uuid']}"
    assert port["available_for_dynamic_portgroup"] is True
    assert "available_for_dynamic_portgroup" not in service.client("1.110").get(path).json
    changed = service.bare_metal.patch(path, replace("/available_for_dynamic_portgroup", False)).json
    assert changed["available_for_dynamic_portgroup"] is False


def test_ports_are_found_by_description_and_conductor_group(service: Service) -> None:
    node, other = service.enrol(conductor_group="Rack1"), service.enrol()
    bodies = [{"node_uuid": one, "address": examples.mac()} for one in (node, other)]
    first = service.bare_metal.post("/v1/ports", bodies[0] | {"description": "The Top one"}).json["uuid"]
    assert service.bare_metal.post("/v1/ports", bodies[1]).status_code == 201
    for query, found in (
        ("description_contains=top", [first]),
        ("conductor_groups=rack1,rack2", [first]),
        ("description_contains=odd", []),
    ):
        ports = service.bare_metal.get(f"/v1/ports?{query}").json["ports"]
        assert [port["uuid"] for port in ports] == found, query
    assert service.bare_metal.get(f"/v1/ports?conductor_groups=rack1&node={node}").status_code == 400


def test_virtual_switches_of_ports_come_and_go(service: Service) -> None:
    link = {"port_id": "1", "vtep-logical-switch": "a", "vtep-physical-switch": "b"}
    body = {"node_uuid": service.enrol(), "address": examples.mac(), "local_link_connection": link}
    assert service.client("1.89").post("/v1/ports", body).status_code == 406
    assert service.client("1.105").post("/v1/ports", body).status_code == 406
    assert service.client("1.104").post("/v1/ports", body).status_code == 201


def test_instances_have_names(service: Service) -> None:
    ident = service.enrol(instance_name="vm1")
    path = f"/v1/nodes/{ident}"
    assert "instance_name" not in service.client("1.103").get(path).json
    assert service.client("1.103").patch(path, replace("/instance_name", "x")).status_code == 406
    assert service.client("1.103").get("/v1/nodes?instance_name=vm1").status_code == 406
    assert [node["uuid"] for node in service.bare_metal.get("/v1/nodes?instance_name=vm1").json["nodes"]] == [ident]
    assert service.bare_metal.get("/v1/nodes?instance_name=vm2").json["nodes"] == []
    assert service.bare_metal.patch(path, replace("/instance_name", "")).status_code == 400
    other = f"/v1/nodes/{service.enrol()}"
    for name in ("vm3", "vm4"):  # an instance keeps the name that it has
        node = service.bare_metal.patch(other, replace("/instance_info", {"display_name": name})).json
        assert node["instance_name"] == "vm3"


def test_health_and_history_have_their_newest_fields(service: Service) -> None:
    ident = service.enrol()
    assert service.client("1.109").get(f"/v1/nodes/{ident}").json["health"] is None
    assert "health" not in service.client("1.108").get(f"/v1/nodes/{ident}").json
    service.bare_metal.put(f"/v1/nodes/{ident}/states/power", {"target": "power on"})
    path = f"/v1/nodes/{ident}/history?detail=true"
    (event,) = service.client("1.112").get(path).json["history"]
    assert "project" not in event
    (event,) = service.client("1.113").get(path).json["history"]
    assert (event["project"], "state" in event) == (None, False)
    (event,) = service.client("1.115").get(path).json["history"]
    assert {"state", "target_provision_state", "duration_seconds"} <= set(event)
