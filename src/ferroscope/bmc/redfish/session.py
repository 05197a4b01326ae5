"""Persistent connections to Redfish services: a session is opened once, not for each call.

At most ``limit`` are kept; the least recently used one is closed first. A client is used by one thread at a time.
sushy's own retries are disabled, because they sleep beyond any deadline.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import logging
import math
import ssl
import threading
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import urljoin

import requests
from sushy import auth as sushy_auth
from sushy import connector as sushy_connector
from sushy import exceptions as sushy
from sushy import main as sushy_main

from ferroscope.bmc.redfish.info import Access, tls_context
from ferroscope.contracts.errors import BmcError
from ferroscope.core.reasons import Reason
from ferroscope.core.values import MASK, WITHHELD, is_too_short
from ferroscope.remote.deadline import Deadline, DeadlineError, current
from ferroscope.remote.resolver import ANYWHERE, Networks
from ferroscope.remote.session import BoundedSession, TooLargeError

_MAX_MESSAGE: Final = 300
# Busy or locked: the same call may succeed later.
_TRANSIENT: Final = frozenset({408, 409, 412, 423, 425, 429, 500, 502, 503, 504})


def translate(error: Exception, access: Access, what: str, seconds: float) -> BmcError:
    """Return the ``BmcError`` for ``error``, which was raised by ``what`` on the BMC of ``access``.

    docs/explanation/bmc-failures.md has the same failure matrix.
    """
    message, transient, reason = _classify(error, seconds)
    if is_too_short(access.password):
        return BmcError(f"{what} at {access.url}: {reason} ({WITHHELD})", transient=transient, reason=reason)
    return BmcError(scrub(f"{what} at {access.url}: {message}", access), transient=transient, reason=reason)


def scrub(text: str, access: Access) -> str:
    """Return ``text`` without the password in any encoding, and not too long."""
    if access.password:
        pair = base64.b64encode(f"{access.username}:{access.password}".encode()).decode()
        for secret in (pair, access.password):
            text = text.replace(secret, MASK)
    return text if len(text) <= _MAX_MESSAGE else f"{text[:_MAX_MESSAGE]}…"


def is_rejected_login(error: Exception) -> bool:
    """Whether the BMC responded with 401: the session has ended, or the credentials are wrong."""
    return isinstance(error, sushy.AccessError) and error.status_code == 401


def _classify(error: Exception, seconds: float) -> tuple[str, bool, Reason]:
    if isinstance(error, DeadlineError):
        return f"timed out after {seconds:g} s", True, Reason.BMC_UNREACHABLE
    if isinstance(error, sushy.HTTPError):
        return _answered(error)
    if isinstance(error, sushy.ConnectionError | requests.exceptions.RequestException):
        return _unanswered(error)
    if isinstance(error, sushy.SushyError):
        return f"the BMC does not support this: {error}", False, Reason.BMC_REFUSED
    if isinstance(error, OSError):
        return f"{error.strerror or error}", False, Reason.BMC_CERTIFICATE  # a missing CA file
    if isinstance(error.__context__, sushy.SushyError):  # sushy failed while parsing an error response
        return _classify(error.__context__, seconds)
    # Any exception that sushy raises for a response that violates the standard.
    return f"invalid response ({type(error).__name__})", False, Reason.BMC_REFUSED


def _answered(error: sushy.HTTPError) -> tuple[str, bool, Reason]:
    code = error.status_code
    status = f"HTTP {code}" + (f": {error.detail}" if error.detail else "")
    if code == 401:
        return f"the credentials were rejected ({status})", False, Reason.BMC_CREDENTIALS
    if code == 403:
        return f"the account lacks the privilege for this ({status})", False, Reason.BMC_REFUSED
    if code in _TRANSIENT:
        return f"the BMC is temporarily unavailable ({status})", True, Reason.BMC_UNREACHABLE
    return f"the BMC refused ({status})", False, Reason.BMC_REFUSED


def _unanswered(error: Exception) -> tuple[str, bool, Reason]:
    chain = list(_chain(error))
    for cause in chain:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"the certificate is not trusted: {cause.verify_message}", False, Reason.BMC_CERTIFICATE
        if isinstance(cause, TooLargeError):
            return str(cause), False, Reason.BMC_REFUSED
        if isinstance(cause, ssl.SSLError) and _is_disagreement(cause):
            options = "redfish_tls_minimum_version and redfish_tls_ciphers"
            message = f"TLS handshake failed: no common version or cipher ({cause.reason}); see {options}"
            return message, True, Reason.BMC_UNREACHABLE
        if isinstance(cause, DeadlineError):
            return "timed out", True, Reason.BMC_UNREACHABLE
    if any(isinstance(cause, requests.exceptions.JSONDecodeError) for cause in chain):
        return "the response is not JSON; is this a Redfish service?", False, Reason.BMC_REFUSED
    return f"cannot connect ({_innermost(chain)})", True, Reason.BMC_UNREACHABLE


def _is_disagreement(error: ssl.SSLError) -> bool:
    """Whether version or cipher negotiation failed, as opposed to a handshake that was cut off."""
    return any(word in str(error.reason) for word in ("PROTOCOL_VERSION", "UNSUPPORTED", "HANDSHAKE_FAILURE"))


def _chain(error: BaseException) -> list[BaseException]:
    """Return the error and its causes, outermost first."""
    found: list[BaseException] = []
    pending: list[BaseException] = [error]
    while pending and len(found) < 30:
        cause = pending.pop(0)
        if cause in found:
            continue
        found.append(cause)
        nested = (cause.__cause__, cause.__context__, getattr(cause, "reason", None), *cause.args)
        pending += [inner for inner in nested if isinstance(inner, BaseException)]
    return found


def _innermost(chain: list[BaseException]) -> str:
    plain = [cause for cause in chain if isinstance(cause, OSError) and cause.strerror]
    named = [str(cause).rpartition(": ")[2] for cause in chain if type(cause).__name__ == "NameResolutionError"]
    if plain:
        return str(plain[-1].strerror)
    return named[0] if named else str(chain[-1])[:120]


_LOGOUT_TIMEOUT: Final = 2.0  # seconds for closing a session


class _Connector(sushy_connector.Connector):  # type: ignore[misc]
    """sushy's connector over a bounded session, with the remaining time as its time-out."""

    _session: Any

    def __init__(self, access: Access, allowed: Networks) -> None:
        super().__init__(access.url, verify=access.verify, server_side_retries=1, server_side_retries_delay=0)
        plain, self._session = self._session, BoundedSession(access.url, tls_context(access), allowed)
        self._session.headers.update(plain.headers)
        plain.close()

    def _op(self, method: str, path: str = "", **kwargs: Any) -> Any:
        url = urljoin(self._url, path)
        if not self._session.belongs(url):
            message = f"the BMC at {self._url} redirects to another host, which is not allowed"
            raise BmcError(message, transient=False, reason=Reason.BMC_REFUSED)
        if method != "GET":
            # A BMC may close an idle connection at any time. A read that was lost by that is repeated, but not a
            # command: it is unknown whether the command has arrived.
            self._session.part()
        most = kwargs.get("timeout") or math.inf
        try:
            return super()._op(method, path, **kwargs | {"timeout": min(most, current().left())})
        except sushy.ConnectionError as exc:
            # A call consists of many requests: one lost response must not repeat all of them.
            if method != "GET" or isinstance(exc.__context__, requests.exceptions.SSLError):
                raise
            return super()._op(method, path, **kwargs | {"timeout": min(most, current().left())})


