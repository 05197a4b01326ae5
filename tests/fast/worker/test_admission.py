"""Who may wait for a BMC: one request for each system, few for each BMC, half of the slots for each network."""

from __future__ import annotations

import pytest

from ferroscope.core.lanes import bmc_of
from ferroscope.core.model import Request
from ferroscope.core.states import Event
from ferroscope.worker.slots import (
    FIRST_PAUSE,
    LONGEST_PAUSE,
    SILENT_SECONDS,
    Admission,
    BmcRequest,
    Breakers,
)
from ferroscope_client.core.reasons import Reason
from tests.support.rows import each

SLOTS = 8


class Lane:
    """An admission and a time that the test moves."""

    def __init__(self, slots: int = SLOTS, per_bmc: int = 4) -> None:
        self.now = 100.0
        self.breakers = Breakers(lambda: 1.0)
        self.requests: set[BmcRequest] = set()
        self.admission = Admission(slots, per_bmc, self.breakers, self.requests)

    def enter(self, request: Request, *, calling: bool = False) -> BmcRequest:
        assert self.refused(request) is None
        one = BmcRequest(request)
        self.requests.add(one)
        if calling:
            one.calling_since = self.now
        return one

    def refused(self, request: Request) -> Reason | None:
        refusal = self.admission.refusal(request, self.now)
        return None if refusal is None else refusal.reason

    @property
    def free(self) -> int:
        return self.admission.free(self.now)

    @property
    def crowded(self) -> tuple[str, ...]:
        return self.admission.crowded_networks(self.now)


def to(address: str, event: Event = Event.INSPECT, attempt: int = 1, node: str = "") -> Request:
    found = bmc_of("redfish", {"redfish_address": address})
    assert found is not None
    return Request(node=node or address, event=event, bmc=found.bmc, network=found.network, attempt=attempt)


@pytest.fixture
def lane() -> Lane:
    return Lane()


def test_a_bmc_has_one_request_at_a_time(lane: Lane) -> None:
    first = lane.enter(to("https://192.0.2.1"))
    assert lane.refused(to("https://192.0.2.1")) is Reason.BMC_BUSY
    assert lane.refused(to("https://192.0.2.1", Event.ABORT)) is Reason.BMC_BUSY
    assert lane.refused(to("https://192.0.2.1:8443")) is None
    lane.requests.discard(first)
    assert lane.refused(to("https://192.0.2.1")) is None


def test_a_bmc_of_several_systems_has_a_bounded_number_of_requests_one_for_each_system() -> None:
    lane = Lane(slots=100, per_bmc=3)
    chassis = "https://192.0.2.1"
    first = [lane.enter(to(chassis, node=f"blade-{number}")) for number in range(3)]
    assert lane.refused(to(chassis, node="blade-3")) is Reason.BMC_BUSY
    assert lane.refused(to("https://192.0.2.2", node="blade-3")) is None
    lane.requests.discard(first[0])
    assert lane.refused(to(chassis, node="blade-1")) is Reason.BMC_BUSY
    assert lane.refused(to(chassis, node="blade-3")) is None


def test_the_systems_of_a_silent_bmc_wait_together() -> None:
    lane = Lane(per_bmc=2)
    lane.breakers.record_failure("192.0.2.1", "blade-1", lane.now)
    assert lane.refused(to("192.0.2.1", node="blade-2")) is Reason.BMC_SILENT


