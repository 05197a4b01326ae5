"""``ports.store.Members`` on every adapter."""

from __future__ import annotations

from tests.conformance.conftest import Adapter
from tests.support import examples


def test_a_member_is_alive_for_as_long_as_it_said(adapter: Adapter) -> None:
    before = adapter.read(lambda tx: tx.now)
    adapter.write(lambda tx: tx.members.beat(examples.member("a", sentence="busy"), 60.0))
    after = adapter.read(lambda tx: tx.now)
    member = adapter.members()["a"]
    assert (member.id, member.host, member.pid, member.role) == ("a", "example", 42, "worker")
    assert member.sentence == "busy"
    assert before - 0.002 <= member.started_at <= after + 0.002
    assert before + 59.998 <= member.expires_at <= after + 60.002


def test_a_further_beat_prolongs_and_keeps_the_start(adapter: Adapter) -> None:
    adapter.join("a", ttl=10.0)
    first = adapter.members()["a"]
    adapter.write(lambda tx: tx.members.beat(examples.member("a", sentence="claimed request 7"), 30.0))
    second = adapter.members()["a"]
    assert second.started_at == first.started_at
    assert second.expires_at > first.expires_at + 15
    assert second.sentence == "claimed request 7"


def test_a_sentence_may_be_longer_than_anybody_reads(adapter: Adapter) -> None:
    adapter.write(lambda tx: tx.members.beat(examples.member("a", sentence="x" * 5000), 30.0))
    adapter.write(lambda tx: tx.members.beat(examples.member("a", sentence="y" * 5000), 30.0))
    assert adapter.members()["a"].sentence.startswith("y" * 200)
    adapter.write(lambda tx: tx.members.beat(examples.member("b", sentence="z" * 5000), 30.0))
    assert adapter.members()["b"].sentence.startswith("z" * 200)


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
