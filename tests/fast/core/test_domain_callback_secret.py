"""What a callback has to prove, by the mode, the delivery and the state of its inspection."""

from __future__ import annotations

import msgspec

from ferroscope.core import callback_secret
from ferroscope.core.callback_secret import CallbackProof, Delivery, judge
from ferroscope.core.model import Inspection
from ferroscope_client.core.states import State
from tests.support.rows import each

SECRET = "s3" * 20
DELIVERED = (Delivery.VIRTUAL_MEDIA, Delivery.BOOT_SCRIPT)


def inspection(delivery: Delivery | None, *, state: State = State.WAITING, secret: str | None = SECRET) -> Inspection:
    return Inspection(
        uuid="i", node="n", state=state, started_at=0.0, secret=secret, secret_delivery=delivery and str(delivery)
    )


@each("delivery", Delivery)
@each("mode", ["required", "optional"])
def test_the_right_secret_is_accepted_and_a_wrong_one_refused_whatever_the_delivery(
    mode: callback_secret.Mode, delivery: Delivery
) -> None:
    assert judge(mode, inspection(delivery), SECRET).proof is CallbackProof.VERIFIED
    assert judge(mode, inspection(delivery), SECRET).accepted
    for wrong in ("x", SECRET[:-1], SECRET + "x", SECRET.upper(), "\u00e9", "\ud800"):
        assert judge(mode, inspection(delivery), wrong) == callback_secret.CallbackVerdict(
            CallbackProof.WRONG, accepted=False, expected=delivery in DELIVERED
        )


@each("given", [None, ""])
def test_without_a_secret_it_is_refused_only_if_the_machine_got_one(given: str | None) -> None:
    assert [judge("required", inspection(delivery), given).accepted for delivery in DELIVERED] == [False, False]
    assert judge("required", inspection(Delivery.NONE), given).accepted
    verdict = judge("optional", inspection(Delivery.BOOT_SCRIPT), given)
    assert (verdict.accepted, verdict.proof, verdict.expected) == (True, CallbackProof.MISSING, True)


def test_before_the_planned_disk_is_inserted_nobody_calls_and_after_it_an_older_worker_may_have_booted() -> None:
    assert not judge("required", inspection(Delivery.PLANNED, state=State.STARTING), None).accepted
    assert judge("required", inspection(Delivery.PLANNED, state=State.WAITING), None).accepted


def test_an_inspection_without_a_secret_and_the_mode_off_check_nothing() -> None:
    for given in (None, "x"):
        assert judge("required", inspection(None, secret=None), given).accepted
        assert judge("off", inspection(Delivery.VIRTUAL_MEDIA), given).accepted


def test_what_is_kept_after_the_end_recognizes_the_secret_and_does_not_contain_it() -> None:
    active = inspection(Delivery.VIRTUAL_MEDIA)
    over = msgspec.structs.replace(active, state=State.FINISHED, secret=callback_secret.ended_secret(SECRET))
    assert over.secret is not None
    assert SECRET not in over.secret
    assert callback_secret.ended_secret(over.secret) == over.secret
    assert judge("required", over, SECRET).proof is CallbackProof.VERIFIED
    assert judge("required", over, over.secret).proof is CallbackProof.WRONG
    assert judge("required", over, over.secret.removeprefix("sha256:")).proof is CallbackProof.WRONG
    assert (callback_secret.live(active), callback_secret.live(over)) == (SECRET, None)


def test_disk_key_token_and_secret_do_not_reveal_each_other() -> None:
    derived = {SECRET, callback_secret.disk_key(SECRET), callback_secret.agent_token(SECRET)}
    assert len(derived) == 3
    assert not any(one in other for one in derived for other in derived if one != other)
    assert len(callback_secret.agent_token(SECRET)) >= 32  # the agent ignores shorter ones


def test_the_secret_joins_what_the_url_has() -> None:
    assert callback_secret.in_url("http://a/v1/continue", "s") == "http://a/v1/continue?secret=s"
    assert callback_secret.in_url("http://a/v1/continue?x=1", "s") == "http://a/v1/continue?x=1&secret=s"
