"""Inspections that a real Ironic hands over through the inspect interface, and whose results it takes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from ferroscope_sim.inventory import generate, pxe_mac
from tests.nightly.openstack.ironic import campaign
from tests.nightly.openstack.ironic.interface import (
    agreed,
    await_provision,
    enroll,
    handing_over,
    inspect,
    kill_us,
    killed_at_start,
    silent_since,
    start_us,
)
from tests.nightly.openstack.ironic.place import Place, expected
from tests.support import ipmi, redfish
from tests.support.processes import until
from tests.support.speed import slowness


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with handing_over(tmp_path_factory.mktemp("handed-over")) as running:
        yield running


def test_ironic_takes_the_result_of_an_inspection(place: Place) -> None:
    uuid, number = enroll(place, properties={"rack": "7"})
    inspect(place.ironic, uuid)
    place.await_state(uuid, "waiting")
    # Ironic's conductor holds the node for a moment longer.
    assert until(lambda: place.ironic.node(uuid)["reservation"] is None)
    assert place.ironic.node(uuid)["power_state"] == "power on"
    assert place.call_back(number) == 202
    node = await_provision(place, uuid, "manageable")
    assert {name: node["properties"][name] for name in expected(number)} == expected(number)
    assert node["properties"]["rack"] == "7"
    assert (node["power_state"], node["last_error"]) == ("power off", None)
    assert pxe_mac(number) in [port["address"] for port in place.ironic.ports(uuid)]
    assert agreed(place, uuid) is None
    stored = place.ironic.call("GET", f"/v1/nodes/{uuid}/inventory")
    assert stored["inventory"] == msgspec.json.decode(generate(number))["inventory"]
    assert stored["plugin_data"]["valid_interfaces"]


def test_a_failed_inspection_fails_in_ironic_with_the_same_error(place: Place) -> None:
    uuid, number = enroll(place)
    inspect(place.ironic, uuid)
    place.await_state(uuid, "waiting")
    assert place.call_back(number, error="disk 3 is on fire") == 202
    node = await_provision(place, uuid, "inspect failed")
    assert "disk 3 is on fire" in node["last_error"]
    assert agreed(place, uuid) is None


def test_an_abort_in_ironic_aborts_here(place: Place) -> None:
    uuid, _ = enroll(place)
    inspect(place.ironic, uuid)
    place.await_state(uuid, "waiting")
    place.ironic.provision(uuid, "abort", "inspect failed")
    place.await_state(uuid, "error")
    assert place.status(uuid)["error"] == "Canceled by operator"
    assert until(lambda: place.ironic.node(uuid)["power_state"] == "power off")
    assert agreed(place, uuid) is None


def test_a_conductor_that_is_killed_goes_on_where_it_was(place: Place) -> None:
    (uuid, number), (starting, _) = enroll(place), enroll(place)
    for one in (uuid, starting):
        inspect(place.ironic, one)
        place.await_state(one, "waiting")
    place.ironic.kill_all()
    assert place.call_back(number) == 202
    assert until(lambda: place.state(uuid) == "processing")
    killed_at_start(place, starting)
    place.ironic.start()
    place.ironic.wait_answers()
    node = await_provision(place, uuid, "manageable")
    assert node["properties"]["memory_mb"] == expected(number)["memory_mb"]
    assert place.ironic.call("GET", f"/v1/nodes/{uuid}/inventory")["inventory"]
    await_provision(place, starting, "inspect failed")
    place.await_state(starting, "error")
    assert place.status(starting)["error"] == "Canceled by operator"
    assert until(lambda: place.ironic.node(starting)["power_state"] == "power off")


def test_a_service_that_is_killed_goes_on_and_starts_what_was_handed_over_meanwhile(place: Place) -> None:
    (under_way, first), (new, second), (given_up, third) = enroll(place), enroll(place), enroll(place)
    inspect(place.ironic, under_way)
    inspect(place.ironic, given_up)
    place.await_state(under_way, "waiting")
    place.await_state(given_up, "waiting")
    kill_us(place)
    inspect(place.ironic, new)
    assert agreed(place, new)["requested"] is False
    assert until(lambda: agreed(place, given_up)["silent_since"] is not None)
    silent_since(place, given_up, 1.0)  # as if it had been away for all that time
    node = await_provision(place, given_up, "inspect failed")
    assert "unavailable for 600 s" in node["last_error"]
    assert place.ironic.node(under_way)["provision_state"] == "inspect wait"
    start_us(place)
    place.await_state(given_up, "error")  # aborted, now that it can be
    assert place.status(given_up)["error"] == "Canceled by operator"
    place.await_state(new, "waiting")
    for uuid, number in ((under_way, first), (new, second)):
        assert place.call_back(number) == 202
        node = await_provision(place, uuid, "manageable")
        assert node["properties"]["memory_mb"] == expected(number)["memory_mb"]
    assert place.call_back(third) == 404
    assert until(lambda: agreed(place, given_up) is None)


def test_what_ferroscope_refuses_fails_at_once_with_its_reason(place: Place) -> None:
    uuid, _ = enroll(place)
    assert until(lambda: place.node(uuid) is not None)
    users = place.directory / "users"
    known = users.read_text()
    users.write_text("somebody-else:$2b$04$" + "x" * 53 + "\n")
    try:
        assert until(lambda: place.call("GET", "/v1/nodes")[0] == 401)
        place.ironic.call("PUT", f"/v1/nodes/{uuid}/states/provision", {"target": "inspect"})
        node = await_provision(place, uuid, "inspect failed")
    finally:
        users.write_text(known)
        assert until(lambda: place.call("GET", "/v1/nodes")[0] == 200)
    assert "HTTP 401" in node["last_error"]
    assert agreed(place, uuid) is None


def test_machines_of_the_hardware_types_with_this_interface(place: Place, tmp_path: Path) -> None:
    with redfish.emulator(tmp_path / "rack", machines=1) as rack, ipmi.simulator(tmp_path / "bmc") as bmc:
        from_ipmi = bmc.node(ipmi_cipher_suite=3).driver_info
        machines = {
            place.enroll(driver="ferroscope-redfish", driver_info=redfish.driver_info(rack.url)): lambda: (
                rack.system(0)["PowerState"] == "On"
            ),
            place.enroll(driver="ferroscope-ipmi", driver_info=from_ipmi): lambda: bmc.commands[-1] == "power 1",
        }
        for uuid, _ in machines:
            assert place.ironic.node(uuid)["inspect_interface"] == "ferroscope"
            inspect(place.ironic, uuid)
        for (uuid, number), is_on in machines.items():
            place.await_state(uuid, "waiting")
            assert is_on()
            assert place.call_back(number) == 202
        for uuid, number in machines:
            node = await_provision(place, uuid, "manageable")
            assert (node["properties"]["memory_mb"], node["power_state"]) == (
                expected(number)["memory_mb"],
                "power off",
            )
            place.ironic.call("DELETE", f"/v1/nodes/{uuid}")
        assert bmc.commands[-1] == "power 0"
        assert "boot pxe" in bmc.commands


@pytest.mark.timeout(1800)
def test_nothing_that_was_handed_over_is_lost_when_both_sides_are_killed_at_random(tmp_path: Path) -> None:
    rng = random.Random(3)
    with handing_over(tmp_path, workers=2, extra=campaign.EXTRA) as place:
        nodes = dict(enroll(place) for _ in range(10))
        for uuid in nodes:
            inspect(place.ironic, uuid)
        ramdisks = campaign.Ramdisks(place, nodes)
        ramdisks.start()
        try:
            for _ in range(4):
                campaign.kill(place, rng)
                if rng.random() < 0.3:
                    kill_us(place)
                    start_us(place)
            assert ramdisks.done.wait(300.0 * slowness())
        finally:
            ramdisks.given_up.set()
            ramdisks.join()
        for uuid, number in nodes.items():
            node = await_provision(place, uuid, "manageable")
            assert node["properties"]["memory_mb"] == expected(number)["memory_mb"]
            assert place.ironic.call("GET", f"/v1/nodes/{uuid}/inventory")["inventory"]
            assert agreed(place, uuid) is None
            assert until(lambda uuid=uuid: place.ironic.node(uuid)["reservation"] is None)
