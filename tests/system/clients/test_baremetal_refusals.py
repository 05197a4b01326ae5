"""What ``baremetal`` tells an operator when the service refuses: exit code 1 and a message to act on."""

from __future__ import annotations

from uuid import uuid4

from tests.support.examples import mac
from tests.system.clients.site import Site


def test_a_second_node_of_the_same_name_is_a_conflict(site: Site) -> None:
    machine = site.machine()
    uuid = site.enroll(machine)
    done = site.baremetal("node", "create", "--driver", "sim", "--name", machine.name, code=1)
    assert machine.name in done.err
    assert "(HTTP 409)" in done.err
    assert site.node(machine.name)["uuid"] == uuid


def test_an_unknown_node_cannot_be_found(site: Site) -> None:
    unknown = str(uuid4())
    for words in (["show", unknown], ["set", unknown, "--name", "x"], ["manage", unknown], ["power", "on", unknown]):
        done = site.baremetal("node", *words, code=1)
        assert f"Node {unknown} could not be found" in done.err
        assert "(HTTP 404)" in done.err
    done = site.baremetal("node", "delete", "no-such-node", code=1)
    assert "Failed to delete node no-such-node" in done.err


def test_an_illegal_transition_names_the_state_and_what_is_allowed(site: Site) -> None:
    machine = site.machine()
    uuid = site.enroll(machine, state="enroll")
    done = site.baremetal("node", "provide", uuid, code=1)
    assert "inspect, manage" in done.err
    assert "(HTTP 409)" in done.err
    done = site.baremetal("node", "abort", uuid, code=1)
    assert "(HTTP 409)" in done.err
    assert site.node(uuid)["provision_state"] == "enroll"


def test_what_depends_on_the_state_is_refused_in_the_published_words(site: Site) -> None:
    uuid = site.enroll(site.machine())
    done = site.baremetal("node", "set", uuid, "--protected", code=1)
    assert "can only be made protected in provision states 'active' or 'rescue'" in done.err
    done = site.baremetal("node", "set", uuid, "--retired-reason", "old", code=1)
    assert "The retired_reason field can only be set when retired is True" in done.err
    site.baremetal("node", "set", uuid, "--retired", "--retired-reason", "old")
    site.baremetal("node", "unset", uuid, "--retired")
    assert site.node(uuid)["retired_reason"] is None
    done = site.baremetal("node", "set", uuid, "--inspect-interface", "odd", code=1)
    assert "ironic.hardware.interfaces.inspect" in done.err
    done = site.baremetal("node", "list", "--fault", "odd", code=1)
    assert "Unrecognized fault" in done.err
    assert site.baremetal("node", "list", "--provision-state", "active", "-f", "json").json() == []


def test_a_bad_mac_is_refused_with_an_example_of_a_good_one(site: Site) -> None:
    uuid = site.enroll(site.machine())
    done = site.baremetal("port", "create", "not-a-mac", "--node", uuid, code=1)
    assert "not-a-mac" in done.err
    assert "(HTTP 400)" in done.err
    assert len(site.get(f"/v1/nodes/{uuid}/ports")["ports"]) == 1


def test_a_mac_belongs_to_one_port_only(site: Site) -> None:
    machine = site.machine()
    site.enroll(machine)
    other = site.enroll(site.machine())
    done = site.baremetal("port", "create", machine.mac, "--node", other, code=1)
    assert machine.mac in done.err
    assert "(HTTP 409)" in done.err


def test_a_port_needs_a_node_that_exists(site: Site) -> None:
    done = site.baremetal("port", "create", mac(), "--node", str(uuid4()), code=1)
    assert "does not exist" in done.err
    assert "(HTTP 400)" in done.err


def test_a_driver_that_is_not_enabled_is_refused_with_those_that_are(site: Site) -> None:
    done = site.baremetal("node", "create", "--driver", "magic", code=1)
    assert "(HTTP 400)" in done.err
    assert all(name in done.err for name in ("magic", "fake-hardware", "ipmi", "redfish", "sim"))
    done = site.baremetal("driver", "show", "magic", code=1)
    assert "(HTTP 404)" in done.err


def test_a_node_under_inspection_is_not_deleted(site: Site) -> None:
    uuid = site.enroll(site.machine("timeout"))
    site.inspect(uuid, until="inspect wait")
    done = site.baremetal("node", "delete", uuid, code=1)
    assert "abort the inspection first" in done.err
    assert site.node(uuid)["provision_state"] == "inspect wait"


def test_a_microversion_that_does_not_exist_is_explained(site: Site) -> None:
    done = site.baremetal("--os-baremetal-api-version", "1.400", "node", "list", code=1)
    assert "1.400" in done.err


def test_a_conflict_is_tried_again_as_often_as_the_operator_wants(site: Site) -> None:
    machine = site.machine()
    uuid = site.enroll(machine, state="enroll")
    words = ["--max-retries", "1", "--retry-interval", "1", "node", "provide", uuid]
    done = site.baremetal(*words, code=1)
    assert "Attempt 2 of 2" in done.err
