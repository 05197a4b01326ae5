"""Authentication by access tokens: who is let in, for how long after what, and what it costs the store."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

from ferroscope.api.auth.identity import Identity
from ferroscope.api.auth.tokens import TRUSTED_FOR, TokenAuth
from ferroscope.api.errors import UnauthorizedError
from ferroscope.contracts.errors import StoreUnavailableError
from ferroscope.core import credentials
from ferroscope.core.credentials import AccessToken
from ferroscope.db import Transaction
from tests.support import examples
from tests.support.manual_clock import ManualClock
from tests.support.processes import PATIENCE
from tests.support.stores import open_store

SECRET = "S" * 43
HOUR = 3600.0


class Counted:
    """The shipped store; counts its transactions, and is away when the test says so."""

    def __init__(self, clock: ManualClock) -> None:
        self._store = open_store(clock=clock)
        self.reads = self.writes = 0
        self.is_away = False

    def read(self, work: Callable[[Transaction], Any]) -> Any:
        self.reads += 1
        self._check()
        return self._store.read(work)

    def write(self, work: Callable[[Transaction], Any], *, durable: bool = True) -> Any:
        self.writes += 1
        self._check()
        return self._store.write(work, durable=durable)

    def _check(self) -> None:
        if self.is_away:
            raise StoreUnavailableError("the database is away")


class Site:
    """One api process: its method of authentication, on a store whose clock the test moves."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = Counted(self.clock)
        self.auth = TokenAuth(self.store, self.clock)

    def token(self, secret: str = SECRET, **fields: Any) -> tuple[AccessToken, str]:
        token = examples.access_token(secret, **fields)
        self.store._store.write(lambda tx: tx.access_tokens.add(token))
        return token, credentials.token_text(token.id, secret)

    def revoke(self, token: AccessToken) -> None:
        self.store._store.write(lambda tx: tx.access_tokens.revoke(token.id))

    def identify(self, text: str) -> Identity | None:
        return self.auth.identify({"x-auth-token": text})

    def is_refused(self, text: str) -> bool:
        try:
            return self.identify(text) is None
        except UnauthorizedError:
            return True


@pytest.fixture
def site() -> Site:
    return Site()


@pytest.mark.parametrize(
    ("name", "prefix"),
    [("x-auth-token", ""), ("authorization", "Bearer "), ("authorization", "bearer "), ("authorization", "BEARER   ")],
)
def test_a_token_is_taken_from_either_header(site: Site, name: str, prefix: str) -> None:
    token, text = site.token(roles=["member"], project="p1")
    found = site.auth.identify({name: prefix + text})
    assert found is not None
    assert (found.user, found.method, found.project_id, found.system_scope) == (token.name, "token", "p1", False)
    assert found.roles == {"member", "reader"}


def test_a_token_without_a_project_is_for_the_whole_service(site: Site) -> None:
    _, text = site.token(roles=["admin"])
    found = site.identify(text)
    assert found is not None
    assert found.system_scope
    assert "admin" in found.roles


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Basic YWxpY2U6c2VjcmV0"},
        {"authorization": "Bearer eyJhbGciOi"},
        {"authorization": "fst_000000000000_" + SECRET},
        {"x-auth-token": "gAAAAABkeystone"},
    ],
)
def test_credentials_of_another_kind_are_left_to_others(site: Site, headers: dict[str, str]) -> None:
    assert site.auth.identify(headers) is None
    assert site.store.reads == 0


