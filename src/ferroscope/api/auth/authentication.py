"""Authentication: who makes a call, by the configured methods, with a limit on failures."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Protocol, runtime_checkable

from ferroscope.api.auth.failures import FailedLogins
from ferroscope.api.auth.identity import ANYBODY, Identity, PasswordLogin
from ferroscope.api.errors import TooManyError, UnauthorizedError
from ferroscope.contracts.store import Clock
from ferroscope.http_server.agreed import NAMES, SOURCE

_HEADERS: Final = {
    "authorization": "HTTP_AUTHORIZATION",
    "x-auth-token": "HTTP_X_AUTH_TOKEN",
    "x-service-token": "HTTP_X_SERVICE_TOKEN",
    NAMES: NAMES,
}


class Method(Protocol):
    """A way to authenticate. One instance serves all threads.

    ``headers`` are those of the request that may have credentials, with lower-case names: ``authorization``,
    ``x-auth-token`` and ``x-service-token``. ``agreed.NAMES``, which is no header, comes with them.
    """

    def claimed_name(self, headers: Mapping[str, str]) -> str | None:
        """Return the user whom these credentials name, "" if they name none; None without credentials of this kind."""

    def identify(self, headers: Mapping[str, str]) -> Identity | None:
        """Return who sent the request; None if it has no credentials of this kind.

        ``UnauthorizedError`` for wrong ones, ``UnavailableError`` if they cannot be checked now.
        """


@runtime_checkable
class Guessable(Protocol):
    """A method whose credentials can be guessed, or are expensive to check. A source that fails too often must wait."""

    def remembered_identity(self, headers: Mapping[str, str]) -> Identity | None:
        """Return who sent these credentials if they were right recently, so that no check is needed; otherwise None."""

    def was_wrong(self, headers: Mapping[str, str]) -> bool:
        """Whether the same credentials were wrong recently. Repeating them is not a guess."""


@runtime_checkable
class Issues(Protocol):
    """Optional: a method that gives a token for a user name and a password."""

    def issue(self, login: PasswordLogin) -> str:
        """Return a token that ``identify`` accepts; ``UnauthorizedError``, ``UnavailableError``."""


class Authentication:
    """Asks the methods in turn; ``None`` instead of methods: every caller is ``ANYBODY``.

    ``challenge`` is the value of ``WWW-Authenticate``.
    """

    def __init__(
        self, methods: Sequence[Method] | None, failures: FailedLogins, clock: Clock, *, challenge: str = "Bearer"
    ) -> None:
        self._methods = methods
        self._failures = failures
        self._clock = clock
        self._challenge = challenge

    @property
    def is_disabled(self) -> bool:
        return self._methods is None

    def identify(self, env: Mapping[str, Any], logged_in: Callable[[Identity], None] = lambda _: None) -> Identity:
        """Return who sent the request with this WSGI environ; ``logged_in`` is called if a password had to be checked.

        ``UnauthorizedError``; ``TooManyError`` after too many failures (``FailedLogins``); ``UnavailableError``.
        """
        if self._methods is None:
            return ANYBODY
        headers = _credentials(env)
        if not headers:
            raise self._refusal("Authentication is required.")
        try:
            for method in self._methods:
                claimed = method.claimed_name(headers)
                if claimed is not None and (identity := self._identify_with(method, claimed, headers, env, logged_in)):
                    return identity
        except UnauthorizedError as exc:
            raise self._refusal(exc.message) from None
        raise self._refusal("The credentials are of a kind that is not enabled ([api] auth_strategy).")

    def claimed_name(self, env: Mapping[str, Any]) -> str:
        """Return the user whom the request's credentials name, right or wrong; "" if they name none."""
        headers = _credentials(env)
        return next((name for method in self._methods or () if (name := method.claimed_name(headers))), "")

    def _identify_with(
        self,
        method: Method,
        claimed: str,
        headers: Mapping[str, str],
        env: Mapping[str, Any],
        logged_in: Callable[[Identity], None],
    ) -> Identity | None:
        if not isinstance(method, Guessable):
            return method.identify(headers)
        if (remembered := method.remembered_identity(headers)) is not None:
            return remembered
        if method.was_wrong(headers):
            return method.identify(headers)
        with self._count_failures(env, claimed):
            identity = method.identify(headers)
        if identity is not None and identity.method == "http_basic":
            logged_in(identity)
        return identity

    @contextmanager
    def _count_failures(self, env: Mapping[str, Any], name: str) -> Iterator[None]:
        """Count a failure to log in as ``name``; ``TooManyError`` if there were too many."""
        source = env.get(SOURCE, "")
        if wait := self._failures.wait(source, name, self._clock.monotonic()):
            raise _too_many(wait)
        try:
            yield
        except UnauthorizedError:
            self._failures.count_failure(source, name, self._clock.monotonic())
            raise

    def issue(self, env: Mapping[str, Any], login: PasswordLogin) -> str:
        """Return a token for a user name and a password; the errors of ``identify``."""
        for method in self._methods or ():
            if isinstance(method, Issues):
                try:
                    with self._count_failures(env, f"{login.user}@{login.domain}"):
                        return method.issue(login)
                except UnauthorizedError as exc:
                    raise self._refusal(exc.message) from None
        raise self._refusal("Passwords are of a kind that is not enabled ([api] auth_strategy).")

    def _refusal(self, message: str) -> UnauthorizedError:
        return UnauthorizedError(message, {"WWW-Authenticate": self._challenge})


class Remembered:
    """Digests of credentials, each for some time since it was added, or with ``prolong`` since it was last seen.

    Beyond ``most``, the digest that was seen longest ago is forgotten. One instance serves all threads.
    """

    def __init__(self, most: int, seconds: float, *, prolong: bool) -> None:
        self._prolong = prolong
        self._most = most
        self._seconds = seconds
        self._lock = threading.Lock()
        self._until: OrderedDict[bytes, float] = OrderedDict()

    def is_remembered(self, digest: bytes, now: float) -> bool:
        """Return whether it is remembered."""
        with self._lock:
            if self._until.get(digest, now) <= now:
                return False
            if self._prolong:
                self._until[digest] = now + self._seconds
            self._until.move_to_end(digest)
            return True

    def add(self, digest: bytes, now: float) -> None:
        """Remember it."""
        with self._lock:
            self._until[digest] = now + self._seconds
            self._until.move_to_end(digest)
            if len(self._until) > self._most:
                self._until.popitem(last=False)


def _credentials(env: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(env[key]) for name, key in _HEADERS.items() if key in env}


def _too_many(wait: int) -> TooManyError:
    return TooManyError(
        "Too many failed logins with this name or from this address; try again later, or use an access token.",
        {"Retry-After": str(wait)},
    )
