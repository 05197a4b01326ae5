"""Leases, on every database: one holder, growing epochs, fenced writes."""

from __future__ import annotations

import contextlib
import hashlib
import threading
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest
from sqlalchemy import select, update

from ferroscope.contracts.errors import LeaseHeldError, LeaseLostError
from ferroscope.core.model import LeaseClaim, Member
from ferroscope.db import Store, schema
from tests.store.conftest import Adapter, Open

LONG = 1000.0
# Expired as soon as it was acquired, by the database's own clock.
NO_TIME = -0.001


@pytest.fixture
def store(adapter: Adapter) -> Store:
    return adapter.store


def acquire(store: Store, holder: str = "a", duration: float = LONG, name: str = "backup") -> LeaseClaim:
    return store.write(lambda tx: tx.leases.acquire(name, holder, duration))


def test_a_free_lease_is_taken_in_epoch_one(store: Store) -> None:
    claim = acquire(store)
    lease = claim.lease
    assert (lease.name, lease.holder, lease.epoch) == ("backup", "a", 1)
    assert 0 < lease.remaining <= LONG
    assert (claim.name, claim.epoch) == ("backup", 1)


def test_a_lease_is_got_by_its_whole_name(store: Store) -> None:
    claims = [acquire(store, name=name) for name in ("backup", "backup/nightly", "Backup")]
    assert [store.read(lambda tx, name=one.name: tx.leases.get(name)) for one in claims] == [  # type: ignore[misc]
        msgspec.structs.replace(one.lease, remaining=pytest.approx(one.lease.remaining, abs=LONG / 2)) for one in claims
    ]
    assert store.read(lambda tx: tx.leases.get("back")) is None


def test_a_held_lease_is_refused_with_its_holder_even_to_itself(store: Store) -> None:
    acquire(store)
    for holder in ("b", "a"):
        with pytest.raises(LeaseHeldError) as refused:
            acquire(store, holder)
        assert refused.value.lease.holder == "a"
        assert refused.value.lease.remaining > 0


def test_an_expired_lease_goes_to_the_next_in_a_new_epoch_and_token(store: Store) -> None:
    first = acquire(store, duration=NO_TIME)
    second = acquire(store, "b")
    assert second.epoch == first.epoch + 1
    assert second.token != first.token


def test_a_released_lease_is_free_at_once_and_the_epoch_still_grows(store: Store) -> None:
    first = acquire(store)
    store.write(lambda tx: tx.leases.release(first))
    (free,) = store.read(lambda tx: tx.leases.list())
    assert (free.holder, free.remaining) == (None, 0.0)
    assert acquire(store, "b").epoch == 2


def test_the_holder_renews_and_may_do_so_late_while_nobody_took_it(store: Store) -> None:
    lease = acquire(store, duration=NO_TIME)
    renewed = store.write(lambda tx: tx.leases.renew(lease, LONG, data="news"))
    assert (renewed.epoch, renewed.token, renewed.lease.data) == (lease.epoch, lease.token, "news")
    assert renewed.lease.remaining > 0
    with pytest.raises(LeaseHeldError):
        acquire(store, "b")


def test_a_silent_holder_is_replaced_before_its_lease_expires_and_the_fence_rejects_it(store: Store) -> None:
    old = acquire(store)
    new = store.write(lambda tx: tx.leases.take_over(old.lease, "b", LONG, silent=0.0))
    assert (new.lease.holder, new.epoch) == ("b", old.epoch + 1)
    assert new.token not in ("", old.token)
    assert new.lease.remaining > 0
    store.write(lambda tx: tx.leases.hold(new))
    for late in (
        lambda tx: tx.leases.hold(old),
        lambda tx: tx.leases.renew(old, LONG),
        lambda tx: tx.leases.take_over(new.lease, "c", LONG, silent=LONG),
    ):
        with pytest.raises((LeaseLostError, LeaseHeldError)):
            store.write(late)
    (present,) = store.read(lambda tx: tx.leases.list())
    assert (present.holder, present.epoch) == ("b", new.epoch)


