"""Authentication with Keystone's tokens, which keystonemiddleware validates.

Its ``auth_token`` is used as a library and not as WSGI middleware: it is only asked for calls that need an identity, so
calls of ramdisks and health checks never wait for Keystone. An identity is kept for ``token_cache_time`` seconds,
because evaluating a cached token in the middleware takes longer than the rest of a call.

Keystone's answers are not trusted: a call is limited in time and size, and redirects are not followed.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections import OrderedDict, defaultdict
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import msgspec
import structlog

from ferroscope.api.auth.authentication import Remembered
from ferroscope.api.auth.identity import Identity, PasswordLogin
from ferroscope.api.errors import UnauthorizedError, UnavailableError
from ferroscope.config.security_options import KeystoneSettings
from ferroscope.contracts.store import Clock
from ferroscope.remote.deadline import Deadline, DeadlineError
from ferroscope.remote.session import BoundedSession
from ferroscope.telemetry.log import QuietLog
from ferroscope_client.core.values import one_line

_log = structlog.get_logger(__name__)

_MAX_REMEMBERED_TOKENS: Final = 4096
# Seconds for which Keystone is not asked again about a token that it refused.
_WRONG_SECONDS: Final = 10.0
# Longer than any kind of token.
_MAX_TOKEN_CHARACTERS: Final = 16 * 1024
_RETRY_AFTER: Final = "5"
# Seconds that a call waits for its turn to ask Keystone, and for which no call asks after Keystone did not answer.
_TURN_SECONDS: Final = 0.25
_REST_SECONDS: Final = 1.0
# Seconds in which an outage of Keystone is logged once.
_QUIET_SECONDS: Final = 60.0
_MAX_LOGGED_CHARACTERS: Final = 500  # characters of each text in a message
_GROUP: Final = "keystone_authtoken"


class KeystoneAuth:
    """One instance serves all threads. ``ImportError`` if keystonemiddleware is not installed."""

    def __init__(self, settings: KeystoneSettings, clock: Clock, *, threads: int = 4) -> None:
        """``threads``: the API's threads, of which two never wait for Keystone."""
        from keystonemiddleware import auth_token
        from keystonemiddleware.auth_token import _request

        self._request = _request._AuthTokenRequest
        self._middleware = auth_token.AuthProtocol(None, {"oslo_config_config": _configuration(settings)})
        self._middleware._session.session = BoundedSession(settings.auth_url)
        self._middleware._session.redirect = False
        self._settings = settings
        # Of one call, which may be three requests: the versions, our own token, the caller's.
        self._call_seconds = float(settings.http_connect_timeout * (1 + settings.http_request_max_retries))
        self._clock = clock
        self._valid_for = float(settings.token_cache_time)
        self._lock = threading.Lock()
        self._known: OrderedDict[bytes, tuple[float, Identity]] = OrderedDict()
        self._wrong = Remembered(_MAX_REMEMBERED_TOKENS, _WRONG_SECONDS, prolong=False)
        self._outages = QuietLog(burst=1, period=_QUIET_SECONDS)
        # It logs each token that it could not validate, as critical.
        logging.getLogger(auth_token.__name__).filters[:] = [_OncePerPeriod(clock)]
        self._turns = threading.BoundedSemaphore(max(1, threads - 2))
        self._rests_until = float("-inf")

    def claimed_name(self, headers: Mapping[str, str]) -> str | None:
        """Return "", because a token does not name its user; None without one."""
        return "" if headers.get("x-auth-token") else None

    def was_wrong(self, headers: Mapping[str, str]) -> bool:
        """Whether Keystone has refused this token a moment ago."""
        return self._wrong.is_remembered(_key(headers), self._clock.monotonic())

    def remembered_identity(self, headers: Mapping[str, str]) -> Identity | None:
        """Return the identity of a token that was validated recently."""
        with self._lock:
            until, identity = self._known.get(_key(headers), (0.0, None))
        return identity if until > self._clock.monotonic() else None

    def identify(self, headers: Mapping[str, str]) -> Identity | None:
        """Return the identity of the token in X-Auth-Token, None without one."""
        token = headers.get("x-auth-token", "")
        if not token:
            return None
        cached = self.remembered_identity(headers)
        if cached is not None:
            return cached
        if (
            len(token) > _MAX_TOKEN_CHARACTERS
            or not token.isascii()
            or not token.isprintable()
            or self.was_wrong(headers)
        ):
            raise UnauthorizedError("The token is invalid.")
        if self._clock.monotonic() < self._rests_until or not self._turns.acquire(timeout=_TURN_SECONDS):
            raise _unavailable()
        try:
            identity, expires = self._validate(headers)
        except UnauthorizedError:
            self._wrong.add(_key(headers), self._clock.monotonic())
            raise
        finally:
            self._turns.release()
        with self._lock:
            self._known[_key(headers)] = (self._clock.monotonic() + min(self._valid_for, expires), identity)
            if len(self._known) > _MAX_REMEMBERED_TOKENS:
                self._known.popitem(last=False)
        return identity

    def issue(self, login: PasswordLogin) -> str:
        """Return a new token of Keystone; see ``authentication.Issues``."""
        from keystoneauth1.exceptions import ClientException, HTTPClientError
        from keystoneauth1.identity import Password

        project = login.project if not login.system else ""
        plugin = Password(
            auth_url=self._settings.auth_url,
            username=login.user,
            password=login.password,
            user_domain_name=login.domain,
            system_scope="all" if login.system else None,
            project_name=project or None,
            project_domain_name=login.domain if project else None,
        )
        if self._clock.monotonic() < self._rests_until or not self._turns.acquire(timeout=_TURN_SECONDS):
            raise _unavailable()
        try:
            with Deadline(self._call_seconds):
                return str(plugin.get_token(self._session()))
        except HTTPClientError:
            raise UnauthorizedError("Keystone rejected the user name, the password or the project.") from None
        except (ClientException, OSError, DeadlineError) as fault:
            left_out = self._outages.admit(self._clock.monotonic())
            if left_out is not None:
                _log.error("cannot log in with Keystone", why=type(fault).__name__, left_out=left_out)
            self._rests_until = self._clock.monotonic() + _REST_SECONDS
            raise _unavailable() from None
        finally:
            self._turns.release()

    def _session(self) -> Any:
        from keystoneauth1.session import Session

        settings = self._settings
        certificate = (settings.certfile, settings.keyfile) if settings.certfile else None
        return Session(
            session=BoundedSession(settings.auth_url),
            verify=not settings.insecure and (settings.cafile or True),
            cert=certificate,
            timeout=settings.http_connect_timeout,
            redirect=False,
        )

    def _validate(self, headers: Mapping[str, str]) -> tuple[Identity, float]:
        """Return the identity, and for how many more seconds the token is valid."""
        from keystoneauth1.exceptions import ClientException
        from keystonemiddleware.auth_token import webob

        names = {"x-auth-token": "X-Auth-Token", "x-service-token": "X-Service-Token"}
        request = self._request.blank("/", headers={names[name]: headers[name] for name in names if name in headers})
        try:
            with Deadline(self._call_seconds):
                self._middleware.process_request(request)
        except webob.exc.HTTPUnauthorized:
            raise UnauthorizedError("The token is invalid or has expired.") from None
        except (webob.exc.HTTPServiceUnavailable, ClientException, OSError, DeadlineError) as fault:
            left_out = self._outages.admit(self._clock.monotonic())
            if left_out is not None:
                _log.error("cannot validate tokens with Keystone", why=str(fault), left_out=left_out)
            self._rests_until = self._clock.monotonic() + _REST_SECONDS
            raise _unavailable() from None
        return identity_of(request.headers), _seconds_left(request, self._clock)