class _NoAuth(sushy_auth.AuthBase):  # type: ignore[misc]
    """For services without credentials."""

    def _do_authenticate(self) -> None:
        pass

    def can_refresh_session(self) -> bool:
        return False


class _SessionElseBasic(sushy_auth.SessionOrBasicAuth):  # type: ignore[misc]
    """Session authentication, or basic authentication if the service has no sessions; a busy service is retried."""

    def _do_authenticate(self) -> None:
        try:
            sushy_auth.SessionAuth._do_authenticate(self)
        except sushy.ConnectionError:
            raise
        except sushy.SushyError as exc:
            if getattr(exc, "status_code", 0) in (429, 500, 502, 503, 504) or self._session_auth_previously_successful:
                raise
            self._fallback_to_basic_authentication()


_AUTH: Final = {
    "auto": _SessionElseBasic,
    "session": sushy_auth.SessionAuth,
    "basic": sushy_auth.BasicAuth,
}


class Client:
    """One service. ``root`` is opened with the first use; ``fresh``: no call has succeeded with it yet."""

    def __init__(self, access: Access, allowed: Networks) -> None:
        self._access = access
        self._allowed = allowed
        self._lock = threading.Lock()
        self._root: Any = None
        self.fresh = True

    @contextlib.contextmanager
    def use(self) -> Iterator[Any]:
        """Yield the service root for exclusive use; ``DeadlineError`` if other threads use it for too long."""
        if not self._lock.acquire(timeout=current().left()):
            raise DeadlineError
        try:
            if self._root is None:
                self._root = self._open()
            yield self._root
            self.fresh = False
        finally:
            self._lock.release()

    def _open(self) -> Any:
        access = self._access
        kind = _AUTH[access.auth_type] if access.username is not None else _NoAuth
        auth = kind(username=access.username, password=access.password)
        return sushy_main.Sushy(
            access.url,
            root_prefix=access.root,
            verify=access.verify,
            auth=auth,
            connector=_Connector(access, self._allowed),
        )

    def close(self) -> None:
        """Log out, within at most two seconds, and forget the session."""
        with self._lock:
            root, self._root = self._root, None
        if root is None:
            return
        auth, root._auth = root._auth, None  # otherwise its destructor would log out at any time
        with contextlib.suppress(Exception), Deadline(_LOGOUT_TIMEOUT):
            auth.close()
        root._conn.close()


