"""What a process remembers of its database, and what it concludes after a fail-over."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from ferroscope.contracts.errors import LeaseHeldError
from ferroscope.core import finding
from ferroscope.core.model import DEFAULT
from ferroscope.db.connections import Memory
from ferroscope.leadership import Election
from ferroscope.runtime.system import SystemClock
from tests.support.stores import open_store

_COMMIT = 1000


@pytest.fixture
def memory() -> Memory:
    memory = Memory(SystemClock())
    memory.connected(1, None)
    memory.committed(1, _COMMIT)
    return memory


@pytest.mark.parametrize(("replayed", "losses"), [(_COMMIT - 1, 1), (_COMMIT, 1), (_COMMIT + 1, 0), (None, 0)])
def test_a_promoted_server_that_has_not_replayed_the_last_commit_has_lost_it(
    memory: Memory, replayed: int | None, losses: int
) -> None:
    assert memory.connected(2, replayed) == ""
    assert len(memory.proofs()) == losses
    assert (finding.lost_commits(memory.proofs()) is None) == (losses == 0)


def test_a_loss_is_reported_once_however_many_connections_find_it(memory: Memory) -> None:
    for _ in range(3):
        memory.connected(2, 0)
    assert len(memory.proofs()) == 1


def test_a_commit_on_the_old_timeline_that_is_noted_late_is_not_missed_on_the_new_one(memory: Memory) -> None:
    memory.connected(2, _COMMIT + 1)
    memory.committed(1, _COMMIT + 500)
    memory.connected(3, _COMMIT + 100)
    assert memory.proofs() == []


def test_a_server_of_an_older_timeline_is_refused(memory: Memory) -> None:
    memory.connected(2, None)
    assert "old primary" in memory.connected(1, None)
    assert memory.connected(2, None) == ""


def test_an_epoch_that_was_lost_is_not_issued_again() -> None:
    store = open_store()
    for _ in range(3):
        lease = store.write(lambda tx: tx.leases.acquire("backup", "me", -1.0))
    with store.engine.begin() as connection:
        connection.execute(text("UPDATE leases SET epoch = 1"))
    again = store.write(lambda tx: tx.leases.acquire("backup", "me", 60.0))
    assert again.epoch == lease.epoch + 1
    store.write(lambda tx: tx.leases.hold(again))
    assert len(store.memory.proofs()) == 1


def test_a_candidate_notices_that_the_epoch_of_another_holder_has_gone_back() -> None:
    store = open_store()
    store.write(lambda tx: tx.leases.acquire("backup", "other", 60.0))
    store.memory.saw("backup", 7)
    with pytest.raises(LeaseHeldError):
        store.write(lambda tx: tx.leases.acquire("backup", "me", 60.0))
    assert len(store.memory.proofs()) == 1


def test_after_a_fail_over_a_new_leader_waits_for_the_one_that_the_database_may_have_forgotten() -> None:
    store, clock = open_store(), SystemClock()
    failed_over = clock.monotonic() - 1.0
    election = Election("a", "me", store=store, clock=clock, profile=DEFAULT, failed_over_at=lambda: failed_over)
    leadership = election.campaign()
    assert leadership is not None
    assert leadership.alone_from == failed_over + DEFAULT.ttl
