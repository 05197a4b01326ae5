"""``baremetal node`` and ``driver``: enrol, look, change, delete."""

from __future__ import annotations

from socket import gethostname

from tests.support.processes import until
from tests.system.clients.site import Machine, Site, ended


def test_a_node_is_created_as_the_operator_describes_it(site: Site) -> None:
    machine = site.machine()
    described = ["--property", "cpus=8", "--property", "capabilities=boot_mode:uefi", "--extra", "rack=b7"]
    created = site.baremetal(*create(machine), *described, "--resource-class", "large", "-f", "json").json()
    assert created["name"] == machine.name
    assert created["driver"] == "sim"
    assert created["driver_info"] == machine.driver_info
    assert created["properties"] == {"cpus": 8, "capabilities": "boot_mode:uefi"}
    assert created["extra"] == {"rack": "b7"}
    assert created["resource_class"] == "large"
    assert created["provision_state"] == "enroll"
    stored = site.node(created["uuid"])
    assert {name: stored[name] for name in created} == created


def test_the_list_is_a_table_of_all_nodes(site: Site) -> None:
    machine = site.machine()
    uuid = site.enroll(machine)
    table = site.baremetal("node", "list").out
    (line,) = [line for line in table.splitlines() if uuid in line]
    assert [cell.strip() for cell in line.strip("|").split("|")] == [
        uuid,
        machine.name,
        "None",
        "power off",
        "manageable",
        "False",
    ]


def test_the_list_shows_everything_when_it_is_long(site: Site) -> None:
    machine = site.machine()
    uuid = site.enroll(machine)
    nodes = site.baremetal("node", "list", "--long", "-f", "json").json()
    (node,) = [node for node in nodes if node["uuid"] == uuid]
    assert node["driver_info"] == machine.driver_info
    assert node["inspect_interface"] == "agent"
    assert node["created_at"] == site.node(uuid)["created_at"]


def test_the_list_is_filtered_by_the_server(site: Site) -> None:
    new, ready, owned = site.machine(), site.machine(), site.machine()
    site.enroll(new, state="enroll")
    site.enroll(ready)
    site.baremetal(*create(owned), "--owner", "project-of-this-test", "--resource-class", "only-here")
    assert new.name in names(site, "--provision-state", "enroll")
    assert ready.name not in names(site, "--provision-state", "enroll")
    assert ready.name in names(site, "--provision-state", "manageable")
    assert names(site, "--owner", "project-of-this-test") == [owned.name]
    assert names(site, "--resource-class", "only-here", "--driver", "sim") == [owned.name]
    assert names(site, "--resource-class", "only-here", "--driver", "fake-hardware") == []


def test_the_list_is_sorted_limited_and_continued(site: Site) -> None:
    machines = [site.machine() for _ in range(5)]
    for machine in machines:
        site.baremetal(*create(machine), "--resource-class", "pages")
    created = [machine.name for machine in machines]
    ours = ["--resource-class", "pages"]
    assert names(site, *ours, "--sort", "name:desc") == sorted(created, reverse=True)
    assert names(site, *ours, "--limit", "2") == created[:2]
    assert names(site, *ours, "--limit", "2", "--marker", site.node(created[1])["uuid"]) == created[2:4]
    assert names(site, *ours, "--limit", "2", "--marker", site.node(created[3])["uuid"]) == created[4:]
    assert names(site, *ours, "--limit", "0") == created


def test_a_node_is_shown_by_uuid_and_by_name(site: Site) -> None:
    machine = site.machine()
    uuid = site.enroll(machine)
    by_name = site.baremetal("node", "show", machine.name, "-f", "json").json()
    assert site.baremetal("node", "show", uuid, "-f", "json").json() == by_name
    assert by_name["uuid"] == uuid
    some = site.baremetal("node", "show", uuid, "--fields", "name", "power_state", "-f", "json").json()
    assert some == {"name": machine.name, "power_state": "power off"}


def test_a_node_is_changed_by_set_and_unset(site: Site) -> None:
    machine = site.machine()
    uuid = site.enroll(machine)
    changes = [
        "--property",
        "cpus=4",
        "--property",
        "rack={}",
        "--property",
        "rack/unit=7",
        "--extra",
        'labels={"a": [1, 2]}',
    ]
    site.baremetal("node", "set", uuid, *changes, "--driver-info", "sim_note=x", "--description", "A test.")
    node = site.node(uuid)
    assert node["properties"] == {"cpus": 4, "rack": {"unit": 7}}
    assert node["extra"] == {"labels": {"a": [1, 2]}}
    assert node["driver_info"] == {**machine.driver_info, "sim_note": "x"}
    assert node["description"] == "A test."
    site.baremetal("node", "set", uuid, "--name", f"{machine.name}-renamed", "--property", "cpus=16")
    assert site.node(f"{machine.name}-renamed")["properties"]["cpus"] == 16
    site.baremetal("node", "unset", uuid, "--property", "cpus", "--extra", "labels", "--driver-info", "sim_note")
    node = site.node(uuid)
    assert "cpus" not in node["properties"]
    assert node["extra"] == {}
    assert node["driver_info"] == machine.driver_info
    site.baremetal("node", "unset", uuid, "--description", "--name")
    assert site.node(uuid)["description"] is None
    assert site.node(uuid)["name"] is None


