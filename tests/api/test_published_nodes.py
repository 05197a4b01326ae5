"""Nodes, drivers and ports answer as the Bare Metal service does: each request here was also sent to a real Ironic 39.

Each test names the section of its API reference, or of the history of its microversions. Texts are those of Ironic;
where ours go on after them, only the beginning is compared. Differences that are deliberate are in
docs/reference/deviations.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ferroscope.bmc.fake import FakeBmc
from ferroscope.bmc.ipmi.driver import IpmiBmc
from ferroscope.bmc.redfish.driver import IdracBmc, RedfishBmc
from ferroscope.core.states import Event
from tests.api.service import Service, fault, message
from tests.support import examples


@pytest.fixture
def make(database_url: str) -> Iterator[Callable[..., Service]]:
    """Return a function that starts the service with other drivers."""
    made: list[Service] = []

    def start(**drivers: Any) -> Service:
        made.append(Service(database_url, drivers=drivers))
        return made[-1]

    yield start
    for service in made:
        service.close()


def replace(path: str, value: Any) -> dict[str, Any]:
    return {"op": "replace", "path": path, "value": value}


def provisioned(service: Service, state: str) -> str:
    """Enrol a node in a provision state; return its path."""
    path = f"/v1/nodes/{service.enrol()}"
    service.alter(path.rpartition("/")[2], provision_state=state)
    return path


# Fields that depend on each other. Source: "Update Node", and the release notes of protected (1.48) and retired (1.61).


@pytest.mark.parametrize("change", [replace("/retired", False), {"op": "remove", "path": "/retired"}])
def test_a_node_that_is_no_longer_retired_has_no_reason(service: Service, change: dict[str, Any]) -> None:
    path = provisioned(service, "manageable")
    node = service.bare_metal.patch(path, replace("/retired", True), replace("/retired_reason", "old")).json
    assert (node["retired"], node["retired_reason"]) == (True, "old")
    node = service.bare_metal.patch(path, change).json
    assert (node["retired"], node["retired_reason"]) == (False, None)


def test_available_nodes_are_not_retired(service: Service) -> None:
    path = provisioned(service, "available")
    answer = service.bare_metal.patch(path, replace("/retired", True))
    assert answer.status_code == 409
    assert "can not have 'retired' set in provision state 'available'" in fault(answer)
    assert service.bare_metal.patch(path, replace("/retired", False)).status_code == 200


def test_retired_nodes_are_not_provided(service: Service) -> None:
    path = provisioned(service, "manageable")
    service.bare_metal.patch(path, replace("/retired", True))
    answer = service.bare_metal.put(f"{path}/states/provision", {"target": "provide"})
    assert answer.status_code == 400
    assert "The providing operation can't be performed" in fault(answer)
    service.bare_metal.patch(path, replace("/retired", False))
    assert service.bare_metal.put(f"{path}/states/provision", {"target": "provide"}).status_code == 202


@pytest.mark.parametrize("state", ["enroll", "manageable", "available", "inspect failed"])
def test_only_active_and_rescued_nodes_are_protected(service: Service, state: str) -> None:
    path = provisioned(service, state)
    answer = service.bare_metal.patch(path, replace("/protected", True))
    assert answer.status_code == 409
    assert "can only be made protected in provision states 'active' or 'rescue'" in fault(answer)


def test_a_node_that_is_no_longer_protected_has_no_reason(service: Service) -> None:
    ident = service.enrol()
    service.alter(ident, attributes={"protected": True, "protected_reason": "theirs"})
    path = f"/v1/nodes/{ident}"
    assert service.bare_metal.patch(path, replace("/protected_reason", "ours")).json["protected_reason"] == "ours"
    node = service.bare_metal.patch(path, replace("/protected", False)).json
    assert (node["protected"], node["protected_reason"]) == (False, None)


@pytest.mark.parametrize("flag", ["protected", "retired"])
def test_a_reason_needs_its_flag(service: Service, flag: str) -> None:
    answer = service.bare_metal.patch(provisioned(service, "manageable"), replace(f"/{flag}_reason", "x"))
    assert (answer.status_code, fault(answer)) == (400, f"The {flag}_reason field can only be set when {flag} is True")


def test_new_nodes_are_not_protected(service: Service) -> None:
    answer = service.bare_metal.post("/v1/nodes", {"driver": "sim", "protected": True})
    assert answer.status_code == 400
    assert "'protected' was unexpected" in fault(answer)


def test_maintenance_ends_with_its_reason(service: Service) -> None:
    path = f"/v1/nodes/{service.enrol()}"
    service.bare_metal.put(f"{path}/maintenance", {"reason": "fan"})
    node = service.bare_metal.patch(path, replace("/maintenance", False)).json
    assert (node["maintenance"], node["maintenance_reason"]) == (False, None)
    assert service.bare_metal.patch(path, replace("/maintenance_reason", "x")).status_code == 400


# Interfaces. Source: "Update Node", "Validate Node", "List drivers", "Show driver details".

KINDS = [
    "bios",
    "boot",
    "console",
    "deploy",
    "firmware",
    "inspect",
    "management",
    "network",
    "power",
    "raid",
    "rescue",
    "storage",
    "vendor",
]


@pytest.mark.parametrize("kind", KINDS)
def test_unknown_interfaces_are_refused(service: Service, kind: str) -> None:
    wanted = f"Could not find the following interface in the 'ironic.hardware.interfaces.{kind}' entrypoint: odd."
    path = f"/v1/nodes/{service.enrol()}"
    changed = service.bare_metal.patch(path, replace(f"/{kind}_interface", "odd"))
    created = service.bare_metal.post("/v1/nodes", {"driver": "sim", f"{kind}_interface": "odd"})
    for answer in (changed, created):
        assert answer.status_code == 400
        assert fault(answer).startswith(wanted)


def test_each_interface_of_a_driver_can_be_set_and_reset(service: Service) -> None:
    path = f"/v1/nodes/{service.enrol()}"
    driver = service.bare_metal.get("/v1/drivers/fake-hardware").json
    for kind in KINDS:
        default = driver[f"default_{kind}_interface"]
        assert driver[f"enabled_{kind}_interfaces"][0] == default
        assert service.bare_metal.get(path).json[f"{kind}_interface"] == default
        for name in driver[f"enabled_{kind}_interfaces"]:
            answer = service.bare_metal.patch(path, replace(f"/{kind}_interface", name))
            assert (answer.status_code, answer.json[f"{kind}_interface"]) == (200, name)
        node = service.bare_metal.patch(path, {"op": "remove", "path": f"/{kind}_interface"}).json
        assert node[f"{kind}_interface"] == default


def test_an_interface_stays_valid_when_the_driver_changes(make: Callable[..., Service]) -> None:
    service = make(fake=FakeBmc(), ipmi=IpmiBmc())
    path = f"/v1/nodes/{service.enrol(driver='fake', deploy_interface='fake')}"
    answer = service.bare_metal.patch(path, replace("/driver", "ipmi"))
    assert (answer.status_code, fault(answer)) == (
        400,
        "deploy interface implementation 'fake' is not supported by hardware type ipmi.",
    )
    node = service.bare_metal.patch(f"{path}?reset_interfaces=true", replace("/driver", "ipmi")).json
    assert (node["deploy_interface"], node["power_interface"], node["boot_interface"]) == ("noop", "ipmitool", "ipxe")


PUBLISHED = {
    "redfish": {
        "bios": ["no-bios", "redfish"],
        "boot": ["http", "http-ipxe", "ipxe", "pxe", "redfish-https", "redfish-virtual-media"],
        "console": ["fake-graphical", "ipmitool-socat", "no-console", "redfish-graphical"],
        "deploy": ["anaconda", "ansible", "autodetect", "bootc", "custom-agent", "direct", "ramdisk"],
        "firmware": ["no-firmware", "redfish"],
        "inspect": ["agent", "no-inspect", "redfish"],
        "management": ["noop", "redfish"],
        "network": ["flat", "ironic-networking", "neutron", "noop"],
        "power": ["redfish"],
        "raid": ["agent", "no-raid", "redfish"],
        "storage": ["cinder", "external", "noop"],
        "vendor": ["no-vendor", "redfish"],
    },
    "idrac": {
        "bios": ["idrac-redfish", "no-bios", "redfish"],
        "boot": ["http", "http-ipxe", "idrac-redfish-virtual-media", "ipxe", "pxe", "redfish-https"],
        "firmware": ["no-firmware", "redfish"],
        "inspect": ["agent", "idrac-redfish", "no-inspect"],
        "management": ["idrac-redfish"],
        "power": ["idrac-redfish", "redfish"],
        "raid": ["agent", "idrac-redfish", "no-raid"],
        "vendor": ["idrac-redfish", "no-vendor", "redfish"],
    },
    "ipmi": {
        "console": ["ipmitool-socat", "no-console"],
        "management": ["ipmitool", "noop"],
        "power": ["ipmitool"],
        "vendor": ["ipmitool", "no-vendor"],
    },
}


@pytest.mark.parametrize("driver", PUBLISHED)
def test_the_names_of_a_hardware_type_are_accepted_and_stored(make: Callable[..., Service], driver: str) -> None:
    service = make(redfish=RedfishBmc(), idrac=IdracBmc(), ipmi=IpmiBmc())
    path = f"/v1/nodes/{service.enrol(driver=driver)}"
    for kind, names in PUBLISHED[driver].items():
        for name in names:
            changed = service.bare_metal.patch(path, replace(f"/{kind}_interface", name))
            assert (changed.status_code, changed.json.get(f"{kind}_interface")) == (200, name), changed.text
        other = service.bare_metal.patch(path, replace(f"/{kind}_interface", "fake"))
        assert other.status_code == 400, other.text


def test_each_driver_has_the_power_interface_of_its_hardware_type(make: Callable[..., Service]) -> None:
    service = make(redfish=RedfishBmc(), idrac=IdracBmc(), ipmi=IpmiBmc())
    powers = [
        service.bare_metal.get(f"/v1/nodes/{service.enrol(driver=driver)}").json["power_interface"]
        for driver in ("redfish", "idrac", "ipmi")
    ]
    assert powers == ["redfish", "idrac-redfish", "ipmitool"]


def test_a_client_finds_a_new_node_valid(service: Service) -> None:
    """openstacksdk's ``validate_node`` requires boot, deploy and power."""
    checks = service.bare_metal.get(f"/v1/nodes/{service.enrol()}/validate").json
    assert set(checks) == set(KINDS) - {"vendor"}
    assert [kind for kind, check in checks.items() if check["result"] is not True] == []