@pytest.mark.parametrize(
    "wrong",
    [
        "fst_",
        "fst_000000000000_" + SECRET,
        "fst_{id}_" + "s" * 43,
        "fst_{id}_" + SECRET[:-1],
        "fst_{id}_" + SECRET + "S",
        "fst_{id}_" + SECRET + "\n",
        "fst_{id}_" + "ß" * 43,
        "fst_" + "9" * 100_000,
    ],
)
def test_what_is_not_a_token_is_refused(site: Site, wrong: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    token, text = site.token()
    site.identify(text)
    with pytest.raises(UnauthorizedError) as error:
        site.identify(wrong.replace("{id}", token.id))
    assert SECRET not in str(error.value) + caplog.text


def test_the_store_has_no_secret(site: Site) -> None:
    token, _ = site.token()
    (row,) = site.store._store.read(lambda tx: tx.access_tokens.list())
    assert row == token
    assert SECRET not in repr(row)


def test_a_known_token_costs_no_query(site: Site) -> None:
    _, text = site.token()
    site.identify(text)
    reads, writes = site.store.reads, site.store.writes
    for _ in range(100):
        site.clock.now += TRUSTED_FOR / 101
        assert site.identify(text) is not None
    assert (site.store.reads, site.store.writes) == (reads, writes)


def test_a_revoked_token_is_refused_within_the_time_that_the_pages_say(site: Site) -> None:
    token, text = site.token()
    site.identify(text)
    site.revoke(token)
    site.clock.now += TRUSTED_FOR + 0.001
    assert site.is_refused(text)


def test_an_expired_token_is_refused_at_once_though_it_is_known(site: Site) -> None:
    _, text = site.token(expires_at=site.clock.now + 3.0)
    site.clock.now += 2.9
    assert site.identify(text) is not None
    site.clock.now += 0.2
    assert site.is_refused(text)


def test_a_new_token_is_known_within_a_second(site: Site) -> None:
    _, old = site.token()
    site.identify(old)
    _, new = site.token()
    site.clock.now += 1.001
    assert site.identify(new) is not None


def test_a_flood_of_different_wrong_tokens_is_one_query_a_second(site: Site) -> None:
    _, good = site.token()
    reads = site.store.reads
    for number in range(1000):
        assert site.is_refused(credentials.token_text(f"{number:012x}", SECRET))
        assert site.identify(good) is not None
        site.clock.now += 0.005
    assert site.store.reads - reads <= 6


def test_a_database_that_is_away_is_no_wrong_token(site: Site) -> None:
    _, text = site.token()
    site.store.is_away = True
    with pytest.raises(StoreUnavailableError):
        site.identify(text)
    site.store.is_away = False
    site.clock.now += 1.001
    assert site.identify(text) is not None


def test_known_tokens_go_on_for_their_time_while_the_database_is_away(site: Site) -> None:
    _, text = site.token()
    site.identify(text)
    site.store.is_away = True
    site.clock.now += TRUSTED_FOR - 0.1
    assert site.identify(text) is not None
    site.clock.now += 0.2
    with pytest.raises(StoreUnavailableError):
        site.identify(text)


def test_a_flood_during_an_outage_asks_the_database_once_a_second(site: Site) -> None:
    site.store.is_away = True
    for _ in range(1000):
        with pytest.raises(StoreUnavailableError):
            site.identify(credentials.token_text("0" * 12, SECRET))
        site.clock.now += 0.005
    assert site.store.reads <= 6


def test_a_read_that_hangs_holds_up_neither_known_tokens_nor_every_thread(site: Site) -> None:
    _, good = site.token()
    site.identify(good)
    site.clock.now += 2.0
    begun, go_on = threading.Event(), threading.Event()

    def hang(_work: Any) -> Any:
        begun.set()
        assert go_on.wait(PATIENCE)
        raise StoreUnavailableError("it hung")

    site.store.read = hang  # type: ignore[method-assign]
    thread = threading.Thread(target=lambda: _is_away(site, credentials.token_text("0" * 12, SECRET)))
    thread.start()
    assert begun.wait(PATIENCE)
    assert site.identify(good) is not None
    with pytest.raises(StoreUnavailableError):
        site.identify(credentials.token_text("1" * 12, SECRET))
    go_on.set()
    thread.join()


def _is_away(site: Site, text: str) -> None:
    with pytest.raises(StoreUnavailableError):
        site.identify(text)


def test_the_last_use_is_written_once_an_hour(site: Site) -> None:
    token, text = site.token()

    def used() -> float | None:
        (row,) = site.store._store.read(lambda tx: tx.access_tokens.list())
        assert row.id == token.id
        return row.last_used_at

    assert used() is None
    began = site.clock.now
    for _ in range(5 * 60):
        site.identify(text)
        site.clock.now += 60.0
    assert used() == began + 4 * HOUR
    assert site.store.writes == 5


def test_two_processes_write_the_last_use_once(site: Site) -> None:
    _, text = site.token()
    other = TokenAuth(site.store, site.clock)
    site.identify(text)
    site.clock.now += 5.0
    other.identify({"x-auth-token": text})
    assert site.store.writes == 1


def test_a_use_that_cannot_be_written_stops_nobody(site: Site) -> None:
    _, text = site.token()
    site.is_refused(credentials.token_text("0" * 12, SECRET))  # the tokens are read
    site.store.is_away = True
    assert site.identify(text) is not None
    assert site.store.writes == 1