def test_maintenance_is_set_with_a_reason_and_ends(site: Site) -> None:
    uuid = site.enroll(site.machine())
    site.baremetal("node", "maintenance", "set", uuid, "--reason", "the fan is loud")
    assert site.node(uuid)["maintenance"] is True
    assert site.node(uuid)["maintenance_reason"] == "the fan is loud"
    assert uuid in uuids(site, "--maintenance")
    site.baremetal("node", "maintenance", "unset", uuid)
    assert site.node(uuid)["maintenance"] is False
    assert site.node(uuid)["maintenance_reason"] is None
    assert uuid in uuids(site, "--no-maintenance")


def test_the_power_of_the_machine_follows_the_command(site: Site) -> None:
    machine = site.machine()
    uuid = site.enroll(machine)
    site.baremetal("node", "power", "on", uuid)
    assert until(lambda: site.power_of(machine) == "power on")
    assert until(lambda: site.node(uuid)["power_state"] == "power on")
    site.baremetal("node", "reboot", uuid)
    assert until(lambda: site.count(machine, "boots") == 2)
    site.baremetal("node", "reboot", uuid, "--soft", "--power-timeout", "20")
    assert until(lambda: site.count(machine, "boots") == 3)
    assert until(lambda: site.node(uuid)["target_power_state"] is None)
    site.baremetal("node", "power", "off", uuid, "--soft")
    assert until(lambda: site.power_of(machine) == "power off")
    assert until(lambda: site.node(uuid)["power_state"] == "power off")
    assert site.node(uuid)["target_power_state"] is None


def test_the_boot_device_reaches_the_machine_and_is_shown(site: Site) -> None:
    machine = site.machine()
    uuid = site.enroll(machine)
    site.baremetal("node", "boot", "device", "set", uuid, "pxe", "--persistent")
    assert until(lambda: site.count(machine, "boot_device_sets") == 1)
    assert site.fleet.fleet.machines[machine.name].boot_device == ("pxe", True)
    shown = site.baremetal("node", "boot", "device", "show", uuid, "-f", "json").json()
    assert shown == {"boot_device": "pxe", "persistent": True}
    supported = site.baremetal("node", "boot", "device", "show", uuid, "--supported", "-f", "value").out
    assert "pxe" in supported
    assert "disk" in supported


def test_deleted_nodes_are_gone_with_their_ports(site: Site) -> None:
    first, second = site.machine(), site.machine()
    uuids_of = [site.enroll(first), site.enroll(second)]
    done = site.baremetal("node", "delete", uuids_of[0], second.name)
    assert f"Deleted node {uuids_of[0]}" in done.out
    assert f"Deleted node {second.name}" in done.out
    assert not any(site.exists(f"/v1/nodes/{uuid}") for uuid in uuids_of)
    assert site.get(f"/v1/ports?address={first.mac}")["ports"] == []


def test_the_drivers_are_listed_and_shown(site: Site) -> None:
    drivers = site.baremetal("driver", "list", "-f", "json").json()
    assert {driver["name"] for driver in drivers} == {"fake-hardware", "ipmi", "redfish", "sim"}
    assert all(driver["hosts"] == gethostname() for driver in drivers)
    shown = site.baremetal("driver", "show", "sim", "-f", "json").json()
    assert shown["name"] == "sim"
    assert shown["default_inspect_interface"] == "agent"
    site.baremetal("driver", "property", "list", "sim")


def test_an_older_microversion_is_spoken_when_it_is_asked_for(site: Site) -> None:
    machine = site.machine()
    site.enroll(machine, state="enroll")
    words = ["node", "show", machine.name, "-f", "json"]
    shown = site.baremetal("--os-baremetal-api-version", "1.31", *words).json()
    assert shown["name"] == machine.name
    assert "owner" not in shown
    site.baremetal("--os-baremetal-api-version", "1.31", "node", "set", machine.name, "--owner", "me", code=1)
    assert site.node(machine.name)["owner"] is None


def test_the_commands_are_also_those_of_openstack(site: Site) -> None:
    machine = site.machine()
    uuid = site.enroll(machine)
    words = [
        "--os-auth-type",
        "none",
        "--os-endpoint",
        site.bare_metal,
        "baremetal",
        "node",
        "show",
        uuid,
        "-f",
        "json",
    ]
    done = ended(site.clients.command("openstack", *words).done(), 0)
    assert done.json()["name"] == machine.name


def create(machine: Machine) -> list[str]:
    """Return the command that enrols the machine."""
    words = ["node", "create", "--driver", "sim", "--name", machine.name]
    for key, value in machine.driver_info.items():
        words += ["--driver-info", f"{key}={value}"]
    return words


def names(site: Site, *options: str) -> list[str]:
    """Return the names in the list, in its order."""
    return site.baremetal("node", "list", *options, "-f", "value", "-c", "name").out.split()


def uuids(site: Site, *options: str) -> list[str]:
    return site.baremetal("node", "list", *options, "-f", "value", "-c", "uuid").out.split()