def test_what_is_not_supported_is_not_valid(service: Service) -> None:
    path = f"/v1/nodes/{service.enrol(raid_interface='no-raid', inspect_interface='no-inspect')}"
    checks = service.bare_metal.get(f"{path}/validate").json
    for kind in ("raid", "inspect"):
        assert checks[kind] == {
            "result": False,
            "reason": f"Driver fake-hardware does not support {kind} (disabled or not implemented).",
        }
    answer = service.bare_metal.put(f"{path}/states/provision", {"target": "inspect"})
    assert (answer.status_code, fault(answer)) == (400, checks["inspect"]["reason"])


def test_drivers_have_hosts_and_properties(service: Service) -> None:
    service.consume()
    for driver in service.bare_metal.get("/v1/drivers").json["drivers"]:
        assert driver["hosts"] == ["example"]
        assert service.bare_metal.get(f"/v1/drivers/{driver['name']}/properties").json


# Lists. Source: "List Nodes", "List Nodes Detailed": provision_state (1.9), fault (1.42), instance_name (1.104).


@pytest.mark.parametrize("state", ["active", "wait call-back", "clean failed", "service hold", "unrescue failed"])
def test_nodes_of_any_published_state_can_be_listed(service: Service, state: str) -> None:
    service.enrol()
    for path in ("/v1/nodes", "/v1/nodes/detail"):
        answer = service.bare_metal.get(f"{path}?provision_state={state.replace(' ', '%20')}")
        assert (answer.status_code, answer.json) == (200, {"nodes": []})


