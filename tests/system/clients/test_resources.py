"""``baremetal`` and openstacksdk: chassis, port groups, traits, conductors, shards, children, firmware."""

from __future__ import annotations

from socket import gethostname

from tests.system.clients.site import Site


def test_openstacksdk_uses_chassis_port_groups_traits_and_conductors(site: Site) -> None:
    machine = site.machine()
    node = site.enroll(machine)
    seen = site.call("sdk.resources", node=node)
    drivers = ["fake-hardware", "ipmi", "redfish", "sim"]
    assert seen == {
        "chassis": "rack 7",
        "chassis_listed": True,
        "group": [f"bond-{node}"],
        "ports": [machine.mac],
        "traits": ["CUSTOM_MORE", "HW_CPU_X86_VMX"],
        "chassis_of_node": True,
        "conductor": gethostname(),
        "conductors": {gethostname(): [True, drivers]},
        "allocations": [],
        "templates": [],
        "connectors": [],
        "vifs": [],
    }


def test_chassis_are_created_changed_listed_and_deleted(site: Site) -> None:
    words = ["chassis", "create", "--description", "rack", "--extra", "row=7", "-f", "json"]
    chassis = site.baremetal(*words).json()
    assert (chassis["description"], chassis["extra"]) == ("rack", {"row": 7})
    uuid = chassis["uuid"]
    node = site.enroll(site.machine())
    site.baremetal("node", "set", node, "--chassis-uuid", uuid)
    assert site.node(node)["chassis_uuid"] == uuid
    listed = site.baremetal("node", "list", "--chassis", uuid, "-f", "value", "-c", "uuid").out.split()
    assert listed == [node]
    site.baremetal("chassis", "set", uuid, "--description", "rack 7")
    assert site.baremetal("chassis", "show", uuid, "-f", "json").json()["description"] == "rack 7"
    assert uuid in site.baremetal("chassis", "list", "--long", "-f", "value", "-c", "uuid").out.split()
    site.baremetal("node", "unset", node, "--chassis-uuid")
    site.baremetal("chassis", "unset", uuid, "--description", "--extra", "row")
    assert site.get(f"/v1/chassis/{uuid}")["extra"] == {}
    assert f"Deleted chassis {uuid}" in site.baremetal("chassis", "delete", uuid).out
    assert not site.exists(f"/v1/chassis/{uuid}")


def test_port_groups_are_created_changed_listed_and_deleted(site: Site) -> None:
    machine = site.machine()
    node = site.enroll(machine)
    name = f"bond-{machine.name}"
    words = ["port", "group", "create", "--node", node, "--name", name, "--mode", "802.3ad", "--property", "miimon=100"]
    group = site.baremetal(*words, "--unsupport-standalone-ports", "-f", "json").json()
    assert (group["mode"], group["properties"], group["standalone_ports_supported"]) == (
        "802.3ad",
        {"miimon": 100},
        False,
    )
    port = site.baremetal("port", "list", "--node", node, "-f", "value", "-c", "uuid").out.strip()
    site.baremetal("port", "set", port, "--port-group", group["uuid"])
    assert site.baremetal("port", "list", "--port-group", name, "-f", "value", "-c", "uuid").out.split() == [port]
    site.baremetal("port", "group", "set", name, "--mode", "active-backup", "--support-standalone-ports")
    shown = site.baremetal("port", "group", "show", group["uuid"], "-f", "json").json()
    assert (shown["mode"], shown["standalone_ports_supported"]) == ("active-backup", True)
    listed = site.baremetal("port", "group", "list", "--node", node, "-f", "value", "-c", "name").out.split()
    assert listed == [name]
    site.baremetal("port", "unset", port, "--port-group")
    assert f"Deleted port group {name}" in site.baremetal("port", "group", "delete", name).out
    assert not site.exists(f"/v1/portgroups/{group['uuid']}")


def test_traits_are_added_listed_and_removed(site: Site) -> None:
    node = site.enroll(site.machine())
    site.baremetal("node", "add", "trait", node, "CUSTOM_GOLD", "HW_CPU_X86_VMX")
    assert site.baremetal("node", "trait", "list", node, "-f", "value").out.split() == ["CUSTOM_GOLD", "HW_CPU_X86_VMX"]
    site.baremetal("node", "remove", "trait", node, "CUSTOM_GOLD")
    assert site.node(node)["traits"] == ["HW_CPU_X86_VMX"]
    site.baremetal("node", "remove", "trait", node, "--all")
    assert site.node(node)["traits"] == []


def test_conductors_are_listed_and_shown(site: Site) -> None:
    (row,) = site.baremetal("conductor", "list", "--long", "-f", "json").json()
    assert (row["hostname"], row["conductor_group"], row["alive"]) == (gethostname(), "", True)
    shown = site.baremetal("conductor", "show", gethostname(), "-f", "json").json()
    assert (shown["hostname"], "sim" in shown["drivers"]) == (gethostname(), True)
    node = site.enroll(site.machine())
    listed = site.baremetal("node", "list", "--conductor", gethostname(), "-f", "value", "-c", "uuid").out.split()
    assert node in listed


def test_shards_children_and_firmware_are_listed(site: Site) -> None:
    machine = site.machine()
    parent, child = site.enroll(machine), site.enroll(site.machine())
    site.baremetal("node", "set", parent, "--shard", "rack-7")
    shards = {row["name"]: row["count"] for row in site.baremetal("shard", "list", "-f", "json").json()}
    assert shards["rack-7"] == 1
    assert site.baremetal("node", "list", "--shards", "rack-7", "-f", "value", "-c", "uuid").out.split() == [parent]
    site.baremetal("node", "set", child, "--parent-node", parent)
    assert child in site.baremetal("node", "children", "list", parent, "-f", "value").out
    assert site.baremetal("node", "firmware", "list", parent, "-f", "json").json() == []
    site.inspect(parent, until="manageable")
    (bios,) = site.baremetal("node", "firmware", "list", parent, "-f", "json").json()
    assert bios["component"] == "bios"
    assert bios["current_version"] == machine.sends()["inventory"]["system_vendor"]["firmware"]["version"]
