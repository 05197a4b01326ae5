"""Inspections of the nodes of a real Ironic: what arrives there, what is refused, what is waited for."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ferroscope_sim.inventory import pxe_mac
from tests.nightly.openstack.ironic.place import Place, expected
from tests.support import redfish
from tests.support.bare_metal import Ironic
from tests.support.processes import until


def test_an_inspection_writes_its_results_to_ironic_and_powers_the_machine_off(place: Place) -> None:
    uuid, number = place.enroll(properties={"rack": "7", "capabilities": "zone:blue"}, extra={"asset": "a-1"})
    place.inspect(uuid)  # known to Ironic only, until now
    place.await_state(uuid, "waiting")
    assert place.ironic.node(uuid)["power_state"] == "power on"
    assert place.ironic.call("GET", f"/v1/nodes/{uuid}/management/boot_device")["boot_device"] == "pxe"
    assert place.call_back(number) == 202
    place.await_state(uuid, "finished")
    node = place.ironic.node(uuid)
    assert node["power_state"] == "power off"
    assert node["provision_state"] == "manageable"
    assert node["reservation"] is None
    assert node["extra"] == {"asset": "a-1"}
    found = node["properties"]
    assert {name: found[name] for name in expected(number)} == expected(number)
    assert found["rack"] == "7"
    assert "zone:blue" in found["capabilities"].split(",")
    assert pxe_mac(number) in [port["address"] for port in place.ironic.ports(uuid)]
    ours = place.call("GET", f"/v1/nodes/{uuid}/ports")[1]["ports"]
    assert sorted(port["uuid"] for port in ours) == sorted(port["uuid"] for port in place.ironic.ports(uuid))
    assert place.node(uuid)["provision_state"] == "manageable"


def test_callers_who_name_a_new_node_at_the_same_time_do_not_hinder_each_other(
    ironic: Ironic, postgresql_url: str, tmp_path: Path
) -> None:
    with Place(tmp_path, ironic, database=postgresql_url) as place, ThreadPoolExecutor(6) as callers:
        for _ in range(5):
            uuid, _number = place.enroll()
            path, root = f"/v1/introspection/{uuid}", place.introspection
            answers = list(callers.map(lambda _: place.call("POST", path, root=root), range(6)))  # noqa: B023
            assert {status for status, _ in answers} == {202}, answers


def test_an_inspection_is_refused_if_ironic_says_that_the_power_interface_is_not_valid(place: Place) -> None:
    node = {"name": "no-bmc-address", "driver": "redfish"}
    uuid = str(place.ironic.call("POST", "/v1/nodes", node)["uuid"])
    path = f"/v1/introspection/{uuid}"
    for _ in range(2):  # unknown here at first, then known
        status, answer = place.call("POST", path, root=place.introspection)
        assert status == 400
        assert "redfish_address" in answer["error"]["message"]
    status, answer = place.call("PUT", f"/v1/nodes/{uuid}/states/provision", {"target": "inspect"})
    assert status == 400
    assert "redfish_address" in answer["error_message"]
    # Whoever boots the machine needs no power interface.
    assert place.call("POST", f"{path}?manage_boot=false", root=place.introspection)[0] == 202
    place.await_state(uuid, "waiting")


def test_both_apis_show_the_nodes_and_refuse_what_only_ironic_does(place: Place) -> None:
    uuid, _ = place.enroll(properties={"rack": "1"})
    place.ironic.call("PATCH", f"/v1/nodes/{uuid}", [{"op": "replace", "path": "/owner", "value": "a-project"}])
    assert until(lambda: (place.node(uuid) or {}).get("owner") == "a-project")
    assert until(lambda: place.node(uuid)["provision_state"] == "manageable")
    node = place.node(uuid)
    assert (node["driver"], node["properties"]) == ("fake-hardware", {"rack": "1"})
    port = place.call("GET", f"/v1/nodes/{uuid}/ports")[1]["ports"][0]["uuid"]
    for method, path, body in (
        ("POST", "/v1/nodes", {"driver": "fake-hardware"}),
        ("PATCH", f"/v1/nodes/{uuid}", [{"op": "replace", "path": "/owner", "value": "me"}]),
        ("DELETE", f"/v1/nodes/{uuid}", None),
        ("PUT", f"/v1/nodes/{uuid}/states/power", {"target": "power on"}),
        ("PUT", f"/v1/nodes/{uuid}/states/provision", {"target": "manage"}),
        ("PUT", f"/v1/nodes/{uuid}/maintenance", None),
        ("PUT", f"/v1/nodes/{uuid}/management/boot_device", {"boot_device": "pxe"}),
        ("POST", "/v1/ports", {"node_uuid": uuid, "address": "52:54:00:99:99:99"}),
        ("PATCH", f"/v1/ports/{port}", [{"op": "replace", "path": "/pxe_enabled", "value": False}]),
        ("DELETE", f"/v1/ports/{port}", None),
    ):
        status, answer = place.call(method, path, body)
        assert (method, path, status) == (method, path, 403)
        assert place.ironic.url in answer["error_message"]
    assert place.ironic.node(uuid)["owner"] == "a-project"
    status, answer = place.call("PUT", f"/v1/nodes/{uuid}/states/provision", {"target": "abort"})
    assert (status, "allowed now: inspect." in answer["error_message"]) == (409, True)


def test_a_node_that_is_in_use_when_its_inspection_ends_is_left_alone(place: Place) -> None:
    uuid, number = place.enroll()
    place.inspect(uuid)
    place.await_state(uuid, "waiting")
    place.ironic.provision(uuid, "provide", "available")
    assert place.call_back(number) == 202
    place.await_state(uuid, "error")
    assert "available" in place.status(uuid)["error"]
    node = place.ironic.node(uuid)
    assert (node["power_state"], node["properties"]) == ("power on", {})


def test_a_node_that_ironic_uses_or_maintains_is_not_inspected_until_it_is_free(place: Place) -> None:
    uuid, number = place.enroll()
    place.ironic.call("PUT", f"/v1/nodes/{uuid}/maintenance", {"reason": "fan broken"})
    assert until(lambda: (place.node(uuid) or {}).get("maintenance"))
    status, answer = place.call("POST", f"/v1/introspection/{uuid}", root=place.introspection)
    assert status == 409
    assert "fan broken" in str(answer)
    place.ironic.call("DELETE", f"/v1/nodes/{uuid}/maintenance")
    place.ironic.provision(uuid, "provide", "available")
    assert until(lambda: place.node(uuid)["provision_state"] == "available")
    status, answer = place.call("PUT", f"/v1/nodes/{uuid}/states/provision", {"target": "inspect"})
    assert (status, "available" in str(answer)) == (409, True)
    place.ironic.provision(uuid, "manage", "manageable")
    place.inspected(uuid, number)  # at once, whatever the copy says


def test_a_machine_that_must_not_be_off_is_not_rebooted_while_it_is_in_use(place: Place) -> None:
    uuid, _ = place.enroll(disable_power_off=True)
    # Ironic's fake hardware has no power state until one is commanded, and what is in doubt is not rebooted.
    place.ironic.call("PUT", f"/v1/nodes/{uuid}/states/power", {"target": "power on"})
    assert until(lambda: place.ironic.node(uuid)["power_state"] == "power on")
    place.inspect(uuid)
    place.await_state(uuid, "waiting")
    place.ironic.provision(uuid, "provide", "available")
    log = place.ironic.log.parent / "ironic-service.log"
    commands = log.read_text().count(f"PUT /v1/nodes/{uuid}/states/power")
    assert place.call("POST", f"/v1/introspection/{uuid}/abort", root=place.introspection)[0] == 202
    place.await_state(uuid, "error")
    assert commands > 1
    assert log.read_text().count(f"PUT /v1/nodes/{uuid}/states/power") == commands


def test_a_node_in_enroll_is_inspected_and_stays_there(place: Place) -> None:
    uuid = str(place.ironic.call("POST", "/v1/nodes", {"driver": "fake-hardware", "name": "new"})["uuid"])
    place.inspect(uuid)
    place.await_state(uuid, "waiting")
    assert place.call("POST", f"/v1/introspection/{uuid}/abort", root=place.introspection)[0] == 202
    place.await_state(uuid, "error")
    assert place.ironic.node(uuid)["provision_state"] == "enroll"
    place.ironic.call("DELETE", f"/v1/nodes/{uuid}")


def test_changes_in_ironic_arrive_in_our_copy(place: Place) -> None:
    uuid, number = place.enroll()
    assert until(lambda: place.node(uuid) is not None)
    patch = [
        {"op": "replace", "path": "/owner", "value": "somebody"},
        {"op": "add", "path": "/properties/rack", "value": "9"},
    ]
    place.ironic.call("PATCH", f"/v1/nodes/{uuid}", patch)
    (port,) = place.ironic.ports(uuid)
    place.ironic.call("DELETE", f"/v1/ports/{port['uuid']}")
    other = pxe_mac(number + 5000)
    fields = {"node_uuid": uuid, "address": other, "physical_network": "net-a", "category": "green"}
    added = place.ironic.call("POST", "/v1/ports", fields, version="1.101")["uuid"]
    rows = lambda: place.rows(f"SELECT address, physical_network, attributes FROM ports WHERE node = '{uuid}'")  # noqa: E731
    assert until(lambda: rows() == [(other, "net-a", '{"category":"green"}')]), rows()
    blue = [{"op": "replace", "path": "/category", "value": "blue"}]
    place.ironic.call("PATCH", f"/v1/ports/{added}", blue, version="1.101")
    assert until(lambda: rows() == [(other, "net-a", '{"category":"blue"}')]), rows()
    assert until(lambda: place.node(uuid)["owner"] == "somebody")
    assert place.node(uuid)["properties"]["rack"] == "9"


def test_a_machine_whose_port_is_new_in_ironic_is_found_when_it_calls(place: Place) -> None:
    uuid = place.ironic.enroll("without-ports")
    place.inspect(uuid)
    place.await_state(uuid, "waiting")
    number = 7001
    place.ironic.call("POST", "/v1/ports", {"node_uuid": uuid, "address": pxe_mac(number)})
    assert place.call_back(number) == 202
    place.await_state(uuid, "finished")
    assert place.ironic.node(uuid)["properties"]["memory_mb"] == expected(number)["memory_mb"]
    assert place.call_back(7002) == 404  # a machine that Ironic does not know either


def test_a_deleted_node_ends_its_inspection(place: Place) -> None:
    uuid, number = place.enroll()
    place.inspect(uuid)
    place.await_state(uuid, "waiting")
    place.ironic.call("DELETE", f"/v1/nodes/{uuid}")
    assert place.call_back(number) == 202
    place.await_state(uuid, "error")
    assert "no longer has this node" in place.status(uuid)["error"]


def test_a_port_that_ironic_refuses_is_a_warning(place: Place) -> None:
    uuid, number = place.enroll()
    other, _ = place.enroll()
    place.inspect(uuid)
    place.await_state(uuid, "waiting")
    (port,) = place.ironic.ports(uuid)
    (worker,) = place.workers
    assert worker.stop() == 0  # otherwise our copy may follow before the ramdisk calls, and the caller is the other
    place.ironic.call("DELETE", f"/v1/ports/{port['uuid']}")
    place.ironic.call("POST", "/v1/ports", {"node_uuid": other, "address": port["address"]})
    assert place.call_back(number) == 202
    worker.start()
    place.await_state(uuid, "finished")
    assert place.ironic.ports(uuid) == []
    assert place.ironic.node(uuid)["properties"]["memory_mb"] == expected(number)["memory_mb"]


def test_the_deny_list_of_the_pxe_filter_has_the_macs_of_ironics_ports(place: Place) -> None:
    uuid, number = place.enroll()
    assert until(lambda: place.node(uuid) is not None)
    changes = "SELECT mac FROM mac_changes"
    assert until(lambda: pxe_mac(number) in [row[0] for row in place.rows(changes)])


def test_a_machine_whose_bmc_ironic_controls_over_redfish(place: Place, tmp_path: Path) -> None:
    with redfish.emulator(tmp_path / "rack", machines=1) as rack:
        uuid, number = place.enroll(driver="redfish", driver_info=redfish.driver_info(rack.url))
        place.inspect(uuid)
        place.await_state(uuid, "waiting")
        system = rack.system(0)
        assert (system["PowerState"], system["Boot"]["BootSourceOverrideTarget"]) == ("On", "Pxe")
        assert place.call_back(number) == 202
        place.await_state(uuid, "finished")
        assert rack.system(0)["PowerState"] == "Off"
        assert place.ironic.node(uuid)["properties"]["memory_mb"] == expected(number)["memory_mb"]
        assert redfish.PASSWORD not in str(place.rows("SELECT driver_info FROM nodes"))
        place.ironic.call("DELETE", f"/v1/nodes/{uuid}")