class Clients:
    """The clients of a process, by access; ``allowed`` are the networks in which BMCs may be."""

    def __init__(self, *, limit: int = 256, allowed: Networks = ANYWHERE) -> None:
        self._limit = limit
        self._allowed = allowed
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[Any, ...], Client] = OrderedDict()
        # sushy's log messages duplicate our errors, and may contain what a BMC echoes, such as a password.
        logging.getLogger("sushy").setLevel(logging.CRITICAL + 1)

    def get(self, access: Access) -> Client:
        """Return the existing client for ``access``, or a new one."""
        key = _key(access)
        with self._lock:
            client = self._kept.setdefault(key, Client(access, self._allowed))
            self._kept.move_to_end(key)
            surplus = [self._kept.popitem(last=False)[1] for _ in range(len(self._kept) - self._limit)]
        self._part(surplus)
        return client

    def drop(self, access: Access, client: Client) -> None:
        """Forget ``client``, whose session is invalid."""
        key = _key(access)
        with self._lock:
            if self._kept.get(key) is client:
                del self._kept[key]

    def close(self) -> None:
        """Log out of all services."""
        with self._lock:
            kept = list(self._kept.values())
            self._kept.clear()
        self._part(kept)

    @staticmethod
    def _part(clients: list[Client]) -> None:
        # In a separate thread: logging out must not take time from the call that caused it.
        for client in clients:
            threading.Thread(target=client.close, name="redfish log-out", daemon=True).start()


def _key(access: Access) -> tuple[Any, ...]:
    secret = hashlib.sha256(access.password.encode()).hexdigest()
    how = (access.verify, access.auth_type, access.tls_minimum, access.tls_ciphers)
    return access.url, access.root, access.username, secret, *how
