"""``CoordinationService`` through Tooz: etcd, ZooKeeper or Redis, as the scheme of the URL says.

Only Tooz's groups are used, and each call is bounded here where Tooz does not bound it. What was found about Tooz 9.1,
and is guarded against: a heartbeat succeeds although the session has expired and the member has left the group (all
three); etcd's driver raises its client's own errors; ZooKeeper's heartbeat waits without limit while disconnected, and
is not needed, and its start never returns if the connection is lost meanwhile; Redis' client repeats each
call three times with pauses, and Tooz each of these fifteen times; a client that connects again finds its own earlier
entry, which then expires.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import uuid
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import requests
from tooz import ToozError, coordination

from ferroscope.config.coordination_options import CoordinationSettings, client_options
from ferroscope.contracts.store import CoordinationRefusedError, CoordinationUnavailableError, StopFlag
from ferroscope.remote.calls import Deadline, DeadlineError
from ferroscope.remote.session import BoundedSession

_GROUP: Final = b"ferroscope"
# Separates a member's ID from the part that differs for each of its sessions.
_SEPARATOR: Final = "."
_CLIENTS: Final = {"etcd3+http": "etcd3gw", "etcd3+https": "etcd3gw", "zookeeper": "kazoo", "redis": "redis"}
# The errors of the clients that mean wrong credentials, by name: the clients may not be installed.
_REFUSALS: Final = frozenset(
    {
        "AuthenticationError",
        "AuthenticationWrongNumberOfArgsError",
        "NoPermissionError",
        "NoAuthError",
        "AuthFailedError",
    }
)

# The clients log each failed attempt; we log each outage.
for _name in ("kazoo", "tooz", "etcd3gw"):
    logging.getLogger(_name).setLevel(logging.CRITICAL)


class _EtcdSession(BoundedSession):
    """Limits each request of etcd's client in time and size; it may be sent by any thread.

    Nothing of the environment is used: the client's own session prefers ``REQUESTS_CA_BUNDLE`` to ``ca_cert``.
    """

    def __init__(self, client: Any, seconds: float) -> None:
        super().__init__(client.base_url)
        self.verify, self.cert = client.session.verify, client.session.cert
        self._seconds = seconds

    def request(self, *arguments: Any, **options: Any) -> requests.Response:
        with Deadline(self._seconds):
            try:
                return super().request(*arguments, **options)
            except DeadlineError:
                raise requests.exceptions.Timeout(f"no answer within {self._seconds:g} s") from None


class ToozService:
    """One session after the other, each with its own connection and its own entry in the group."""

    def __init__(self, settings: CoordinationSettings, member: str, stop: StopFlag) -> None:
        self._settings = settings
        self._member = member
        self._stop = stop
        self._patience = max(1.0, settings.session_timeout / 2)  # seconds for one call
        self._coordinator: Any = None
        self._has_joined = False
        self._scheme = urlsplit(settings.backend_url).scheme
        importlib.import_module(_CLIENTS[self._scheme])  # otherwise Tooz would say that it has no such driver

    def join(self) -> None:
        self.leave()
        self._has_joined = False
        session = f"{self._member}{_SEPARATOR}{uuid.uuid4().hex[:8]}".encode()
        with self._translate_errors():
            coordinator: Any = coordination.get_coordinator(
                self._settings.backend_url, session, **client_options(self._settings)
            )
            self._coordinator = coordinator
            if self._scheme == "redis":
                _try_once(coordinator)
            elif self._scheme == "zookeeper":
                _limit_start(coordinator, self._patience)
            elif self._scheme.startswith("etcd3"):
                coordinator.client.session = _EtcdSession(coordinator.client, self._patience)
            coordinator.start()
            with contextlib.suppress(coordination.GroupAlreadyExist):
                coordinator.create_group(_GROUP).get(timeout=self._patience)
            coordinator.join_group(_GROUP).get(timeout=self._patience)
            self._has_joined = True

    def alive(self) -> frozenset[str]:
        with self._translate_errors():
            if self._coordinator is None:
                raise ToozError("not connected")
            if self._scheme != "zookeeper":  # whose client keeps the session alive from a thread of its own
                self._coordinator.heartbeat()
            sessions = self._coordinator.get_members(_GROUP).get(timeout=self._patience)
            return frozenset(session.decode().rpartition(_SEPARATOR)[0] for session in sessions)

    def wait(self, timeout: float) -> None:
        self._stop.wait(timeout)

    def leave(self) -> None:
        coordinator, self._coordinator = self._coordinator, None
        if coordinator is None:
            return
        # Whatever fails here ends when the session expires.
        if self._scheme == "zookeeper":  # Tooz would wait without limit, and would not close the sockets
            kazoo = coordinator._coord
            for end in (kazoo.stop, kazoo.close):
                with contextlib.suppress(Exception):
                    end()
        elif self._has_joined:
            with contextlib.suppress(Exception):
                coordinator.stop()

    @contextlib.contextmanager
    def _translate_errors(self) -> Any:
        """Turn whatever Tooz and its clients raise into our errors, without credentials."""
        try:
            yield
        except Exception as exc:  # noqa: BLE001  # the drivers raise errors of three clients and of Tooz
            causes = _causes(exc)
            refused = any(type(cause).__name__ in _REFUSALS for cause in causes)
            reason = next((text for cause in causes if (text := str(cause))), "")  # etcd's client has it in the cause
            kind = CoordinationRefusedError if refused else CoordinationUnavailableError
            raise kind(self._without_credentials(f"{type(exc).__name__}: {reason}")) from None

    def _without_credentials(self, text: str) -> str:
        url = self._settings.backend_url
        parts = urlsplit(url)
        login, password = parts.netloc.rpartition("@")[0], parts.password or ""
        for hidden in (url, parts.query, login, password, unquote(password)):
            if hidden:
                text = text.replace(hidden, "***")
        return text[:300]


def _try_once(coordinator: Any) -> None:
    """Keep Redis' client from repeating failed calls: an outage must be noticed at once."""
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    make = coordinator._make_client

    def make_client(*arguments: Any) -> Any:
        client = make(*arguments)
        client.set_retry(Retry(NoBackoff(), 0))
        return client

    coordinator._make_client = make_client


def _limit_start(coordinator: Any, seconds: float) -> None:
    """Have ZooKeeper's client wait no longer for Tooz's path: it keeps a request until it is connected again."""
    kazoo = coordinator._coord

    def ensure_path(path: str) -> Any:
        return kazoo.ensure_path_async(path).get(timeout=seconds)

    kazoo.ensure_path = ensure_path


def _causes(exc: BaseException | None) -> list[BaseException]:
    causes: list[BaseException] = []
    while exc is not None and exc not in causes:
        causes.append(exc)
        exc = exc.__cause__ or exc.__context__
    return causes
