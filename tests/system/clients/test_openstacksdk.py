"""openstacksdk: its ``baremetal`` proxy, without Keystone."""

from __future__ import annotations

import pytest

from tests.support.examples import mac, uuid
from tests.system.clients.environment import ClientError
from tests.system.clients.site import Machine, Site


def described(machine: Machine) -> dict[str, object]:
    return {"driver": "sim", "name": machine.name, "driver_info": machine.driver_info}


def test_a_machine_is_created_manageable_and_inspected(site: Site) -> None:
    machine = site.machine()
    node = {**described(machine), "properties": {"rack": "b7"}, "provision_state": "manageable"}
    created = site.call("sdk.create", node=node, address=machine.mac)
    assert created["node"]["provision_state"] == "manageable"
    assert created["node"]["properties"] == {"rack": "b7"}
    assert created["port"]["address"] == machine.mac
    assert created["port"]["node_id"] == created["node"]["id"]
    inspected = site.call("sdk.inspect", node=machine.name)
    sent = machine.sends()
    assert inspected["node"]["provision_state"] == "manageable"
    assert inspected["node"]["properties"] == {"rack": "b7", "cpu_arch": sent["inventory"]["cpu"]["architecture"]}
    assert inspected["inventory"]["inventory"] == sent["inventory"]
    assert inspected["inventory"] == site.get(f"/v1/nodes/{machine.name}/inventory")
    assert inspected["ports"] == [{"address": machine.mac, "is_pxe_enabled": True}]
    assert site.count(machine, "pxe_boots") == 1


def test_a_node_is_created_enrolled_or_available_as_the_version_has_it(site: Site) -> None:
    for state in ("enroll", "available"):
        machine = site.machine()
        node = {"driver": "sim", "driver_info": machine.driver_info, "provision_state": state}
        created = site.call("sdk.create", node=node, address=machine.mac)
        assert site.node(created["node"]["id"])["provision_state"] == state


def test_many_nodes_are_waited_for_at_once(site: Site) -> None:
    good = [site.enroll(site.machine()) for _ in range(2)]
    failing, silent = site.enroll(site.machine("ramdisk-error")), site.enroll(site.machine("timeout"))
    result = site.call("sdk.inspect_many", nodes=[*good, failing, silent], timeout=6)
    assert sorted(result["success"]) == sorted(good)
    assert result["failure"] == [failing]
    assert result["timeout"] == [silent]


def test_a_failed_inspection_is_raised_with_its_reason(site: Site) -> None:
    node = site.enroll(site.machine("ramdisk-error"))
    with pytest.raises(ClientError, match=r"(?s)reached failure state 'inspect failed'.*no disks") as failure:
        site.call("sdk.inspect", node=node)
    assert failure.value.kind == "ResourceFailure"


def test_a_failed_verification_is_raised_with_its_reason(site: Site) -> None:
    machine = site.machine("bmc-dead")
    node = {**described(machine), "provision_state": "manageable"}
    with pytest.raises(ClientError, match=r"failed to verify management credentials.*bmc-unreachable"):
        site.call("sdk.create", node=node, address=machine.mac)


def test_an_illegal_transition_is_a_conflict_with_the_reason(site: Site) -> None:
    node = site.enroll(site.machine(), state="enroll")
    with pytest.raises(ClientError, match="inspect, manage") as failure:
        site.call("sdk.set_provision_state", node=node, target="provide")
    assert failure.value.kind == "ConflictException"


def test_a_node_is_found_by_its_name_or_not_at_all(site: Site) -> None:
    machine = site.machine()
    node = site.enroll(machine)
    assert site.call("sdk.find", node=machine.name)["id"] == node
    assert site.call("sdk.find", node="no-such-node") is None
    assert site.call("sdk.get", node=node, fields=["name"])["name"] == machine.name
    with pytest.raises(ClientError, match="could not be found") as failure:
        site.call("sdk.get", node=uuid())
    assert failure.value.kind == "NotFoundException"


def test_the_list_is_filtered_and_followed_page_by_page(site: Site) -> None:
    nodes = [site.enroll(site.machine()) for _ in range(3)]
    for node in nodes:
        site.call("sdk.patch", node=node, operations=[{"op": "add", "path": "/resource_class", "value": "sdk"}])
    assert [node["id"] for node in site.call("sdk.list_nodes", resource_class="sdk", limit=1)] == nodes
    marked = site.call("sdk.list_nodes", resource_class="sdk", marker=nodes[0])
    assert [node["id"] for node in marked] == nodes[1:]
    site.call("sdk.set_provision_state", node=nodes[0], target="provide")
    query = {"resource_class": "sdk", "provision_state": "available", "driver": "sim", "associated": False}
    assert [node["id"] for node in site.call("sdk.list_nodes", details=True, **query)] == [nodes[0]]
    query = {"resource_class": "sdk", "is_maintenance": True, "fields": ["name"]}
    assert site.call("sdk.list_nodes", **query) == []


