"""Data that contradicts the node's last inspection waits for approval, whoever sends it."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from ferroscope.config.options import InspectorSettings
from ferroscope.core.states import Event
from ferroscope_client.core.states import State
from tests.api import working
from tests.api.service import Service, callback_body, caller
from tests.support import examples

BOARD = {"system_vendor": {"serial_number": "SN-OLD-1"}}
OTHER = {"system_vendor": {"serial_number": "SN-NEW-2"}}
SOURCE = "198.51.100.66"


class Site:
    """A service with a real worker, and a node whose machine has been inspected once."""

    def __init__(self, url: str, **inspector: Any) -> None:
        self.service = Service(url, sections={"inspector": InspectorSettings(**inspector)})
        self.node = self.service.enrol()
        self.mac = self.service.wait(self.node)
        self.worker = working.worker(self.service)
        answer = self.call(self.body(BOARD))
        assert caller(answer) == self.node
        self.first: dict[str, Any] = answer.json
        self.work()
        assert self.state is State.FINISHED
        self.inspect()

    def inspect(self) -> None:
        self.service.wait(self.node, mac=self.mac)

    def body(self, vendor: dict[str, Any], *macs: str) -> dict[str, Any]:
        return callback_body(self.mac, *macs, **vendor)

    def call(self, body: Any, *, source: str = SOURCE) -> Any:
        return self.service.call_back(body, remote_addr=source)

    def work(self) -> None:
        working.work(self.service, self.node, self.worker)

    @property
    def state(self) -> State:
        return self.service.node(self.node).state

    @property
    def inbox(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.service.bare_metal.get(
            "/v1/nodes?inbox=true&fields=uuid,driver_internal_info"
        ).json["nodes"]
        return found

    @property
    def serial(self) -> str:
        inventory = self.service.bare_metal.get(f"/v1/nodes/{self.node}/inventory").json["inventory"]
        return str(inventory["system_vendor"]["serial_number"])

    def steps(self) -> list[str]:
        entries = self.service.bare_metal.get(f"/v1/nodes/{self.node}/timeline").json["inspections"][0]["entries"]
        return [entry["step"] for entry in entries]


@pytest.fixture
def site(sqlite_url: str) -> Site:
    return Site(sqlite_url)


def test_the_same_machine_is_not_held(site: Site) -> None:
    assert site.call(site.body(BOARD, examples.mac())).status_code == 202
    site.work()
    assert (site.state, site.inbox) == (State.FINISHED, [])


def test_another_serial_number_is_held_with_what_differs_and_who_sent_it(site: Site) -> None:
    same, other = site.call(site.body(OTHER)), site.call(site.body(OTHER))
    assert caller(same) == caller(other) == site.node
    assert same.json.keys() == other.json.keys() == site.first.keys()  # the machine learns nothing
    site.work()
    assert site.state is State.WAITING
    (node,) = site.inbox
    held = node["driver_internal_info"]["held"]
    assert held["source"] == SOURCE
    assert held["differences"] == [{"what": "serial", "before": "SN-OLD-1", "now": "SN-NEW-2"}]
    assert "held" in site.steps()
    assert site.serial == "SN-OLD-1"
    problems = site.service.bare_metal.get("/v1/status").json["problems"]
    assert "inbox" in {problem["code"] for problem in problems}


def test_held_data_does_not_time_out(site: Site) -> None:
    site.call(site.body(OTHER))
    inspection = site.service.store.read(lambda tx: tx.inspections.get(str(tx.nodes.get(site.node).inspection)))
    assert inspection.clock_since is None
    assert inspection.digest is not None


def test_a_replaced_mainboard_is_approved_by_one_call(site: Site) -> None:
    site.call(site.body(OTHER))
    assert site.service.bare_metal.post(f"/v1/nodes/{site.node}/approve").status_code == 204
    site.work()
    assert (site.state, site.inbox, site.serial) == (State.FINISHED, [], "SN-NEW-2")
    assert "approved" in site.steps()
    site.inspect()  # from now on it is this machine
    site.call(site.body(OTHER))
    site.work()
    assert site.state is State.FINISHED
    site.inspect()
    site.call(site.body(BOARD))
    assert len(site.inbox) == 1


def test_rejected_data_is_dropped_and_fails_the_inspection(site: Site) -> None:
    site.call(site.body(OTHER))
    assert site.service.bare_metal.post(f"/v1/nodes/{site.node}/reject").status_code == 204
    site.work()
    node = site.service.node(site.node)
    assert (node.state, site.inbox) == (State.ERROR, [])
    assert "data-rejected" in str(node.last_error)
    assert "SN-NEW-2" in str(node.last_error)
    # There is nothing left that could be processed after all.
    assert site.service.bare_metal.post(f"/v1/nodes/{site.node}/approve").status_code == 409
    assert site.service.bare_metal.post(f"/v1/nodes/{site.node}/inventory/reapply").status_code == 202
    site.work()
    assert site.serial == "SN-OLD-1"


def test_the_right_machine_may_still_call_and_takes_precedence(site: Site) -> None:
    site.call(site.body(OTHER))
    assert site.call(site.body(BOARD), source="192.0.2.7").status_code == 202
    assert site.inbox == []
    site.work()
    assert (site.state, site.serial) == (State.FINISHED, "SN-OLD-1")


def test_contradicting_data_after_the_right_one_does_not_end_the_inspection(site: Site) -> None:
    assert site.call(site.body(BOARD)).status_code == 202
    assert site.call(site.body(OTHER)).status_code == 404
    assert "callback-refused" in site.steps()
    site.work()
    assert (site.state, site.serial) == (State.FINISHED, "SN-OLD-1")


def test_what_an_operator_approves_cannot_be_exchanged_meanwhile(site: Site) -> None:
    site.call(site.body(OTHER))
    assert site.call(site.body({"system_vendor": {"serial_number": "SN-EVIL-3"}})).status_code == 404
    site.service.bare_metal.post(f"/v1/nodes/{site.node}/approve")
    site.work()
    assert site.serial == "SN-NEW-2"


@pytest.mark.parametrize("verb", ["abort", "timeout"])
def test_a_hold_ends_with_its_inspection(site: Site, verb: str) -> None:
    site.call(site.body(OTHER))
    if verb == "abort":
        target = {"target": "abort"}
        assert site.service.bare_metal.put(f"/v1/nodes/{site.node}/states/provision", target).status_code == 202
        site.work()
    else:
        site.service.step(site.node, Event.TIMEOUT)
    assert (site.state, site.inbox) == (State.ERROR, [])
    assert "held" not in site.service.node(site.node).internal
    assert site.service.bare_metal.post(f"/v1/nodes/{site.node}/approve").status_code == 409
    site.inspect()


def test_it_can_be_switched_off(sqlite_url: str) -> None:
    site = Site(sqlite_url, hold_contradicting_data=False)
    site.call(site.body(OTHER))
    site.work()
    assert (site.state, site.serial) == (State.FINISHED, "SN-NEW-2")


def test_a_machine_in_use_that_reports_other_hardware_is_held_too(sqlite_url: str) -> None:
    site = Site(sqlite_url, permit_active=True)
    site.call(site.body(BOARD))
    site.work()
    target = {"target": "provide"}
    assert site.service.bare_metal.put(f"/v1/nodes/{site.node}/states/provision", target).status_code == 202
    assert site.call(site.body(OTHER)).status_code == 202
    site.work()
    assert (site.state, len(site.inbox), site.serial) == (State.ENROLLING, 1, "SN-OLD-1")
    site.service.bare_metal.post(f"/v1/nodes/{site.node}/approve")
    site.work()
    node = site.service.node(site.node)
    assert (site.state, str(node.provision_state), site.serial) == (State.FINISHED, "available", "SN-NEW-2")


def test_the_system_uuid_of_the_collector_extra_hardware_counts(site: Site) -> None:
    site.call(site.body(BOARD) | {"data": [["system", "product", "uuid", "4c4c4544-0042-3510-8054-b7c04f4d3132"]]})
    site.work()
    site.inspect()
    site.call(site.body(BOARD) | {"data": [["system", "product", "uuid", "11111111-2222-4333-8444-555555555555"]]})
    (node,) = site.inbox
    assert [one["what"] for one in node["driver_internal_info"]["held"]["differences"]] == ["uuid"]


def test_the_right_machine_gets_the_token_that_a_held_one_had(site: Site) -> None:
    def heartbeat(token: str) -> int:
        body = {"callback_url": "http://192.0.2.7:9999", "agent_token": token}
        status: int = site.service.bare_metal.post(f"/v1/heartbeat/{site.node}", body).status_code
        return status

    call = partial(site.service.call_back, version="1.84")
    stranger = call(site.body(OTHER)).json["config"]["agent_token"]
    right = call(site.body(BOARD)).json["config"]["agent_token"]
    assert len({stranger, right, "******"}) == 3
    assert (heartbeat(stranger), heartbeat(right)) == (404, 202)


@pytest.mark.parametrize("after", ["approval", "the right machine", "rejection"])
def test_a_callback_may_be_repeated_whatever_became_of_the_hold(site: Site, after: str) -> None:
    for _ in range(2):
        assert caller(site.call(site.body(OTHER))) == site.node
    if after == "the right machine":
        for _ in range(2):
            assert caller(site.call(site.body(BOARD))) == site.node
    else:
        verb = "approve" if after == "approval" else "reject"
        assert site.service.bare_metal.post(f"/v1/nodes/{site.node}/{verb}").status_code == 204
    site.work()
    last = site.body(BOARD if after == "the right machine" else OTHER)
    assert caller(site.call(last)) == site.node
    assert site.state is (State.ERROR if after == "rejection" else State.FINISHED)
