"""``baremetal``: an inspection from the enrolment to the inventory, and what an operator may do meanwhile.

``inspect --wait`` looks every ten seconds, so these waits run side by side.
"""

from __future__ import annotations

import json
from typing import NamedTuple

import pytest

from tests.support.processes import until
from tests.system.clients.environment import Running
from tests.system.clients.site import Machine, Site, ended


class Waits(NamedTuple):
    """Runs of ``inspect --wait`` that were all started together."""

    machines: dict[str, Machine]
    uuids: dict[str, str]
    runs: dict[str, Running]


@pytest.fixture(scope="module")
def waits(site: Site) -> Waits:
    machines = {"good": site.machine(), "failing": site.machine("ramdisk-error"), "silent": site.machine("timeout")}
    uuids = {name: site.enroll(machine) for name, machine in machines.items()}
    seconds = {"good": "60", "failing": "60", "silent": "5"}
    runs = {
        name: site.begin_baremetal("node", "inspect", "--wait", seconds[name], uuid) for name, uuid in uuids.items()
    }
    return Waits(machines, uuids, runs)


def test_the_installed_command_takes_a_machine_from_nothing_to_its_inventory(site: Site, waits: Waits) -> None:
    machine = site.machine()

    def run(*words: str) -> str:
        return ended(site.clients.program("baremetal", *site.standalone(), *words), 0).out

    driver_info = [word for key, value in machine.driver_info.items() for word in ("--driver-info", f"{key}={value}")]
    run("node", "create", "--driver", "sim", "--name", machine.name, *driver_info)
    uuid = json.loads(run("node", "show", machine.name, "-f", "json"))["uuid"]
    run("port", "create", machine.mac, "--node", uuid)
    assert "Waiting for provision state manageable" in run("node", "manage", "--wait", "30", machine.name)
    run("node", "inspect", machine.name)
    site.await_state(uuid, "manageable")
    saved = json.loads(run("node", "inventory", "save", machine.name))
    assert saved["inventory"] == machine.sends()["inventory"]
    assert machine.mac in run("port", "list", "--node", machine.name)
    run("node", "delete", machine.name)
    assert not site.exists(f"/v1/nodes/{uuid}")


def test_waiting_ends_well_when_the_inspection_does(site: Site, waits: Waits) -> None:
    done = ended(waits.runs["good"].done(), 0)
    machine, uuid = waits.machines["good"], waits.uuids["good"]
    assert f"Waiting for provision state manageable on node(s) {uuid}" in done.out
    node = site.node(uuid)
    assert node["provision_state"] == "manageable"
    assert node["last_error"] is None
    assert node["inspection_finished_at"] >= node["inspection_started_at"]
    assert node["properties"]["cpu_arch"] == machine.sends()["inventory"]["cpu"]["architecture"]
    assert node["power_state"] == site.power_of(machine) == "power off"
    assert site.count(machine, "pxe_boots") == 1


def test_waiting_fails_with_the_reason_when_the_inspection_does(site: Site, waits: Waits) -> None:
    done = ended(waits.runs["failing"].done(), 1)
    assert "It's in state inspect failed, and has error:" in done.err
    assert "no disks were found" in done.err
    assert "ramdisk-error" in done.err
    assert site.node(waits.uuids["failing"])["provision_state"] == "inspect failed"


def test_waiting_ends_after_the_time_that_the_operator_gives_it(site: Site, waits: Waits) -> None:
    done = ended(waits.runs["silent"].done(), 1)
    assert "failed to reach state manageable in 5 seconds" in done.err
    assert site.node(waits.uuids["silent"])["provision_state"] == "inspect wait"


def test_a_bmc_that_cannot_be_reached_fails_manage_with_the_reason(site: Site) -> None:
    machine = site.machine("bmc-dead")
    uuid = site.enroll(machine, state="enroll")
    done = site.baremetal("node", "manage", "--wait", "60", uuid, code=1)
    assert "enroll" in done.err
    node = site.node(uuid)
    assert node["provision_state"] == "enroll"
    assert "bmc-unreachable" in node["last_error"]


def test_the_inventory_is_saved_to_a_file_exactly_as_the_ramdisk_sent_it(site: Site) -> None:
    machine = site.machine()
    uuid = site.enroll(machine)
    site.inspect(uuid)
    file = site.clients.home / f"{machine.name}.json"
    assert site.baremetal("node", "inventory", "save", uuid, "--file", str(file)).out == ""
    saved = json.loads(file.read_text())
    assert saved == site.get(f"/v1/nodes/{uuid}/inventory")
    assert saved["inventory"] == machine.sends()["inventory"]
    assert machine.mac in saved["plugin_data"]["macs"]


def test_an_aborted_inspection_fails_and_can_be_started_again(site: Site) -> None:
    machine = site.machine("timeout")
    uuid = site.enroll(machine)
    site.inspect(uuid, until="inspect wait")
    assert site.power_of(machine) == "power on"
    site.baremetal("node", "abort", uuid)
    site.await_state(uuid, "inspect failed")
    assert "aborted" in site.node(uuid)["last_error"]
    assert until(lambda: site.power_of(machine) == "power off")
    site.baremetal("node", "inspect", uuid)
    site.await_state(uuid, "inspect wait")
    assert site.node(uuid)["last_error"] is None
    site.baremetal("node", "abort", uuid)
    site.await_state(uuid, "inspect failed")
    site.baremetal("node", "manage", "--wait", "30", uuid)
    assert site.node(uuid)["provision_state"] == "manageable"


def test_a_node_is_provided_when_it_is_manageable_and_managed_again(site: Site) -> None:
    uuid = site.enroll(site.machine())
    site.baremetal("node", "provide", "--wait", "30", uuid)
    assert site.node(uuid)["provision_state"] == "available"
    done = site.baremetal("node", "inspect", uuid, code=1)
    assert "(HTTP 409)" in done.err
    site.baremetal("node", "manage", "--wait", "30", uuid)
    assert site.node(uuid)["provision_state"] == "manageable"


def test_the_history_tells_each_step_of_an_inspection(site: Site) -> None:
    machine = site.machine("ramdisk-error")
    uuid = site.enroll(machine)
    site.inspect(uuid, until="inspect failed")
    events = site.baremetal("node", "history", "list", uuid, "--long", "-f", "json").json()
    assert [event["created_at"] for event in events] == sorted(event["created_at"] for event in events)
    (failure,) = [event for event in events if event["severity"] == "ERROR"]
    assert "no disks were found" in failure["event"]
    brief = site.baremetal("node", "history", "list", machine.name, "-f", "json").json()
    assert [event["uuid"] for event in brief] == [event["uuid"] for event in events]
    shown = site.baremetal("node", "history", "get", uuid, failure["uuid"], "-f", "json").json()
    assert shown["event"] == failure["event"]
    assert shown["severity"] == "ERROR"