def test_a_node_is_patched_and_updated(site: Site) -> None:
    node = site.enroll(site.machine())
    operations = [
        {"op": "add", "path": "/properties/cpus", "value": 8},
        {"op": "add", "path": "/extra/list", "value": [1]},
        {"op": "add", "path": "/extra/list/-", "value": 2},
    ]
    patched = site.call("sdk.patch", node=node, operations=operations)
    assert patched["properties"] == {"cpus": 8}
    assert patched["extra"] == {"list": [1, 2]}
    updated = site.call("sdk.update", node=node, changes={"extra": {"other": "x"}, "name": "sdk-renamed"})
    assert (updated["extra"], updated["name"]) == ({"other": "x"}, "sdk-renamed")
    stored = site.node(node)
    assert (stored["properties"], stored["extra"], stored["name"]) == ({"cpus": 8}, {"other": "x"}, "sdk-renamed")


def test_validation_passes_and_fails_by_what_is_required(site: Site) -> None:
    node = site.enroll(site.machine())
    checks = site.call("sdk.validate", node=node, required=["power", "management", "inspect"])
    assert checks["power"] == [True, None]
    assert [checks[kind] for kind in ("boot", "deploy")] == [[True, None], [True, None]]
    site.call("sdk.validate", node=node, required=["boot", "deploy", "power"])  # what it requires by default
    site.call("sdk.patch", node=node, operations=[{"op": "remove", "path": "/driver_info/sim_node"}])
    with pytest.raises(ClientError, match=r"Validation failed.*power \(.*sim_node") as failure:
        site.call("sdk.validate", node=node, required=["power"])
    assert failure.value.kind == "ValidationException"


def test_the_power_is_switched_and_waited_for(site: Site) -> None:
    machine = site.machine()
    node = site.enroll(machine)
    assert site.call("sdk.power_cycle", node=node) == ["power on", "power on", "power off"]
    assert site.power_of(machine) == "power off"
    assert site.count(machine, "boots") == 2


def test_the_power_is_switched_softly_and_waited_for(site: Site) -> None:
    machine = site.machine()
    node = site.enroll(machine)
    assert site.call("sdk.soft_power", node=node) == ["power on", "power on", "power off"]
    assert site.power_of(machine) == "power off"
    assert site.count(machine, "power_ons") == 2


def test_ports_are_created_found_changed_and_deleted(site: Site) -> None:
    machine, address, new_address = site.machine(), mac(), mac()
    node = site.enroll(machine)
    result = site.call("sdk.ports_of", node=node, address=address, new_address=new_address)
    assert result["is_pxe_enabled"] is False
    assert result["by_address"] == [result["id"]]
    assert set(result["by_node"]) == {machine.mac, address}
    assert result["changed"] == new_address
    assert result["fetched"] == [new_address, {"slot": 1}, node]
    assert result["left"] == []


def test_a_deleted_node_is_gone(site: Site) -> None:
    node = site.enroll(site.machine())
    assert site.call("sdk.delete", node=node) is False
    assert not site.exists(f"/v1/nodes/{node}")
    with pytest.raises(ClientError) as failure:
        site.call("sdk.delete", node=node)
    assert failure.value.kind == "NotFoundException"


def test_a_list_of_large_nodes_is_read_page_by_page_by_each_client(site: Site) -> None:
    body = {"driver": "fake-hardware", "resource_class": "a-megabyte", "extra": {"x": "x" * 1_000_000}}
    nodes = [site.request("POST", "/v1/nodes", body)["uuid"] for _ in range(10)]
    first = site.get("/v1/nodes/detail?resource_class=a-megabyte")
    assert 5 < len(first["nodes"]) < 10  # 8 MiB of them
    assert [node["id"] for node in site.call("sdk.list_nodes", details=True, resource_class="a-megabyte")] == nodes
    listed = site.baremetal("node", "list", "--resource-class", "a-megabyte", "--limit", "0", "--long", "-f", "value")
    assert sum(node in listed.out for node in nodes) == 10
    for node in nodes:
        site.request("DELETE", f"/v1/nodes/{node}")
