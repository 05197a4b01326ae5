"""Authentication by access tokens of this service: ``Authorization: Bearer fst_...`` or ``X-Auth-Token: fst_...``.

They have 256 bits and cannot be guessed, so they are checked even if their source has had too many failures.

There are few active tokens, so all of them are read from the store at once: every ten seconds, and for an unknown token
at most once a second. So a flood of different wrong tokens costs one query a second. A new token works, and a revoked
token stops working, within those times.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

import msgspec

from ferroscope.api.auth.identity import Identity, local
from ferroscope.api.errors import UnauthorizedError
from ferroscope.contracts.errors import StoreError, StoreUnavailableError
from ferroscope.contracts.store import Clock
from ferroscope.core import credentials
from ferroscope.core.credentials import AccessToken
from ferroscope.db import Store, Transaction

TRUSTED_FOR: Final = 10.0
"""Seconds after which a revoked token is refused at the latest."""

_READ_AGAIN: Final = 1.0
_LOCK_SECONDS: Final = 1.0
# The resolution of ``last_used_at``, and how often it is written.
_USE_RECORDED_EVERY: Final = 3600.0
_BEARER: Final = "bearer "


class _KnownToken(msgspec.Struct):
    """A token and its holder; ``recorded``: when its use was last recorded. Both times are monotonic."""

    token: AccessToken
    identity: Identity
    valid_until: float
    recorded: float


class _Snapshot(msgspec.Struct, frozen=True):
    """The active tokens by ID, as they were when they began to be read."""

    tokens: Mapping[str, _KnownToken]
    read_at: float


_NEVER: Final = _Snapshot({}, float("-inf"))


class TokenAuth:
    """One instance serves all threads."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._reading = threading.Lock()
        self._snapshot = _NEVER
        self._not_before = float("-inf")  # when to try again, after the store could not be read

    def claimed_name(self, headers: Mapping[str, str]) -> str | None:
        """Return the ID in the token, which is no secret; "" if the text has another form, None without a token."""
        text = _token_in(headers)
        if text is None:
            return None
        parsed = credentials.parse_token(text)
        return "" if parsed is None else f"token {parsed[0]}"

    def identify(self, headers: Mapping[str, str]) -> Identity | None:
        """Return who sent the request; None without a token of this service, ``UnauthorizedError`` for a wrong one.

        ``StoreUnavailableError`` if the token is unknown and the store cannot be read.
        """
        text = _token_in(headers)
        if text is None:
            return None
        parsed, now = credentials.parse_token(text), self._clock.monotonic()
        token = None
        if parsed is not None:
            token = _matching(self._fresh(now, TRUSTED_FOR), *parsed, now)
            if token is None:
                token = _matching(self._fresh(now, _READ_AGAIN), *parsed, now)
        if token is None:
            raise UnauthorizedError("The access token is wrong, expired or revoked.")
        self._record_use(token, now)
        return token.identity

    def _fresh(self, now: float, age: float) -> _Snapshot:
        """Return a snapshot that is at most ``age`` seconds old; one thread reads it, and the others wait for that."""
        if now - self._snapshot.read_at <= age:
            return self._snapshot
        if not self._reading.acquire(timeout=_LOCK_SECONDS):  # a database that hangs must not hang every thread
            raise StoreUnavailableError("the access tokens are still being read")
        try:
            if now - self._snapshot.read_at > age:
                self._snapshot = self._read_unless_failed()
            return self._snapshot
        finally:
            self._reading.release()

    def _read_unless_failed(self) -> _Snapshot:
        now = self._clock.monotonic()
        if now < self._not_before:
            raise StoreUnavailableError("the access tokens could not be read a moment ago")
        try:
            return self._store.read(lambda tx: self._read(tx, now))
        except StoreUnavailableError:
            self._not_before = self._clock.monotonic() + _READ_AGAIN
            raise

    def _read(self, tx: Transaction, read_at: float) -> _Snapshot:
        recorded = {ident: entry.recorded for ident, entry in self._snapshot.tokens.items()}
        tokens = {}
        for token in tx.access_tokens.active():
            left = float("inf") if token.expires_at is None else token.expires_at - tx.now
            used = float("-inf") if token.last_used_at is None else read_at - (tx.now - token.last_used_at)
            tokens[token.id] = _KnownToken(
                token=token,
                identity=local(token.name, "token", token.roles, project=token.project),
                valid_until=read_at + left,
                recorded=max(used, recorded.get(token.id, used)),
            )
        return _Snapshot(tokens, read_at)

    def _record_use(self, entry: _KnownToken, now: float) -> None:
        if now - entry.recorded < _USE_RECORDED_EVERY:
            return
        entry.recorded = now  # even if it fails: the last use is only information, so not every call tries to write it
        ident = entry.token.id

        def work(tx: Transaction) -> None:
            tx.access_tokens.used(ident, tx.now - _USE_RECORDED_EVERY)

        with suppress(StoreError):
            self._store.write(work, durable=False)


def _token_in(headers: Mapping[str, str]) -> str | None:
    """Return the text that claims to be a token of this service, None if there is none."""
    authorization = headers.get("authorization", "")
    bearer = authorization[len(_BEARER) :].strip() if authorization[: len(_BEARER)].lower() == _BEARER else ""
    for text in (bearer, headers.get("x-auth-token", "")):
        if text.startswith(credentials.PREFIX):
            return text
    return None


def _matching(snapshot: _Snapshot, ident: str, secret: str, now: float) -> _KnownToken | None:
    entry = snapshot.tokens.get(ident)
    return entry if entry is not None and entry.token.is_secret(secret) and now < entry.valid_until else None
