"""What a callback has to prove, by the mode, the delivery and the state of its inspection."""

from __future__ import annotations

import msgspec

from ferroscope.core import lookup
from ferroscope.core.lookup import CallbackProof, SecretDelivery, judge_callback
from ferroscope.core.model import Inspection
from ferroscope_client.core.states import State
from tests.support.rows import each

SECRET = "s3" * 20
DELIVERED = (SecretDelivery.VIRTUAL_MEDIA, SecretDelivery.BOOT_SCRIPT)


def inspection(
    delivery: SecretDelivery | None, *, state: State = State.WAITING, secret: str | None = SECRET
) -> Inspection:
    return Inspection(
        uuid="i", node="n", state=state, started_at=0.0, secret=secret, secret_delivery=delivery and str(delivery)
    )


@each("delivery", SecretDelivery)
@each("mode", ["required", "optional"])
def test_the_right_secret_is_accepted_and_a_wrong_one_refused_whatever_the_delivery(
    mode: lookup.SecretMode, delivery: SecretDelivery
) -> None:
    assert judge_callback(mode, inspection(delivery), SECRET).proof is CallbackProof.VERIFIED
    assert judge_callback(mode, inspection(delivery), SECRET).accepted
    for wrong in ("x", SECRET[:-1], SECRET + "x", SECRET.upper(), "\u00e9", "\ud800"):
        assert judge_callback(mode, inspection(delivery), wrong) == lookup.CallbackVerdict(
            CallbackProof.WRONG, accepted=False, expected=delivery in DELIVERED
        )


@each("given", [None, ""])
def test_without_a_secret_it_is_refused_only_if_the_machine_got_one(given: str | None) -> None:
    verdicts = [judge_callback("required", inspection(delivery), given) for delivery in DELIVERED]
    assert [verdict.accepted for verdict in verdicts] == [False, False]
    assert judge_callback("required", inspection(SecretDelivery.NONE), given).accepted
    verdict = judge_callback("optional", inspection(SecretDelivery.BOOT_SCRIPT), given)
    assert (verdict.accepted, verdict.proof, verdict.expected) == (True, CallbackProof.MISSING, True)


def test_before_the_planned_disk_is_inserted_nobody_calls_and_after_it_an_older_worker_may_have_booted() -> None:
    assert not judge_callback("required", inspection(SecretDelivery.PLANNED, state=State.STARTING), None).accepted
    assert judge_callback("required", inspection(SecretDelivery.PLANNED, state=State.WAITING), None).accepted


def test_an_inspection_without_a_secret_and_the_mode_off_check_nothing() -> None:
    for given in (None, "x"):
        assert judge_callback("required", inspection(None, secret=None), given).accepted
        assert judge_callback("off", inspection(SecretDelivery.VIRTUAL_MEDIA), given).accepted


def test_what_is_kept_after_the_end_recognizes_the_secret_and_does_not_contain_it() -> None:
    active = inspection(SecretDelivery.VIRTUAL_MEDIA)
    over = msgspec.structs.replace(active, state=State.FINISHED, secret=lookup.ended_secret(SECRET))
    assert over.secret is not None
    assert SECRET not in over.secret
    assert lookup.ended_secret(over.secret) == over.secret
    assert judge_callback("required", over, SECRET).proof is CallbackProof.VERIFIED
    assert judge_callback("required", over, over.secret).proof is CallbackProof.WRONG
    assert judge_callback("required", over, over.secret.removeprefix("sha256:")).proof is CallbackProof.WRONG
    assert (lookup.live_secret(active), lookup.live_secret(over)) == (SECRET, None)


def test_disk_key_token_and_secret_do_not_reveal_each_other() -> None:
    derived = {SECRET, lookup.disk_key(SECRET), lookup.agent_token(SECRET)}
    assert len(derived) == 3
    assert not any(one in other for one in derived for other in derived if one != other)
    assert len(lookup.agent_token(SECRET)) >= 32  # the agent ignores shorter ones


def test_the_secret_joins_what_the_url_has() -> None:
    assert lookup.add_secret_to_url("http://a/v1/continue", "s") == "http://a/v1/continue?secret=s"
    assert lookup.add_secret_to_url("http://a/v1/continue?x=1", "s") == "http://a/v1/continue?x=1&secret=s"