def test_a_network_has_no_more_than_half_of_the_slots(lane: Lane) -> None:
    for host in range(SLOTS // 2):
        lane.enter(to(f"192.0.2.{host}"))
    assert lane.crowded == ("192.0.2.0/24",)
    assert lane.refused(to("192.0.2.99")) is Reason.BMC_BUSY
    lane.enter(to("198.51.100.1"))
    assert lane.free == SLOTS // 2 - 1


def test_nor_has_one_whose_bmcs_are_silent(lane: Lane) -> None:
    for host in range(SLOTS // 2):
        lane.enter(to(f"192.0.2.{host}"), calling=True)
    lane.now += SILENT_SECONDS + 1.0
    assert lane.free == SLOTS
    assert lane.crowded == ("192.0.2.0/24",)


def test_as_many_silent_bmcs_as_there_are_slots_cost_none_wherever_they_are(lane: Lane) -> None:
    silent = [lane.enter(to(f"bmc-{number}.example.com"), calling=True) for number in range(SLOTS)]
    assert lane.free == 0
    lane.now += SILENT_SECONDS + 1.0
    assert lane.free == SLOTS
    silent[0].calling_since = None  # it has answered after all
    assert lane.free == SLOTS - 1


def test_the_reserve_for_the_silent_has_an_end(lane: Lane) -> None:
    for number in range(SLOTS):
        lane.enter(to(f"a{number}"), calling=True)
    lane.now += SILENT_SECONDS + 1.0
    for number in range(SLOTS):
        lane.enter(to(f"b{number}"), calling=True)
    lane.now += SILENT_SECONDS + 1.0
    assert lane.free == 0


def test_what_has_no_bmc_is_never_refused(lane: Lane) -> None:
    for _ in range(SLOTS):
        lane.enter(Request(node="n", event=Event.INSPECT))
    assert lane.crowded == ()
    assert lane.free == 0


def test_a_bmc_that_does_not_answer_is_left_alone_for_longer_and_longer(lane: Lane) -> None:
    pauses = []
    for _ in range(9):
        lane.breakers.record_failure("192.0.2.1", "n", lane.now)
        pauses.append(lane.breakers.pause("192.0.2.1", lane.now))
        assert lane.refused(to("192.0.2.1")) is Reason.BMC_SILENT
        lane.now += pauses[-1]
        assert lane.refused(to("192.0.2.1")) is None
    assert pauses[:3] == [FIRST_PAUSE, 2 * FIRST_PAUSE, 4 * FIRST_PAUSE]
    assert pauses[-1] == LONGEST_PAUSE
    lane.breakers.record_answer("192.0.2.1")
    lane.breakers.record_failure("192.0.2.1", "n", lane.now)
    assert lane.breakers.pause("192.0.2.1", lane.now) == FIRST_PAUSE


def test_several_failures_of_one_attempt_count_once(lane: Lane) -> None:
    lane.breakers.record_failure("192.0.2.1", "n", lane.now)
    lane.breakers.record_failure("192.0.2.1", "n", lane.now + 1.0)
    assert lane.breakers.pause("192.0.2.1", lane.now) == FIRST_PAUSE


@pytest.mark.parametrize(
    ("event", "attempt", "waits"),
    [
        (Event.INSPECT, 1, True),
        (Event.SET_POWER, 1, False),
        (Event.SET_POWER, 2, True),
        (Event.VERIFY, 1, False),
        (Event.ABORT, 1, False),
        (Event.TIMEOUT, 2, False),
        (Event.FINISH, 1, False),
        (Event.FAIL, 1, False),
    ],
)
def test_neither_the_end_of_an_inspection_nor_an_operator_waits_for_a_silent_bmc(
    lane: Lane, event: Event, attempt: int, *, waits: bool
) -> None:
    lane.breakers.record_failure("192.0.2.1", "n", lane.now)
    assert (lane.refused(to("192.0.2.1", event, attempt)) is Reason.BMC_SILENT) is waits


def test_breakers_do_not_add_up_for_ever() -> None:
    breakers = Breakers(lambda: 0.0)
    for number in range(30_000):
        breakers.record_failure(f"bmc-{number}", "n", 0.0)
    assert len(list(breakers.open(0.0))) == 20_000


@each(
    ("address", "bmc", "network"),
    [
        ("https://192.0.2.7:8443/redfish", "192.0.2.7:8443", "192.0.2.0/24"),
        ("192.0.2.7", "192.0.2.7", "192.0.2.0/24"),
        ("::ffff:192.0.2.7", "192.0.2.7", "192.0.2.0/24"),
        ("[2001:db8:1:2::7]:443", "[2001:db8:1:2::7]:443", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::1%eth0", "fe80::/64"),
        ("https://BMC-7.example.com.", "bmc-7.example.com", None),
        ("127.0.0.1:6390", "127.0.0.1:6390", None),
        ("127.0.3.7:6390", "127.0.3.7:6390", "127.0.3.0/24"),
        ("http://[::1", "http://[::1", None),
        ("x" * 400, "x" * 255, None),
    ],
)
def test_where_a_bmc_is(address: str, bmc: str, network: str | None) -> None:
    found = bmc_of("redfish", {"redfish_address": address})
    assert found is not None
    assert (found.bmc, found.network) == (bmc, network)


def test_the_drivers_own_address_counts_and_each_simulated_machine_has_a_bmc() -> None:
    info: dict[str, object] = {"ipmi_address": "192.0.2.1", "ipmi_port": 6230, "redfish_address": "198.51.100.1"}
    assert getattr(bmc_of("ipmi", info), "bmc", None) == "192.0.2.1:6230"
    assert getattr(bmc_of("redfish", info), "network", None) == "198.51.100.0/24"
    simulated: list[dict[str, object]] = [{"sim_address": "127.0.0.1:6390", "sim_node": name} for name in "ab"]
    assert len({bmc_of("sim", one) for one in simulated}) == 2
    others: list[dict[str, object]] = [{"relay_address": "192.0.2.1", "relay_node": name} for name in "ab"]
    assert len({bmc_of("relay", one) for one in others}) == 2
    assert bmc_of("fake-hardware", {}) is None
