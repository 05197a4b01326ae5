"""Why a claim was lost, and whether it counts as an attempt."""

from __future__ import annotations

from typing import Any

import msgspec

from ferroscope.core import losses
from ferroscope.core.delivery import DeliveryPolicy, Fail, Run, decide
from ferroscope.core.losses import Cause, Loss
from ferroscope.core.model import Member, Node, Request
from ferroscope.core.states import Event
from ferroscope_client.core.reasons import Reason
from ferroscope_client.core.states import Provision, State
from tests.support.rows import each

NOW, TTL = 1000.0, 6.0
LAST = NOW - TTL - 1.0  # the last heartbeat of a member that is not alive any more


def member(ident: str, *, host: str = "one", boot: str = "b1", last: float = NOW - 1.0, **changes: Any) -> Member:
    given = {"steady_since": 0.0, "started_at": 0.0, **changes}
    return Member(id=ident, host=host, boot=boot, pid=1, role="worker", ttl=TTL, expires_at=last + TTL, **given)


DEAD = member("dead", last=LAST)


def cause(holder: Member | None, *others: Member) -> Cause:
    members = [*others] if holder is None else [holder, *others]
    return losses.loss_of("dead", holder, members, NOW).cause


def request(*lost: Cause, attempt: int | None = None, event: Event = Event.CONTINUE, **changes: Any) -> Request:
    text = msgspec.json.encode([Loss(f"m{at}", one, LAST, "one", "b1") for at, one in enumerate(lost)]).decode()
    return Request(node="n", event=event, attempt=attempt or len(lost) + 1, lost=text, **changes)


def test_a_process_that_alone_is_silent_has_died_if_another_one_of_its_host_lives() -> None:
    assert cause(DEAD, member("sibling")) is Cause.DIED
    assert cause(DEAD, member("other", host="two"), member("successor", started_at=NOW - 2.0)) is Cause.DIED


def test_a_host_of_which_nobody_is_left_may_have_failed() -> None:
    assert cause(DEAD, member("other", host="two")) is Cause.SILENT_HOST
    assert cause(DEAD, member("other", host="two"), member("sibling", last=LAST)) is Cause.SILENT_HOST
    assert cause(DEAD, member("other", host="two"), member("rebooted", boot="b2")) is Cause.SILENT_HOST


def test_it_was_an_outage_if_no_heartbeat_got_through() -> None:
    assert cause(DEAD) is Cause.OUTAGE
    assert cause(DEAD, member("sibling", steady_since=NOW - 2.0)) is Cause.OUTAGE
    assert cause(DEAD, member("sibling", steady_since=None)) is Cause.OUTAGE, "a process of an older release"
    assert cause(None, member("sibling")) is Cause.OUTAGE


def test_a_successor_that_joins_soon_after_the_last_heartbeat_shows_that_there_was_no_outage() -> None:
    assert cause(DEAD, member("successor", steady_since=LAST + 2.0)) is Cause.DIED


def test_who_has_seen_a_process_die_is_believed_and_a_stop_is_no_death() -> None:
    assert cause(member("dead", left_at=NOW, died_at=NOW)) is Cause.DIED
    assert cause(member("dead", left_at=NOW), member("sibling")) is Cause.STOPPED
    assert cause(member("dead", last=LAST, detail={"stopping": True}), member("sibling")) is Cause.STOPPED


def test_claims_are_released_only_by_who_was_there_for_a_moment() -> None:
    assert losses.may_release(DEAD, [DEAD, member("other")], NOW)
    assert not losses.may_release(DEAD, [DEAD, member("other", steady_since=NOW - 1.0)], NOW)
    assert not losses.may_release(DEAD, [DEAD], NOW), "whoever looks has no heartbeat itself"
    assert losses.may_release(None, [], NOW)
    assert losses.may_release(member("dead", left_at=NOW), [], NOW)


def test_only_deaths_count() -> None:
    assert losses.count_attempts(request(Cause.OUTAGE, Cause.STOPPED, Cause.SILENT_HOST, Cause.RETURNED)) == 1
    assert losses.count_attempts(request(Cause.OUTAGE, Cause.DIED, Cause.DIED)) == 3


def test_what_another_release_has_noted_in_another_form_is_left_out() -> None:
    assert (
        losses.count_attempts(Request(node="n", event=Event.FINISH, attempt=2, lost='[{"member": "m", "cause": "?"}]'))
        == 2
    )


def test_a_later_look_shows_who_has_returned_and_which_host_had_not_failed() -> None:
    present = [member("m0"), member("m9", started_at=NOW - 1.0)]
    assert losses.count_attempts(losses.review_losses(request(Cause.DIED), present, NOW)) == 1, (
        "the same process is alive again"
    )
    assert losses.count_attempts(losses.review_losses(request(Cause.SILENT_HOST), present[1:], NOW)) == 2
    rebooted = member("m9", started_at=NOW - 1.0, boot="b2")
    assert losses.count_attempts(losses.review_losses(request(Cause.SILENT_HOST), [rebooted], NOW)) == 1


def test_who_has_returned_was_only_frozen_although_it_died_later() -> None:
    successor = member("m9", started_at=NOW - 1.0)
    left: dict[str, Any] = {"left_at": NOW, "died_at": NOW, "last": NOW - TTL}
    for noted in (Cause.DIED, Cause.SILENT_HOST):
        for later in ({"last": LAST + 0.5}, left):
            returned = member("m0", steady_since=LAST + 0.5, **later)
            assert losses.count_attempts(losses.review_losses(request(noted), [returned, successor], NOW)) == 1
        for gone in (member("m0", last=LAST), member("m0", **left)):
            assert losses.count_attempts(losses.review_losses(request(noted), [gone, successor], NOW)) == 2


NODE = Node(uuid="n", name="n", driver="sim", provision_state=Provision.INSPECTING, state=State.PROCESSING)


@each("event", [Event.CONTINUE, Event.FINISH])
def test_outages_do_not_end_an_inspection(event: Event) -> None:
    decision = decide(NODE, request(*[Cause.OUTAGE] * 9, event=event, begun=event is Event.CONTINUE), DeliveryPolicy())
    assert isinstance(decision, Run)
    assert decision.rerun
    assert not decision.undone


def test_a_request_whose_worker_is_lost_again_and_again_ends_whatever_the_cause() -> None:
    decision = decide(NODE, request(*[Cause.OUTAGE] * 10, begun=True), DeliveryPolicy())
    assert isinstance(decision, Fail)
    assert decision.reason is Reason.ATTEMPTS_EXHAUSTED


def test_a_machine_that_cannot_be_powered_off_leaves_its_inspection_finished() -> None:
    decision = decide(NODE, request(*[Cause.DIED] * 3, event=Event.FINISH), DeliveryPolicy())
    assert isinstance(decision, Run)
    assert decision.transition.target is State.FINISHED
    assert "may still be on" in decision.undone


def test_a_failure_that_cannot_be_cleaned_up_after_keeps_its_own_reason() -> None:
    payload = {"reason": "hook-failed", "message": "no disk"}
    decision = decide(NODE, request(*[Cause.DIED] * 3, event=Event.FAIL, payload=payload), DeliveryPolicy())
    assert decision == Fail(Reason.HOOK_FAILED, "no disk")
