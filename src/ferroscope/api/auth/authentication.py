"""Authentication: who makes a call, by the configured methods, with a limit on failures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol, runtime_checkable

from ferroscope.api.auth.certificate import NAMES
from ferroscope.api.auth.identity import ANYBODY, Identity, PasswordLogin
from ferroscope.api.http.errors import TooManyError, UnauthorizedError
from ferroscope.api.http.rate_limit import Callers
from ferroscope.contracts.queue import Clock

_HEADERS: Final = {
    "authorization": "HTTP_AUTHORIZATION",
    "x-auth-token": "HTTP_X_AUTH_TOKEN",
    "x-service-token": "HTTP_X_SERVICE_TOKEN",
    NAMES: NAMES,
}


class Method(Protocol):
    """A way to authenticate. One instance serves all threads.

    ``headers`` are those of the request that may have credentials, with lower-case names: ``authorization``,
    ``x-auth-token`` and ``x-service-token``; and ``certificate.NAMES``, which is none of them.
    """

    def known(self, headers: Mapping[str, str]) -> Identity | None:
        """Return who sent these credentials if that costs nothing, because they were right recently; otherwise None.

        Sources that have failed too often are limited to these.
        """

    def identify(self, headers: Mapping[str, str]) -> Identity | None:
        """Return who sent the request; None if it has no credentials of this kind.

        ``UnauthorizedError`` for wrong ones, ``UnavailableError`` if they cannot be checked now.
        """


@runtime_checkable
class Issues(Protocol):
    """Optional: a method that gives a token for a user name and a password."""

    def issue(self, login: PasswordLogin) -> str:
        """Return a token that ``identify`` accepts; ``UnauthorizedError``, ``UnavailableError``."""


class Authentication:
    """Asks the methods in turn; ``None`` instead of methods: every caller is ``ANYBODY``.

    ``challenge`` is the value of ``WWW-Authenticate``. ``callers`` counts failed logins only.
    """

    def __init__(
        self, methods: Sequence[Method] | None, callers: Callers, clock: Clock, *, challenge: str = "Bearer"
    ) -> None:
        self._methods = methods
        self._callers = callers
        self._clock = clock
        self._challenge = challenge

    @property
    def is_disabled(self) -> bool:
        return self._methods is None

    def identify(self, env: Mapping[str, Any]) -> Identity:
        """Return who sent the request with this WSGI environ.

        ``UnauthorizedError``; ``TooManyError`` after too many failures of its source; ``UnavailableError``.
        """
        if self._methods is None:
            return ANYBODY
        headers = {name: str(env[key]) for name, key in _HEADERS.items() if key in env}
        if not headers:
            raise self._refusal("Authentication is required.")
        source = self._callers.source(env)
        if wait := self._callers.wait(source, self._clock.monotonic()):
            return self._known(headers, wait)
        try:
            for method in self._methods:
                identity = method.identify(headers)
                if identity is not None:
                    return identity
        except UnauthorizedError as exc:
            self._callers.failed(source, self._clock.monotonic())
            raise self._refusal(exc.message) from None
        raise self._refusal("The credentials are of a kind that is not enabled ([api] auth_strategy).")

    def issue(self, env: Mapping[str, Any], login: PasswordLogin) -> str:
        """Return a token for a user name and a password; the errors of ``identify``."""
        source = self._callers.source(env)
        if wait := self._callers.wait(source, self._clock.monotonic()):
            raise _too_many(wait)
        for method in self._methods or ():
            if isinstance(method, Issues):
                try:
                    return method.issue(login)
                except UnauthorizedError as exc:
                    self._callers.failed(source, self._clock.monotonic())
                    raise self._refusal(exc.message) from None
        raise self._refusal("Passwords are of a kind that is not enabled ([api] auth_strategy).")

    def _known(self, headers: Mapping[str, str], wait: int) -> Identity:
        for method in self._methods or ():
            identity = method.known(headers)
            if identity is not None:
                return identity
        raise _too_many(wait)

    def _refusal(self, message: str) -> UnauthorizedError:
        return UnauthorizedError(message, {"WWW-Authenticate": self._challenge})


def _too_many(wait: int) -> TooManyError:
    return TooManyError("Too many failed logins from this address; try again later.", {"Retry-After": str(wait)})
