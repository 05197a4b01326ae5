"""``baremetal port``: create, list, show, change, delete."""

from __future__ import annotations

from tests.support.examples import mac
from tests.system.clients.site import Site


def test_a_port_is_created_on_a_node_and_shown(site: Site) -> None:
    uuid, address = site.enroll(site.machine()), mac()
    words = ["port", "create", address, "--node", uuid, "--physical-network", "rack-7", "--pxe-enabled", "false"]
    wire = ["--local-link-connection", "switch_id=0a:1b:2c:3d:4e:5f", "--local-link-connection", "port_id=Eth1/7"]
    created = site.baremetal(*words, *wire, "--extra", "slot=2", "-f", "json").json()
    assert created["address"] == address
    assert created["node_uuid"] == uuid
    assert created["pxe_enabled"] is False
    assert created["physical_network"] == "rack-7"
    assert created["local_link_connection"] == {"switch_id": "0a:1b:2c:3d:4e:5f", "port_id": "Eth1/7"}
    assert created["extra"] == {"slot": 2}
    shown = site.baremetal("port", "show", created["uuid"], "-f", "json").json()
    stored = site.get(f"/v1/ports/{created['uuid']}")
    assert shown == {name: stored[name] for name in stored if name != "links"}
    assert {name: created[name] for name in created.keys() & shown.keys()}.items() <= shown.items()
    assert site.baremetal("port", "show", "--address", address, "-f", "json").json()["uuid"] == created["uuid"]


def test_ports_are_listed_by_node_by_address_and_in_full(site: Site) -> None:
    machine, address = site.machine(), mac()
    uuid = site.enroll(machine)
    site.baremetal("port", "create", address, "--node", uuid)
    assert addresses(site, "--node", uuid) == {machine.mac, address}
    assert addresses(site, "--node", machine.name) == {machine.mac, address}
    assert addresses(site, "--address", address) == {address}
    rows = site.baremetal("port", "list", "--node", uuid, "--long", "-f", "json").json()
    assert {row["node_uuid"] for row in rows} == {uuid}
    some = site.baremetal("port", "list", "--node", uuid, "--fields", "address", "pxe_enabled", "-f", "json").json()
    assert {"address": address, "pxe_enabled": True} in some
    assert len(site.baremetal("port", "list", "--node", uuid, "--limit", "1", "-f", "json").json()) == 1


def test_a_port_is_changed_by_set_and_unset(site: Site) -> None:
    first, second = site.enroll(site.machine()), site.enroll(site.machine())
    port = site.baremetal("port", "create", mac(), "--node", first, "-f", "json").json()["uuid"]
    address = mac()
    site.baremetal("port", "set", port, "--address", address, "--physical-network", "net-1", "--pxe-disabled")
    stored = site.get(f"/v1/ports/{port}")
    assert (stored["address"], stored["physical_network"], stored["pxe_enabled"]) == (address, "net-1", False)
    site.baremetal("port", "set", port, "--node", second, "--extra", "slot=3")
    assert site.get(f"/v1/ports/{port}")["node_uuid"] == second
    site.baremetal("port", "unset", port, "--physical-network", "--extra", "slot")
    stored = site.get(f"/v1/ports/{port}")
    assert stored["physical_network"] is None
    assert stored["extra"] == {}


def test_a_deleted_port_is_gone_and_its_mac_is_free_again(site: Site) -> None:
    uuid, address = site.enroll(site.machine()), mac()
    port = site.baremetal("port", "create", address, "--node", uuid, "-f", "json").json()["uuid"]
    assert f"Deleted port {port}" in site.baremetal("port", "delete", port).out
    assert not site.exists(f"/v1/ports/{port}")
    site.baremetal("port", "create", address, "--node", uuid)


def addresses(site: Site, *options: str) -> set[str]:
    return set(site.baremetal("port", "list", *options, "-f", "value", "-c", "address").out.split())
