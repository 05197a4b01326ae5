"""python-ironic-inspector-client: its Python API, against the Introspection API's own port."""

from __future__ import annotations

import json

import pytest

from tests.support.examples import mac
from tests.support.processes import until
from tests.system.clients.environment import ClientError
from tests.system.clients.site import Site


@pytest.mark.parametrize("version", ["1.0", "1.13", "1.18"])
def test_the_versions_are_negotiated(site: Site, version: str) -> None:
    assert site.call("inspector.versions", version=version) == [[1, 0], [1, 18]]


def test_a_version_that_the_service_does_not_have_is_refused(site: Site) -> None:
    with pytest.raises(ClientError, match="supported range is") as failure:
        site.call("inspector.versions", version="1.99")
    assert failure.value.kind == "VersionNotSupported"


@pytest.mark.parametrize("version", ["1.0", "1.18"])
def test_machines_are_introspected_and_waited_for(site: Site, version: str) -> None:
    machines = [site.machine(), site.machine()]
    nodes = [site.enroll(machine) for machine in machines]
    finished = site.call("inspector.introspect", nodes=nodes, version=version)
    assert set(finished) == set(nodes)
    for machine, node in zip(machines, nodes, strict=True):
        status = finished[node]
        assert status["uuid"] == node
        assert status["finished"] is True
        assert status["state"] == "finished"
        assert status["error"] is None
        assert status["finished_at"] >= status["started_at"]
        assert status["links"][0]["href"].endswith(f"/v1/introspection/{node}")
        assert site.count(machine, "pxe_boots") == 1
        assert site.node(node)["provision_state"] == "manageable"


def test_a_failed_introspection_is_finished_with_its_error(site: Site) -> None:
    node = site.enroll(site.machine("ramdisk-error"))
    status = site.call("inspector.introspect", nodes=[node])[node]
    assert status["finished"] is True
    assert status["state"] == "error"
    assert "no disks were found" in status["error"]


def test_a_running_introspection_is_shown_and_waited_for_in_vain_and_aborted(site: Site) -> None:
    machine = site.machine("timeout")
    node = site.enroll(machine)
    site.call("inspector.start", node=node)
    site.await_state(node, "inspect wait")
    status = site.call("inspector.get_status", node=node)
    assert (status["finished"], status["state"], status["finished_at"]) == (False, "waiting", None)
    with pytest.raises(ClientError, match=node) as failure:
        site.call("inspector.give_up_waiting", node=node)
    assert failure.value.kind == "WaitTimeoutError"
    assert site.call("inspector.abort", node=node) == 202
    status = site.call("inspector.wait", node=node)
    assert status["state"] == "error"
    assert status["error"] == "Canceled by operator"
    assert until(lambda: site.power_of(machine) == "power off")


def test_the_operator_may_boot_the_ramdisk_on_his_own(site: Site) -> None:
    address = mac()
    node = site.enroll_fake(address)
    site.call("inspector.start", node=node, manage_boot=False)
    site.await_state(node, "inspect wait")
    assert site.node(node)["power_state"] is None  # nobody has asked the BMC
    site.call("ramdisk.call_back", api="introspection", bodies=[[address]])
    assert site.call("inspector.wait", node=node)["state"] == "finished"


def test_the_statuses_are_listed_newest_first_and_page_by_page(site: Site) -> None:
    nodes = [site.enroll(site.machine()) for _ in range(3)]
    for node in nodes:
        site.inspect(node)
    newest = [status["uuid"] for status in site.call("inspector.list_statuses")][:3]
    assert newest == nodes[::-1]
    assert [status["uuid"] for status in site.call("inspector.list_statuses", limit=1)] == newest[:1]
    page = site.call("inspector.list_statuses", marker=newest[0], limit=1)
    assert [status["uuid"] for status in page] == newest[1:2]


def test_the_data_is_fetched_processed_unprocessed_and_raw(site: Site) -> None:
    machine = site.machine()
    node = site.enroll(machine)
    site.inspect(node)
    sent = machine.sends()
    processed = site.call("inspector.get_data", node=node)
    assert processed["inventory"] == sent["inventory"]
    assert machine.mac in processed["macs"]
    assert machine.mac in [nic["mac_address"] for nic in processed["all_interfaces"].values()]
    assert machine.mac in [nic["mac"] for nic in processed["all_interfaces"].values()]
    assert site.call("inspector.get_data", node=node, processed=False) == sent
    assert json.loads(site.call("inspector.get_data", node=machine.name, raw=True)) == processed


def test_stored_data_is_processed_again(site: Site) -> None:
    machine = site.machine()
    node = site.enroll(machine)
    site.inspect(node)
    (port,) = site.get(f"/v1/nodes/{node}/ports")["ports"]
    site.request("DELETE", f"/v1/ports/{port['uuid']}")
    assert site.call("inspector.reprocess", node=node) == 202
    assert until(lambda: site.get(f"/v1/ports?address={machine.mac}")["ports"] != [])
    assert until(lambda: site.call("inspector.get_status", node=node)["state"] == "finished")
    assert site.node(node)["provision_state"] == "manageable"
    assert site.count(machine, "boots") == 1


def test_given_data_is_processed_in_place_of_the_stored(site: Site) -> None:
    machine = site.machine()
    node = site.enroll(machine)
    site.inspect(node)
    data = machine.sends()
    data["inventory"]["cpu"]["architecture"] = "riscv64"
    assert site.call("inspector.reprocess_with", node=node, data=data) == 202
    assert until(lambda: site.node(node)["properties"]["cpu_arch"] == "riscv64")
    assert site.call("inspector.wait", node=node)["state"] == "finished"
    assert site.call("inspector.get_data", node=node, processed=False) == data


def test_what_was_never_introspected_has_neither_status_nor_data(site: Site) -> None:
    node = site.enroll(site.machine())
    for function in ("get_status", "get_data", "abort", "reprocess"):
        with pytest.raises(ClientError, match="has never been introspected"):
            site.call(f"inspector.{function}", node=node)
