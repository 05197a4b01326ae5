"""An Ironic that is down, that locks nodes, or that dies with our workers: inspections wait, and nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.nightly.openstack.ironic import campaign
from tests.nightly.openstack.ironic.place import Place, expected
from tests.support.bare_metal import Ironic
from tests.support.bare_metal import ironic as run_ironic
from tests.support.processes import until


@pytest.fixture(scope="module")
def ironic(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ironic]:
    with run_ironic(tmp_path_factory.mktemp("mortal")) as running:
        yield running


@pytest.fixture(scope="module")
def place(ironic: Ironic, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with Place(tmp_path_factory.mktemp("waiting"), ironic, workers=2, extra=campaign.EXTRA) as running:
        yield running


def reserve(place: Place, uuid: str, holder: str | None) -> None:
    """Lock the node in Ironic as a conductor does, or unlock it."""
    with place.ironic.database() as connection:
        connection.execute("UPDATE nodes SET reservation = ? WHERE uuid = ?", [holder, uuid])


def _is_manageable(place: Place, uuid: str) -> bool:
    copy = place.node(uuid)
    return copy is not None and copy["provision_state"] == "manageable"


def test_inspections_wait_for_an_ironic_that_is_down_and_status_says_so(place: Place) -> None:
    (one, first), (two, second) = place.enroll(), place.enroll()
    # Ironic, which says more, is down when the second one is inspected.
    assert until(lambda: all(_is_manageable(place, uuid) for uuid in (one, two)))
    place.inspect(one)
    place.await_state(one, "waiting")
    place.ironic.kill_all()
    try:
        place.inspect(two)
        assert place.call_back(first) == 202
        assert until(lambda: place.state(one) == "processing")
        status, answer = place.call("POST", "/v1/introspection/unknown", root=place.introspection)
        assert (status, "Ironic does not answer" in str(answer)) == (503, True)
        problems = lambda: [one["code"] for one in place.call("GET", "/v1/status")[1]["problems"]]  # noqa: E731
        assert until(lambda: "registry-unavailable" in problems()), problems()
        assert (place.state(one), place.state(two)) == ("processing", "starting")
        assert place.call("GET", "/v1/nodes")[0] == 200
    finally:
        place.ironic.start()
        place.ironic.wait_answers()
    place.await_state(one, "finished")
    place.await_state(two, "waiting")
    assert place.call_back(second) == 202
    place.await_state(two, "finished")
    assert place.ironic.node(one)["properties"]["memory_mb"] == expected(first)["memory_mb"]
    assert until(lambda: "registry-unavailable" not in problems())


def test_a_locked_node_is_waited_for(place: Place) -> None:
    uuid, number = place.enroll()
    place.inspect(uuid)
    place.await_state(uuid, "waiting")
    reserve(place, uuid, "another-conductor")
    assert place.call_back(number) == 202
    assert until(lambda: place.state(uuid) == "processing")
    attempts = lambda: place.rows(f"SELECT attempt FROM requests WHERE node = '{uuid}'")  # noqa: E731
    assert until(lambda: bool(attempts()))
    assert not until(lambda: place.state(uuid) != "processing", seconds=2.0)
    reserve(place, uuid, None)
    place.await_state(uuid, "finished")
    assert place.ironic.node(uuid)["properties"]["memory_mb"] == expected(number)["memory_mb"]


def test_nothing_is_lost_when_ironic_and_workers_are_killed_at_random(place: Place) -> None:
    counted = campaign.run(place, 10, 7, pause=(0.5, 3.0), kills=5)
    assert counted.kills >= 2
    assert (counted.finished, counted.lost, counted.locked, counted.half_patched) == (10, 0, 0, 0), counted
    assert counted.powered_on == 0, counted
