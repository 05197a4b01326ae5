"""``db.credentials.AccessTokens`` on every database."""

from __future__ import annotations

from typing import Any

import pytest

from ferroscope.contracts.errors import ConflictError
from ferroscope.core.credentials import AccessToken
from tests.store.conftest import Adapter
from tests.support import examples


def add(adapter: Adapter, **fields: Any) -> AccessToken:
    token = examples.access_token(**fields)
    adapter.write(lambda tx: tx.access_tokens.add(token))
    return token


def stored(adapter: Adapter) -> dict[str, AccessToken]:
    return {token.id: token for token in adapter.read(lambda tx: tx.access_tokens.list())}


def active(adapter: Adapter) -> set[str]:
    return {token.id for token in adapter.read(lambda tx: tx.access_tokens.active())}


def now(adapter: Adapter) -> float:
    return adapter.read(lambda tx: tx.now)


def test_every_field_comes_back_as_it_was_stored(adapter: Adapter) -> None:
    token = add(
        adapter,
        roles=["member", "service"],
        project="räck 1",
        created_at=1_700_000_000.5,
        created_by="alice@host",
        expires_at=1.5,
        revoked_at=2.5,
        last_used_at=0.5,
    )
    assert stored(adapter) == {token.id: token}


def test_active_ones_are_neither_revoked_nor_expired(adapter: Adapter) -> None:
    at = now(adapter)
    forever, later = add(adapter), add(adapter, expires_at=at + 600.0)
    over, revoked = add(adapter, expires_at=at - 1.0), add(adapter)
    assert adapter.write(lambda tx: tx.access_tokens.revoke(revoked.id))
    assert active(adapter) == {forever.id, later.id}
    assert set(stored(adapter)) == {forever.id, later.id, over.id, revoked.id}


def test_a_name_is_free_again_when_its_token_has_ended(adapter: Adapter) -> None:
    first = add(adapter, name="backup")
    with pytest.raises(ConflictError) as error:
        add(adapter, name="backup")
    assert (error.value.field, error.value.value) == ("name", "backup")
    adapter.write(lambda tx: tx.access_tokens.revoke(first.id))
    second = add(adapter, name="backup", expires_at=now(adapter) - 1.0)
    third = add(adapter, name="backup")
    assert set(stored(adapter)) == {first.id, second.id, third.id}


def test_an_id_is_never_given_twice(adapter: Adapter) -> None:
    token = add(adapter)
    with pytest.raises(ConflictError) as error:
        add(adapter, id=token.id)
    assert error.value.field == "id"


def test_a_token_is_revoked_once_and_its_time_stays(adapter: Adapter) -> None:
    token = add(adapter)
    assert adapter.write(lambda tx: tx.access_tokens.revoke(token.id))
    at = stored(adapter)[token.id].revoked_at
    assert at is not None
    assert not adapter.write(lambda tx: tx.access_tokens.revoke(token.id))
    assert not adapter.write(lambda tx: tx.access_tokens.revoke("ffffffffffff"))
    assert stored(adapter)[token.id].revoked_at == at


def test_the_last_use_is_written_only_if_it_was_long_ago(adapter: Adapter) -> None:
    token, other = add(adapter), add(adapter)
    adapter.write(lambda tx: tx.access_tokens.used(token.id, tx.now - 3600.0))
    first = stored(adapter)[token.id].last_used_at
    assert first == pytest.approx(now(adapter), abs=60.0)
    adapter.write(lambda tx: tx.access_tokens.used(token.id, tx.now - 3600.0))
    assert stored(adapter)[token.id].last_used_at == first
    adapter.write(lambda tx: tx.access_tokens.used(token.id, tx.now))
    assert (stored(adapter)[token.id].last_used_at or 0.0) > first
    assert stored(adapter)[other.id].last_used_at is None


def test_ended_ones_are_removed_in_batches_and_the_others_stay(adapter: Adapter) -> None:
    for number in range(5):
        add(adapter, expires_at=float(number)) if number % 2 else add(adapter, revoked_at=float(number))
    kept = {add(adapter).id, add(adapter, expires_at=now(adapter) + 60.0).id, add(adapter, revoked_at=50.0).id}
    removed = [adapter.write(lambda tx: tx.access_tokens.remove_ended(50.0, 2)) for _ in range(4)]
    assert removed == [2, 2, 1, 0]
    assert set(stored(adapter)) == kept