def test_unknown_states_and_faults_are_refused(service: Service) -> None:
    answer = service.bare_metal.get("/v1/nodes?provision_state=odd")
    assert (answer.status_code, fault(answer)) == (400, 'Provision state "odd" is not valid')
    assert service.bare_metal.get("/v1/nodes?provision_state=deleted").status_code == 400
    answer = service.bare_metal.get("/v1/nodes?fault=odd")
    assert answer.status_code == 400
    assert fault(answer).startswith("Unrecognized fault \"odd\" is specified, allowed faults are ('power failure', ")


@pytest.mark.parametrize("name", ["power failure", "clean failure", "rescue abort failure", "service failure"])
def test_nodes_of_any_published_fault_can_be_listed(service: Service, name: str) -> None:
    service.enrol()
    assert service.bare_metal.get(f"/v1/nodes?fault={name.replace(' ', '%20')}").json == {"nodes": []}
    assert service.client("1.41").get(f"/v1/nodes?fault={name.replace(' ', '%20')}").status_code == 406


# Power and boot device. Source: "Change Node Power State" (soft since 1.27), "Set Boot Device", "Get Boot Device".


@pytest.mark.parametrize(("target", "wanted"), [("soft power off", "power off"), ("soft rebooting", "power on")])
def test_soft_power_states_are_accepted_with_a_timeout(service: Service, target: str, wanted: str) -> None:
    ident = service.enrol()
    answer = service.bare_metal.put(f"/v1/nodes/{ident}/states/power", {"target": target, "timeout": 5})
    assert (answer.status_code, answer.headers["Location"].rpartition("/v1/")[2]) == (202, f"nodes/{ident}/states")
    assert service.bare_metal.get(f"/v1/nodes/{ident}/states").json["target_power_state"] == wanted
    (request,) = service.pending(ident)
    assert (request.event, request.payload) == (Event.SET_POWER, {"target": target, "timeout": 5})


