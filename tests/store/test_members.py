"""``db.members.Members`` on every database."""

from __future__ import annotations

import pytest

from ferroscope.contracts.errors import ConflictError
from ferroscope.core.model import ClockStep
from ferroscope_client.core.states import State
from tests.store.conftest import Adapter
from tests.support import examples


def test_a_member_is_alive_for_as_long_as_it_said(adapter: Adapter) -> None:
    before = adapter.read(lambda tx: tx.now)
    adapter.write(lambda tx: tx.members.beat(examples.member("a", status="busy"), 60.0))
    after = adapter.read(lambda tx: tx.now)
    member = adapter.members()["a"]
    assert (member.id, member.host, member.pid, member.role) == ("a", "example", 42, "worker")
    assert member.status == "busy"
    assert before - 0.002 <= member.started_at <= after + 0.002
    assert before + 59.998 <= member.expires_at <= after + 60.002


def test_a_further_beat_prolongs_and_keeps_the_start(adapter: Adapter) -> None:
    adapter.join("a", ttl=10.0)
    first = adapter.members()["a"]
    adapter.write(lambda tx: tx.members.beat(examples.member("a", status="claimed request 7"), 30.0))
    second = adapter.members()["a"]
    assert second.started_at == first.started_at
    assert second.expires_at > first.expires_at + 15
    assert second.status == "claimed request 7"


def test_a_status_may_be_longer_than_anybody_reads(adapter: Adapter) -> None:
    adapter.write(lambda tx: tx.members.beat(examples.member("a", status="x" * 5000), 30.0))
    adapter.write(lambda tx: tx.members.beat(examples.member("a", status="y" * 5000), 30.0))
    assert adapter.members()["a"].status.startswith("y" * 200)
    adapter.write(lambda tx: tx.members.beat(examples.member("b", status="z" * 5000), 30.0))
    assert adapter.members()["b"].status.startswith("z" * 200)


def test_dead_members_are_listed_and_those_who_left_are_not(adapter: Adapter) -> None:
    adapter.join("dead", ttl=0.0)
    adapter.join("alive")
    adapter.join("left")
    adapter.write(lambda tx: tx.members.leave("left"))
    adapter.write(lambda tx: tx.members.leave("never there"))
    now = adapter.read(lambda tx: tx.now)
    assert {ident: member.expires_at > now for ident, member in adapter.members().items()} == {
        "dead": False,
        "alive": True,
    }


def test_those_who_left_are_known_until_they_are_forgotten(adapter: Adapter) -> None:
    adapter.join("dead", ttl=0.0)
    adapter.join("alive")
    adapter.join("left")
    adapter.join("back")
    for ident in ("left", "back"):
        adapter.write(lambda tx, ident=ident: tx.members.leave(ident))  # type: ignore[misc]
    adapter.join("back")
    listed = adapter.read(lambda tx: {one.id: one.is_alive(tx.now) for one in tx.members.list(left=True)})
    assert listed == {"dead": False, "alive": True, "left": False, "back": True}
    assert set(adapter.members()) == {"dead", "alive", "back"}
    adapter.write(lambda tx: tx.members.forget(tx.now - 60.0))
    assert len(adapter.read(lambda tx: tx.members.list(left=True))) == 4
    adapter.write(lambda tx: tx.members.forget(tx.now + 1.0))
    assert {one.id for one in adapter.read(lambda tx: tx.members.list(left=True))} == {"alive", "back"}


@pytest.mark.parametrize("seconds", [86_400.0, 1200.0, -86_400.0])
def test_when_the_clock_was_set_the_clocks_of_inspections_go_on(adapter: Adapter, seconds: float) -> None:
    """One number is noted once; what was written since, or is over, stays as it is."""
    now = adapter.read(lambda tx: tx.now)
    before = now - seconds - 100.0  # 100 s before, by the clock as it was then
    waiting = adapter.node(state=State.WAITING, provision_updated_at=before)
    fresh = adapter.node(state=State.WAITING, provision_updated_at=now)
    over = adapter.node(state=State.FINISHED, provision_updated_at=before)
    step = ClockStep(id=1, seconds=seconds, process="me")
    adapter.write(lambda tx: tx.clock_steps.record(step, 30.0))
    with pytest.raises(ConflictError):
        adapter.write(lambda tx: tx.clock_steps.record(step, 30.0))
    assert adapter.get(waiting.uuid).provision_updated_at == pytest.approx(now - 100.0)
    assert adapter.get(fresh.uuid).provision_updated_at == pytest.approx(now)
    assert adapter.get(over.uuid).provision_updated_at == pytest.approx(before)
    (noted,) = adapter.read(lambda tx: tx.clock_steps.list())
    assert (noted.id, noted.seconds, noted.process) == (1, seconds, "me")
    assert noted.at == pytest.approx(now, abs=60)