@pytest.mark.parametrize("sign_of_life", ["renewal", "successor"])
def test_a_holder_that_is_not_silent_is_not_replaced(store: Store, sign_of_life: str) -> None:
    old = acquire(store, duration=NO_TIME)
    if sign_of_life == "renewal":
        store.write(lambda tx: tx.leases.renew(old, LONG))
    else:
        acquire(store, "b")
    with pytest.raises(LeaseHeldError) as refused:
        store.write(lambda tx: tx.leases.take_over(old.lease, "c", LONG, silent=LONG))
    assert refused.value.lease.holder == ("a" if sign_of_life == "renewal" else "b")


def assert_over(store: Store, claim: LeaseClaim) -> None:
    """Use the claim in each way, in vain."""
    for use in (lambda tx: tx.leases.renew(claim, LONG), lambda tx: tx.leases.hold(claim)):
        with pytest.raises(LeaseLostError):
            store.write(use)


def test_an_old_epoch_can_do_nothing(store: Store) -> None:
    old = acquire(store, duration=NO_TIME)
    acquire(store, "b")
    assert_over(store, old)
    with pytest.raises(LeaseLostError):
        store.write(lambda tx: tx.leases.release(old))


def test_a_released_lease_is_over_for_its_former_holder(store: Store) -> None:
    lease = acquire(store)
    store.write(lambda tx: tx.leases.release(lease))
    assert_over(store, lease)


def test_a_write_under_a_lost_lease_is_rolled_back(store: Store) -> None:
    old = acquire(store, duration=NO_TIME)
    acquire(store, "b")

    def work(tx: object) -> None:
        tx.leases.acquire("other", "a", LONG)  # type: ignore[attr-defined]
        tx.leases.hold(old)  # type: ignore[attr-defined]

    with pytest.raises(LeaseLostError):
        store.write(work)
    assert [lease.name for lease in store.read(lambda tx: tx.leases.list())] == ["backup"]


def test_a_token_is_stored_as_its_digest_which_is_not_a_token_itself(store: Store) -> None:
    lease = acquire(store)
    assert len(lease.token) == 36
    rows = store.read(lambda tx: list(tx.run(select(schema.leases))))  # type: ignore[attr-defined]  # SQL
    assert lease.token not in str(rows)
    for wrong in ("", hashlib.sha256(lease.token.encode()).hexdigest(), "x"):
        with pytest.raises(LeaseLostError):
            store.write(lambda tx, wrong=wrong: tx.leases.hold(msgspec.structs.replace(lease, token=wrong)))  # type: ignore[misc]
    assert store.write(lambda tx: tx.leases.renew(lease, LONG)).token == lease.token
    store.write(lambda tx: tx.leases.hold(lease))


def test_a_token_that_the_previous_release_has_stored_is_still_one(store: Store) -> None:
    lease = acquire(store)
    old = update(schema.leases).values(token="old", token_digest=None)
    store.write(lambda tx: tx.run(old))  # type: ignore[attr-defined]  # SQL
    with pytest.raises(LeaseLostError):
        store.write(lambda tx: tx.leases.hold(lease))
    store.write(lambda tx: tx.leases.hold(msgspec.structs.replace(lease, token="old")))
    store.write(lambda tx: tx.leases.release(msgspec.structs.replace(lease, token="old")))
    assert len(acquire(store).token) == 36
    with pytest.raises(LeaseLostError):
        store.write(lambda tx: tx.leases.hold(msgspec.structs.replace(lease, token="old", epoch=2)))


def test_leases_are_listed_by_prefix_in_the_order_of_their_names(store: Store) -> None:
    for name in ("pxe/b", "pxe/a", "periodic/x", "pxe%"):
        acquire(store, name=name)
    assert [lease.name for lease in store.read(lambda tx: tx.leases.list("pxe/"))] == ["pxe/a", "pxe/b"]
    assert len(store.read(lambda tx: tx.leases.list())) == 4


def test_what_a_member_held_is_free_when_it_leaves(store: Store) -> None:
    member = Member(id="m1", host="h", pid=1, role="worker")
    store.write(lambda tx: tx.members.beat(member, LONG))
    acquire(store, "m1")
    acquire(store, "m2", name="other")
    store.write(lambda tx: tx.members.leave("m1"))
    assert acquire(store, "m3").epoch == 2
    with pytest.raises(LeaseHeldError):
        acquire(store, "m3", name="other")


