"""openstacksdk: its ``baremetal_introspection`` proxy, without Keystone."""

from __future__ import annotations

import pytest

from tests.support.examples import uuid
from tests.system.clients.environment import ClientError
from tests.system.clients.site import Site


def test_an_introspection_is_started_waited_for_and_its_data_fetched(site: Site) -> None:
    machine = site.machine()
    node = site.enroll(machine)
    result = site.call("sdk.introspect", node=node)
    assert result["begun"]["id"] == node
    assert result["begun"]["is_finished"] is False
    assert result["begun"]["finished_at"] is None
    assert result["ended"]["id"] == node
    assert result["ended"]["state"] == "finished"
    assert result["ended"]["is_finished"] is True
    assert result["ended"]["error"] is None
    sent = machine.sends()
    assert result["processed"]["inventory"] == sent["inventory"]
    assert machine.mac in result["processed"]["macs"]
    assert result["unprocessed"] == sent
    assert site.node(node)["provision_state"] == "manageable"
    assert site.count(machine, "pxe_boots") == 1


def test_a_running_introspection_is_aborted(site: Site) -> None:
    machine = site.machine("timeout")
    node = site.enroll(machine)
    site.call("sdk.start_introspection", node=node)
    site.await_state(node, "inspect wait")
    assert site.call("sdk.get_introspection", node=machine.name)["state"] == "waiting"
    aborted = site.call("sdk.abort_introspection", node=node)
    assert aborted["state"] == "error"
    assert aborted["is_finished"] is True
    assert aborted["error"] == "Canceled by operator"
    assert site.node(node)["provision_state"] == "inspect failed"


def test_a_failed_introspection_is_raised_with_its_reason(site: Site) -> None:
    node = site.enroll(site.machine("ramdisk-error"))
    site.call("sdk.start_introspection", node=node)
    with pytest.raises(ClientError, match="no disks were found") as failure:
        site.call("sdk.wait_for_introspection", node=node)
    assert failure.value.kind == "ResourceFailure"


def test_the_operator_may_boot_the_ramdisk_on_his_own(site: Site) -> None:
    machine = site.machine()
    node = site.enroll(machine)
    site.call("sdk.start_introspection", node=node, manage_boot=False)
    site.await_state(node, "inspect wait")
    assert site.count(machine, "boots") == 0


def test_introspections_are_listed_newest_first_and_page_by_page(site: Site) -> None:
    nodes = [site.enroll(site.machine()) for _ in range(3)]
    for node in nodes:
        site.inspect(node)
    listed = [item["id"] for item in site.call("sdk.list_introspections")]
    assert [node for node in listed if node in nodes] == nodes[::-1]
    assert listed[:3] == nodes[::-1]
    assert [item["id"] for item in site.call("sdk.list_introspections", limit=2)][:3] == nodes[::-1]


def test_what_was_never_introspected_is_not_found(site: Site) -> None:
    node = site.enroll(site.machine())
    for ident in (node, uuid()):
        for function in ("sdk.get_introspection", "sdk.get_introspection_data"):
            with pytest.raises(ClientError) as failure:
                site.call(function, node=ident)
            assert failure.value.kind == "NotFoundException"