class _OncePerPeriod(logging.Filter):
    """Lets each kind of message through once in ``_QUIET_SECONDS``, with a part of Keystone's answer."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self._kinds: defaultdict[str, QuietLog] = defaultdict(lambda: QuietLog(burst=1, period=_QUIET_SECONDS))

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(one_line(str(argument), _MAX_LOGGED_CHARACTERS) for argument in record.args)
        return self._kinds[str(record.msg)].admit(self._clock.monotonic()) is not None


def _unavailable() -> UnavailableError:
    return UnavailableError(
        "Keystone is unavailable, so the token cannot be validated; try again.", {"Retry-After": _RETRY_AFTER}
    )


def identity_of(headers: Mapping[str, str]) -> Identity:
    """Return the identity that keystonemiddleware describes in headers; their names are documented there."""
    return Identity(
        user=headers.get("X-User-Name") or headers["X-User-Id"],
        method="keystone",
        roles=frozenset(role for role in headers.get("X-Roles", "").split(",") if role),
        user_id=headers["X-User-Id"],
        project_id=headers.get("X-Project-Id"),
        project_name=headers.get("X-Project-Name"),
        domain_id=headers.get("X-Project-Domain-Id"),
        domain_name=headers.get("X-Project-Domain-Name"),
        system_scope=headers.get("OpenStack-System-Scope") == "all",
    )


def _seconds_left(request: Any, clock: Clock) -> float:
    # It is 0 for an expired token that a service token has made acceptable.
    expires = datetime.fromisoformat(request.token_info["token"]["expires_at"])
    return max(0.0, expires.timestamp() - clock.time())


def _key(headers: Mapping[str, str]) -> bytes:
    parts = (headers.get("x-auth-token", ""), headers.get("x-service-token", ""))
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).digest()


def _configuration(settings: KeystoneSettings) -> Any:
    """Return the middleware's configuration, from our own settings instead of files that it would read."""
    from keystoneauth1 import loading
    from keystonemiddleware import auth_token
    from oslo_config import cfg

    conf = cfg.ConfigOpts()
    conf([], project="ferroscope", default_config_files=[], default_config_dirs=[])
    for group, options in auth_token.list_opts():
        conf.register_opts(options, group=group)
    conf.register_opts(loading.get_auth_plugin_conf_options(settings.auth_type), group=_GROUP)
    for name, value in msgspec.structs.asdict(settings).items():
        if value not in ("", ()) and name in conf[_GROUP]:
            conf.set_override(name, list(value) if isinstance(value, tuple) else value, group=_GROUP)
    # Only calls that need an identity come here. Its own cache in the process would prolong ours.
    conf.set_override("delay_auth_decision", False, group=_GROUP)
    conf.set_override("service_token_roles_required", True, group=_GROUP)
    if not settings.memcached_servers:
        conf.set_override("token_cache_time", -1, group=_GROUP)
    return conf