def test_a_name_is_forgotten_only_while_nobody_holds_it_and_its_epochs_never_come_back(store: Store) -> None:
    for _ in range(3):
        lease = acquire(store)
        assert not store.write(lambda tx, lease=lease: tx.leases.forget(lease.lease))  # type: ignore[misc]
        store.write(lambda tx, lease=lease: tx.leases.release(lease))  # type: ignore[misc]
    old = msgspec.structs.replace(lease.lease, epoch=2)
    assert not store.write(lambda tx: tx.leases.forget(old)), "that was another epoch"
    assert store.write(lambda tx: tx.leases.forget(lease.lease))
    assert store.read(lambda tx: tx.leases.list()) == []
    assert_over(store, lease)
    assert acquire(store).epoch == 4
    assert acquire(store, name="another").epoch == 4


def test_an_expired_name_is_forgotten_and_its_holder_finds_out(store: Store) -> None:
    lease = acquire(store, duration=NO_TIME)
    assert store.write(lambda tx: tx.leases.forget(lease.lease))
    with pytest.raises(LeaseLostError):
        store.write(lambda tx: tx.leases.renew(lease, LONG))


def test_unused_names_are_those_that_nobody_held_for_so_long_oldest_first(store: Store) -> None:
    for name, duration in (("b", -500.0), ("a", -900.0), ("held", LONG), ("new", -1.0)):
        acquire(store, name=name, duration=duration)
    assert [lease.name for lease in store.read(lambda tx: tx.leases.unused(100.0, 10))] == ["a", "b"]
    assert [lease.name for lease in store.read(lambda tx: tx.leases.unused(100.0, 1))] == ["a"]


def test_a_brief_list_has_no_data_and_says_where_names_come_from(store: Store) -> None:
    store.write(lambda tx: tx.leases.acquire("x", "me", LONG, data="much", source="192.0.2.7"))
    (full,) = store.read(lambda tx: tx.leases.list())
    (brief,) = store.read(lambda tx: tx.leases.list(brief=True))
    assert (full.data, brief.data) == ("much", "")
    assert full.source == brief.source == "192.0.2.7"


def test_a_name_that_is_made_while_it_is_forgotten_begins_above_it(open_adapter: Open) -> None:
    """Many who make and forget one name at once: its epochs only grow."""
    adapters = [open_adapter() for _ in range(3)]
    seen: list[int] = []
    lock = threading.Lock()

    def work(adapter: Adapter) -> None:
        for _ in range(15):
            with contextlib.suppress(LeaseHeldError, LeaseLostError):
                lease = adapter.write(lambda tx: tx.leases.acquire("backup", "me", LONG))
                with lock:  # while it is held nobody else can have one
                    seen.append(lease.epoch)
                adapter.write(lambda tx, lease=lease: tx.leases.release(lease))  # type: ignore[misc]
                adapter.write(lambda tx, lease=lease: tx.leases.forget(lease.lease))  # type: ignore[misc]

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(work, adapters))
    assert seen
    assert seen == sorted(set(seen))


def test_candidates_are_those_who_asked_not_long_ago_and_their_number_is_limited(store: Store) -> None:
    held = acquire(store)
    asked = [("b", LONG), ("c", LONG), ("b", LONG), ("gone", NO_TIME)]
    for holder, seconds in asked:
        store.write(lambda tx, one=holder, left=seconds: tx.leases.add_candidate("backup", one, left))  # type: ignore[misc]

    def waiting(name: str = "backup") -> list[str]:
        return [one.holder for one in store.read(lambda tx: tx.leases.candidates(name))]

    assert waiting() == ["b", "c"]
    assert waiting("other") == []
    store.write(lambda tx: tx.leases.release(held))
    acquire(store, "b")
    assert waiting() == ["c"], "a holder does not wait"
    for number in range(40):
        store.write(lambda tx, one=number: tx.leases.add_candidate("backup", f"n{one:02}", LONG))  # type: ignore[misc]
    assert len(waiting()) == 32


def test_a_deleted_name_has_no_candidates(store: Store) -> None:
    held = acquire(store)
    store.write(lambda tx: tx.leases.add_candidate("backup", "b", LONG))
    store.write(lambda tx: tx.leases.release(held))
    assert store.write(lambda tx: tx.leases.forget(held.lease))
    assert store.read(lambda tx: tx.leases.candidates("backup")) == []
