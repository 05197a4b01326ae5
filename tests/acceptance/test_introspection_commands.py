"""``openstack baremetal introspection``: the inspector client's own commands, without Keystone."""

from __future__ import annotations

import json

from tests.acceptance.site import Site

COMMAND = ("baremetal", "introspection")


def test_an_introspection_is_started_and_waited_for(site: Site) -> None:
    """Its wait looks every ten seconds."""
    machine = site.machine()
    node = site.enroll(machine)
    done = site.openstack(*COMMAND, "start", "--wait", node, "-f", "json")
    assert done.json() == [{"UUID": node, "Error": None}]
    assert site.node(node)["provision_state"] == "manageable"
    assert site.count(machine, "pxe_boots") == 1


def test_the_status_is_shown_and_listed(site: Site) -> None:
    machine = site.machine()
    node = site.enroll(machine)
    site.inspect(node)
    shown = site.openstack(*COMMAND, "status", machine.name, "-f", "json").json()
    assert shown["uuid"] == node
    assert shown["state"] == "finished"
    assert shown["finished"] is True
    (newest,) = site.openstack(*COMMAND, "list", "--limit", "1", "-f", "json").json()
    assert newest == {
        "UUID": node,
        "Started at": shown["started_at"],
        "Finished at": shown["finished_at"],
        "Error": None,
    }


def test_the_data_is_saved_and_processed_again(site: Site) -> None:
    machine = site.machine()
    node = site.enroll(machine)
    site.inspect(node)
    file = site.clients.home / f"{machine.name}.json"
    site.openstack(*COMMAND, "data", "save", node, "--file", str(file))
    assert json.loads(file.read_text())["inventory"] == machine.sends()["inventory"]
    assert json.loads(site.openstack(*COMMAND, "data", "save", node, "--unprocessed").out) == machine.sends()
    site.openstack(*COMMAND, "reprocess", node)
    site.await_state(node, "manageable")


def test_an_introspection_is_aborted(site: Site) -> None:
    node = site.enroll(site.machine("timeout"))
    site.openstack(*COMMAND, "start", node)
    site.await_state(node, "inspect wait")
    site.openstack(*COMMAND, "abort", node)
    site.await_state(node, "inspect failed")
    assert "aborted" in site.openstack(*COMMAND, "status", node, "-f", "json").json()["error"]


def test_the_refusals_say_why(site: Site) -> None:
    node = site.enroll(site.machine())
    assert "has never been introspected" in site.openstack(*COMMAND, "status", node, code=1).err
    assert "could not be found" in site.openstack(*COMMAND, "start", "no-such-node", code=1).err
