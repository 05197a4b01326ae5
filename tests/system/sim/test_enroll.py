"""A fleet is enrolled in the real service, again and again, and each of its outcomes comes true there."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest

from ferroscope_sim.client import FleetClient, FleetStatus
from ferroscope_sim.enroll import BareMetalError, enroll
from ferroscope_sim.inventory import bmc_address, pxe_mac
from ferroscope_sim.model import FleetSettings, SimMember, roster
from ferroscope_sim.outcomes import TABLE, Outcome
from ferroscope_sim.run import FleetThread
from tests.support.processes import until
from tests.support.real_service import Api, service


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with service(tmp_path_factory.mktemp("service")) as running:
        yield running


def test_enrolled_machines_are_nodes_with_their_pxe_port_and_manageable(api: Api) -> None:
    settings = FleetSettings(nodes=20, first=1000)
    with FleetThread(settings) as fleet:
        done = enroll(roster(settings), api_url=api.url, sim_address=fleet.address)
        assert done.created == tuple(f"sim-{number}" for number in range(1000, 1020))
        assert (done.existing, done.failed) == ((), {})
        node = api.node("sim-1007")
        assert (node["provision_state"], node["driver"], node["power_state"]) == ("manageable", "sim", "power off")
        assert node["driver_info"] == {
            "sim_address": fleet.address,
            "sim_node": "sim-1007",
            "sim_bmc_address": bmc_address(1007),
        }
        ports = api.call("GET", "/v1/nodes/sim-1007/ports")["ports"]
        assert [port["address"] for port in ports] == [pxe_mac(1007)]


def test_enrolling_again_changes_nothing(api: Api) -> None:
    settings = FleetSettings(nodes=3, first=1100)
    with FleetThread(settings) as fleet:
        for _ in range(2):
            done = enroll(roster(settings), api_url=api.url, sim_address=fleet.address)
        assert (done.created, len(done.existing), done.failed) == ((), 3, {})
        node = api.node("sim-1101")
        assert node["updated_at"] == api.node("sim-1101")["updated_at"]
        assert node["provision_state"] == "manageable"


def test_a_simulator_that_moved_is_corrected(api: Api) -> None:
    settings = FleetSettings(nodes=1, first=1200)
    for _ in range(2):
        with FleetThread(settings) as fleet:
            enroll(roster(settings), api_url=api.url, sim_address=fleet.address)
            assert api.node("sim-1200")["driver_info"]["sim_address"] == fleet.address


def test_machines_of_a_simulator_that_runs_are_not_taken_away_from_it(api: Api) -> None:
    settings = FleetSettings(nodes=2, first=1250)
    with FleetThread(settings) as first:
        enroll(roster(settings), api_url=api.url, sim_address=first.bmcs)
        more = FleetSettings(nodes=3, first=1250)
        with FleetThread(more) as second:
            done = enroll(roster(more), api_url=api.url, sim_address=second.bmcs)
        assert (done.created, set(done.failed)) == (("sim-1252",), {"sim-1250", "sim-1251"})
        assert first.address.partition(":")[2] in done.failed["sim-1250"]
        assert api.node("sim-1250")["driver_info"]["sim_address"] == first.bmcs["sim-1250"]


def test_a_bmc_of_another_node_is_reported_and_the_others_go_on(api: Api) -> None:
    with FleetThread(FleetSettings(nodes=0, special=("sim-one-1", "sim-two-1", "sim-three-1"))) as fleet:
        enroll([SimMember("sim-one-1", 1300)], api_url=api.url, sim_address=fleet.address)
        done = enroll(
            [SimMember("sim-two-1", 1300), SimMember("sim-three-1", 1301)], api_url=api.url, sim_address=fleet.address
        )
        assert done.created == ("sim-three-1",)
        assert "is that of node sim-one-1" in done.failed["sim-two-1"]


def test_a_machine_whose_bmc_cannot_be_verified_is_reported(api: Api) -> None:
    settings = FleetSettings(nodes=1, first=1400, special=("sim-bmc-garbage-1400",))
    with FleetThread(settings) as fleet:
        done = enroll(roster(settings), api_url=api.url, sim_address=fleet.address)
        assert done.created == ("sim-1400",)
        assert list(done.failed) == ["sim-bmc-garbage-1400"]


def test_what_the_api_refuses_is_reported_in_its_words(api: Api) -> None:
    done = enroll([SimMember("not a name", 1500)], api_url=api.url, sim_address="127.0.0.1:1")
    assert re.search(r"POST /v1/nodes: 400 .*name", done.failed["not a name"])


def test_without_an_api_there_is_one_error() -> None:
    with pytest.raises(BareMetalError, match=r"http://127\.0\.0\.1:1"):
        enroll([SimMember("sim-1", 1)], api_url="http://127.0.0.1:1/", sim_address="127.0.0.1:1")


class Ending:
    """What became of the inspections of one machine for each outcome."""

    def __init__(self, nodes: dict[str, dict[str, object]], status: FleetStatus) -> None:
        self.nodes = nodes
        self.status = status

    def of(self, outcome: Outcome) -> str:
        node = self.nodes[f"sim-{outcome.name}-1"]
        if node["provision_state"] == "manageable":
            return "finished"
        reason = re.search(r"\(([a-z-]+)\)\. ", str(node["last_error"]))
        return f"error: {reason[1]}" if reason else str(node)


@pytest.fixture(scope="module")
def ending(api: Api) -> Ending:
    special = tuple(f"sim-{outcome.name}-1" for outcome in TABLE)
    settings = FleetSettings(
        nodes=0,
        special=special,
        first=2000,
        callback_url=f"{api.url}/v1/continue_inspection",
        boot_delay=0.2,
        boot_jitter=0.1,
        time_scale=0.1,
        bmc_faults=False,
    )
    with FleetThread(settings) as fleet:
        enroll(roster(settings), api_url=api.url, sim_address=fleet.bmcs)
        with FleetClient(fleet.address) as client:
            client.faults(on=True)
        for name in special:
            api.call("PUT", f"/v1/nodes/{name}/states/provision", {"target": "inspect"})

        def nodes() -> dict[str, dict[str, object]]:
            page = api.call("GET", "/v1/nodes?fields=name,provision_state,last_error")
            return {node["name"]: node for node in page["nodes"] if node["name"] in special}

        def busy() -> list[str]:
            time.sleep(0.1)
            return [name for name, node in nodes().items() if node["provision_state"] in ("inspecting", "inspect wait")]

        assert until(lambda: not busy()), busy()
        with FleetClient(fleet.address) as client:
            return Ending(nodes(), client.status())


@pytest.mark.parametrize("outcome", TABLE, ids=lambda outcome: outcome.name)
def test_an_inspection_ends_as_the_outcome_says(ending: Ending, outcome: Outcome) -> None:
    assert ending.of(outcome) in re.findall(r"finished|error: [a-z-]+", outcome.ends)


def test_no_machine_was_powered_on_twice(ending: Ending) -> None:
    assert {name for name, node in ending.status.nodes.items() if node.counters.power_ons > 1} == set()
