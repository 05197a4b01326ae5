"""What a lane tells of itself in numbers, and what of it somebody should look into."""

from __future__ import annotations

import uuid

from ferroscope.core.model import Request
from ferroscope.core.states import Event
from ferroscope.hardware.query import parse
from ferroscope.worker.slots import BmcSlots, Slot, Slots
from tests.support.manual_clock import ManualClock, ManualStop


def request(bmc: str | None = None) -> Request:
    return Request(node=str(uuid.uuid4()), event=Event.INSPECT, bmc=bmc, network=None)


def entered(slots: Slots, bmc: str | None = None) -> Slot:
    slot = slots.enter(request(bmc), claimed=False)
    assert isinstance(slot, Slot)
    return slot


def test_busy_slots_are_counted_and_an_attempt_that_hangs_is_a_problem() -> None:
    clock = ManualClock()
    slots = Slots(4, clock=clock, stop=ManualStop(clock))
    one, two = entered(slots), entered(slots)
    assert slots.counts() == {"slots": 4, "busy": 2, "given_up": 0}
    assert slots.problem() is None
    slots.abandon(one)
    assert slots.counts() == {"slots": 4, "busy": 1, "given_up": 1}
    found = slots.problem()
    assert found is not None
    assert (found.code, found.verdict) == ("attempt-hangs", "wrong")
    slots.leave(one)
    slots.leave(two)
    assert slots.counts() == {"slots": 4, "busy": 0, "given_up": 0}
    assert slots.problem() is None


def test_bmcs_that_do_not_answer_are_worth_knowing() -> None:
    clock = ManualClock()
    slots = BmcSlots(16, 1, clock=clock, stop=ManualStop(clock))
    assert slots.problem() is None
    for number in range(5):
        slots.breakers.record_failure(f"192.0.2.{number}", f"{number}" * 8, clock.monotonic())
    assert slots.counts() == {"slots": 16, "busy": 0, "given_up": 0, "silent_bmcs": 5}
    found = slots.problem()
    assert found is not None
    assert (found.code, found.verdict) == ("bmc-silent", "note")
    assert "192.0.2.0" in found.summary
    assert parse(found.search) == parse("uuid in (00000000, 11111111, 22222222, 33333333, 44444444)")
    slots.breakers.record_answer("192.0.2.0")
    assert slots.counts()["silent_bmcs"] == 4
