"""What ``baremetal`` tells an operator when the service refuses: exit code 1 and a message to act on."""

from __future__ import annotations

from uuid import uuid4

from tests.system.clients.site import Site


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


def test_a_conflict_is_tried_again_as_often_as_the_operator_wants(site: Site) -> None:
    machine = site.machine()
    uuid = site.enroll(machine, state="enroll")
    words = ["--max-retries", "1", "--retry-interval", "1", "node", "provide", uuid]
    done = site.baremetal(*words, code=1)
    assert "Attempt 2 of 2" in done.err