def test_a_driver_without_soft_power_says_so(make: Callable[..., Service]) -> None:
    class Hard:
        properties: dict[str, str] = {}

        def validate(self, _node: Any) -> None: ...

    service = make(hard=Hard())
    path = f"/v1/nodes/{service.enrol(driver='hard')}/states/power"
    answer = service.bare_metal.put(path, {"target": "soft power off"})
    assert (answer.status_code, fault(answer)) == (
        400,
        "The driver hard does not support the power state, soft power off",
    )


@pytest.mark.parametrize("target", ["power off", "soft power off"])
def test_a_node_that_must_stay_on_is_not_powered_off(service: Service, target: str) -> None:
    path = f"/v1/nodes/{service.enrol(disable_power_off=True)}/states/power"
    answer = service.bare_metal.put(path, {"target": target})
    assert answer.status_code == 409
    assert fault(answer).startswith(f"Failed to set node power state to {target}")


def test_unknown_power_states_are_refused(service: Service) -> None:
    ident = service.enrol()
    answer = service.bare_metal.put(f"/v1/nodes/{ident}/states/power", {"target": "explode"})
    assert answer.status_code == 400
    assert fault(answer).startswith(
        f'The requested action "explode" can not be performed on node "{ident}" while it is in state "None".'
    )
    answer = service.bare_metal.put(f"/v1/nodes/{ident}/states/power", {"target": "power on", "timeout": 0})
    assert (answer.status_code, fault(answer)) == (400, "timeout has to be positive integer")


@pytest.mark.parametrize("target", ["power on", "power off", "rebooting", "soft power off"])
def test_power_can_be_set_while_the_machine_is_awaited(service: Service, target: str) -> None:
    ident = service.enrol()
    service.wait(ident)
    assert service.bare_metal.get(f"/v1/nodes/{ident}").json["provision_state"] == "inspect wait"
    assert service.bare_metal.put(f"/v1/nodes/{ident}/states/power", {"target": target}).status_code == 202
    assert [request.event for request in service.pending(ident)] == [Event.SET_POWER]


def test_the_boot_device_is_what_the_driver_says_until_one_is_set(service: Service) -> None:
    ident = service.enrol()
    path = f"/v1/nodes/{ident}/management/boot_device"
    assert service.bare_metal.get(path).json == {"boot_device": "pxe", "persistent": False}
    service.alter(ident, internal={"reported_boot_device": {"boot_device": "disk", "persistent": True}})
    assert service.bare_metal.get(path).json == {"boot_device": "disk", "persistent": True}
    service.bare_metal.put(path, {"boot_device": "cdrom"})
    assert service.bare_metal.get(path).json == {"boot_device": "cdrom", "persistent": False}


def test_each_driver_has_its_boot_devices(make: Callable[..., Service]) -> None:
    service = make(ipmi=IpmiBmc())
    path = f"/v1/nodes/{service.enrol(driver='ipmi')}/management/boot_device"
    assert service.bare_metal.get(f"{path}/supported").json == {
        "supported_boot_devices": ["pxe", "disk", "cdrom", "bios", "safe"]
    }
    answer = service.bare_metal.put(path, {"boot_device": "wanboot"})
    assert answer.status_code == 400
    assert fault(answer).startswith("Invalid boot device wanboot specified.")
    assert service.bare_metal.get(path).json == {"boot_device": None, "persistent": None}


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


def test_ports_have_no_names_for_old_callers(service: Service) -> None:
    port = service.bare_metal.post(
        "/v1/ports", {"node_uuid": service.enrol(), "address": examples.mac(), "name": "eth0"}
    ).json
    assert service.client("1.88").get("/v1/ports/eth0").json["uuid"] == port["uuid"]
    assert service.client("1.87").get("/v1/ports/eth0").status_code == 404


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


@pytest.mark.parametrize("ident", ["uuid", "5b1a0d5c-3f26-4a3e-9f0e-5a1d1b7f9a01"])
@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_an_introspection_rule_was_not_found(service: Service, method: str, ident: str) -> None:
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


def test_answers_have_the_standard_request_id_too(service: Service) -> None:
    headers = service.bare_metal.get("/v1/nodes").headers
    assert headers["X-Openstack-Request-Id"] == headers["Openstack-Request-Id"]
