"""``openstack baremetal introspection``: the inspector client's own commands, without Keystone."""

from __future__ import annotations

import json
from typing import NamedTuple

import pytest

from tests.support.processes import until
from tests.system.clients.environment import Running
from tests.system.clients.site import Machine, Site, ended

COMMAND = ("baremetal", "introspection")


class Wait(NamedTuple):
    """A run of ``start --wait`` for these machines."""

    machines: list[Machine]
    nodes: list[str]
    run: Running


@pytest.fixture(scope="module")
def wait(site: Site) -> Wait:
    """Start one that waits for two machines, beside the other tests: it looks every ten seconds."""
    machines = [site.machine(), site.machine("ramdisk-error")]
    nodes = [site.enroll(machine) for machine in machines]
    return Wait(machines, nodes, site.begin_openstack(*COMMAND, "start", "--wait", *nodes, "-f", "json"))


def test_the_status_is_shown_and_listed(site: Site, wait: Wait) -> None:
    machine = site.machine()
    node = site.enroll(machine)
    site.inspect(node)
    shown = site.openstack(*COMMAND, "status", machine.name, "-f", "json").json()
    assert shown["uuid"] == node
    assert shown["state"] == "finished"
    assert shown["finished"] is True
    (row,) = [row for row in site.openstack(*COMMAND, "list", "-f", "json").json() if row["UUID"] == node]
    assert row == {
        "UUID": node,
        "Started at": shown["started_at"],
        "Finished at": shown["finished_at"],
        "Error": None,
    }
    assert len(site.openstack(*COMMAND, "list", "--limit", "1", "-f", "json").json()) == 1


def test_the_data_is_saved_and_processed_again(site: Site) -> None:
    machine = site.machine()
    node = site.enroll(machine)
    site.inspect(node)
    file = site.clients.home / f"{machine.name}.json"
    site.openstack(*COMMAND, "data", "save", node, "--file", str(file))
    assert json.loads(file.read_text())["inventory"] == machine.sends()["inventory"]
    assert json.loads(site.openstack(*COMMAND, "data", "save", node, "--unprocessed").out) == machine.sends()
    (port,) = site.get(f"/v1/nodes/{node}/ports")["ports"]
    site.request("DELETE", f"/v1/ports/{port['uuid']}")
    site.openstack(*COMMAND, "reprocess", node)
    assert until(lambda: site.get(f"/v1/ports?address={machine.mac}")["ports"] != [])


def test_the_interfaces_are_listed_with_their_mac_addresses(site: Site) -> None:
    machine = site.machine()
    node = site.enroll(machine)
    site.inspect(node)
    rows = site.openstack(*COMMAND, "interface", "list", node, "-f", "json").json()
    (row,) = [row for row in rows if row["MAC Address"] == machine.mac]
    shown = site.openstack(*COMMAND, "interface", "show", node, row["Interface"], "-f", "json").json()
    assert shown["mac"] == machine.mac


def test_an_introspection_is_aborted(site: Site) -> None:
    node = site.enroll(site.machine("timeout"))
    site.openstack(*COMMAND, "start", node)
    site.await_state(node, "inspect wait")
    site.openstack(*COMMAND, "abort", node)
    site.await_state(node, "inspect failed")
    assert site.openstack(*COMMAND, "status", node, "-f", "json").json()["error"] == "Canceled by operator"


def test_the_refusals_say_why(site: Site) -> None:
    node = site.enroll(site.machine())
    assert "has never been introspected" in site.openstack(*COMMAND, "status", node, code=1).err
    assert "could not be found" in site.openstack(*COMMAND, "start", "no-such-node", code=1).err


def test_introspections_are_started_and_waited_for(site: Site, wait: Wait) -> None:
    rows = ended(wait.run.done(), 0).json()
    errors = {row["UUID"]: row["Error"] for row in rows}
    assert set(errors) == set(wait.nodes)
    assert errors[wait.nodes[0]] is None
    assert "no disks were found" in errors[wait.nodes[1]]
    assert [site.node(node)["provision_state"] for node in wait.nodes] == ["manageable", "inspect failed"]
    assert [site.count(machine, "pxe_boots") for machine in wait.machines] == [1, 1]
