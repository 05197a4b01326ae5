"""``CoordinationService`` on Kubernetes: each session is a Lease object, which its member renews.

Clocks are not compared: a session lasts as long as this process has seen its Lease change within the lease's duration,
by its own monotonic clock, as client-go does. A Lease counts only after it was seen to be renewed, so what a dead
process left is no member. There is no watch, hence no 410: a watch would report each renewal of everybody.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

import httpx2
import msgspec
from lightkube import ApiError, Client, KubeConfig
from lightkube.config import kubeconfig
from lightkube.core.exceptions import ConfigError
from lightkube.resources.coordination_v1 import Lease
from lightkube.types import PatchType

from ferroscope.config.coordination_options import CoordinationSettings
from ferroscope.contracts.store import CoordinationRefusedError, CoordinationUnavailableError, StopFlag

LABELS: Final = {"app.kubernetes.io/name": "ferroscope", "app.kubernetes.io/component": "member"}
RULE: Final = "apiGroups [coordination.k8s.io], resources [leases], verbs [create, delete, list, patch]"
_RENEWALS_PER_SESSION: Final = 3  # in the time of one session
_MAX_SESSION_SECONDS: Final = 60  # seconds that another member's session may last, whatever its Lease says
_FORGOTTEN_AFTER_SESSIONS: Final = 20  # sessions after which a Lease that nobody renews is deleted
_REFUSALS: Final = frozenset({401, 403, 404, 422})

for _name in ("httpx", "httpx2"):
    logging.getLogger(_name).setLevel(logging.CRITICAL)  # they log each request


class _LeaseSighting(msgspec.Struct):
    """Another session: what its Lease said last, since when, and whether it was renewed since it was first seen."""

    renewed: Any
    at: float
    counts: bool = False


class KubernetesService:
    """One session after the other, each with a Lease object of its own.

    ``CoordinationRefusedError`` if there is no configuration to reach an API server with.
    """

    def __init__(self, settings: CoordinationSettings, member: str, stop: StopFlag) -> None:
        self._settings = settings
        self._member = member
        self._stop = stop
        self._session = settings.session_timeout
        self._config = _load(settings)
        self._namespace = settings.namespace or self._config.namespace
        self._client: Client | None = None
        self._lease = ""
        self._renewed_at = 0.0
        self._sightings: dict[str, _LeaseSighting] = {}

    def join(self) -> None:
        self.leave()
        self._sightings = {}
        try:
            with self._translate_errors("create"):
                self._create()
        except CoordinationUnavailableError:
            self.leave()
            raise

    def _create(self) -> None:
        """Connect, and create the Lease of a new session."""
        self._config = _load(self._settings)  # the file may be another one now
        patience = httpx2.Timeout(max(1.0, self._session / 2))
        self._client = Client(self._config, namespace=self._namespace, timeout=patience, trust_env=False)
        asked_at = time.monotonic()
        name = f"ferroscope-{uuid.uuid4()}"
        spec = {"holderIdentity": self._member, "leaseDurationSeconds": self._session, "renewTime": _now()}
        about = {"name": name, "namespace": self._namespace, "labels": LABELS}
        lease: Any = Lease.from_dict({"metadata": about, "spec": spec})
        self._client.create(lease)
        self._lease, self._renewed_at = name, asked_at

    def alive(self) -> frozenset[str]:
        asked_at = time.monotonic()
        has_session = asked_at - self._renewed_at < self._session
        if has_session and asked_at - self._renewed_at >= self._session / _RENEWALS_PER_SESSION:
            has_session = self._renew(asked_at)
        with self._translate_errors("list"):
            leases = list(self._require_client().list(Lease, namespace=self._namespace, labels=dict(LABELS)))
        now = time.monotonic()
        others = self._observe(leases, now)
        return others | {self._member} if has_session and now - self._renewed_at < self._session else others

    def wait(self, timeout: float) -> None:
        self._stop.wait(timeout)

    def leave(self) -> None:
        client, self._client = self._client, None
        if client is None:
            return
        # Whatever fails here ends when the session expires.
        with contextlib.suppress(Exception):
            if self._lease:
                client.delete(Lease, self._lease, namespace=self._namespace)
        with contextlib.suppress(Exception):
            client.close()
        self._lease = ""

    def _renew(self, asked_at: float) -> bool:
        """Prolong our session; return False if it has ended, because somebody deleted its Lease."""
        with self._translate_errors("patch"):
            body = {"spec": {"renewTime": _now()}}
            try:
                self._require_client().patch(
                    Lease, self._lease, body, namespace=self._namespace, patch_type=PatchType.MERGE
                )
            except ApiError as exc:
                if exc.status.code == 404:
                    return False
                raise
        self._renewed_at = asked_at
        return True

    def _observe(self, leases: list[Any], now: float) -> frozenset[str]:
        """Note which of these Leases have changed; return whose sessions last. Delete what is long over."""
        members, sightings, over = set(), {}, ""
        for lease in leases:
            name, spec = lease.metadata.name, lease.spec
            if name == self._lease or spec is None:
                continue
            sighting = self._sightings.get(name)
            if sighting is None:
                sighting = _LeaseSighting(spec.renewTime, now)
            elif sighting.renewed != spec.renewTime:
                sighting = _LeaseSighting(spec.renewTime, now, counts=True)
            sightings[name] = sighting
            lasts = min(spec.leaseDurationSeconds or 0, _MAX_SESSION_SECONDS)
            silent = now - sighting.at
            if sighting.counts and spec.holderIdentity and silent < lasts:
                members.add(spec.holderIdentity)
            elif silent > max(lasts, self._session) * _FORGOTTEN_AFTER_SESSIONS:
                over = name
        self._sightings = sightings
        if over:  # one at a time: a call may take long, and it is not urgent
            with contextlib.suppress(Exception):  # another member may have been faster
                self._require_client().delete(Lease, over, namespace=self._namespace)
        return frozenset(members)

    def _require_client(self) -> Client:
        if self._client is None:
            raise CoordinationUnavailableError("not connected")
        return self._client

    @contextlib.contextmanager
    def _translate_errors(self, verb: str) -> Iterator[None]:
        """Turn whatever the client raises into our errors, without credentials."""
        try:
            yield
        except CoordinationUnavailableError:
            raise
        except ApiError as exc:
            kind = CoordinationRefusedError if exc.status.code in _REFUSALS else CoordinationUnavailableError
            raise kind(self._explain(exc, verb)) from None
        except Exception as exc:  # noqa: BLE001  # the client's, and those of its HTTP, TLS and JSON
            raise CoordinationUnavailableError(f"{type(exc).__name__}: {exc}"[:300]) from None

    def _explain(self, exc: ApiError, verb: str) -> str:
        code, message = exc.status.code, str(exc.status.message or exc)[:200]
        if code == 401:
            return "the API server rejects the token or client certificate (401)"
        if code == 403:
            rule = f"grant it with a Role in the namespace {self._namespace}: {RULE}"
            return f"permission denied to {verb} leases in the namespace {self._namespace}; {rule}"
        if code == 404 and message.startswith("namespaces "):
            return f"the namespace {self._namespace} does not exist; create it, or set [coordination] namespace"
        if code == 404:
            return "the API server does not serve coordination.k8s.io/v1; Kubernetes 1.14 or newer is required"
        return f"HTTP {code}: {message}"


def _load(settings: CoordinationSettings) -> Any:
    """Return the client's configuration; ``CoordinationRefusedError`` says why there is none."""
    if not settings.kubeconfig and "KUBERNETES_SERVICE_HOST" not in os.environ:
        raise CoordinationRefusedError(
            "this process does not run in a pod (KUBERNETES_SERVICE_HOST is not set); set [coordination] kubeconfig"
        )
    try:
        if settings.kubeconfig:
            config = KubeConfig.from_file(settings.kubeconfig).get()
        else:
            config = KubeConfig.from_service_account(kubeconfig.SERVICE_ACCOUNT).get()
    except (ConfigError, OSError, KeyError) as exc:
        raise CoordinationRefusedError(f"cannot read the configuration of the client: {exc}") from None
    except Exception as exc:  # noqa: BLE001  # YAML and structure of a file that anybody may have written
        where = settings.kubeconfig or kubeconfig.SERVICE_ACCOUNT
        raise CoordinationRefusedError(f"{where} is not a valid kubeconfig ({type(exc).__name__})") from None
    if config is None or not config.cluster.server or config.user is None:
        raise CoordinationRefusedError(f"{settings.kubeconfig} names no server or no user in its current context")
    return config


def _now() -> str:
    """Return the time in the format of Kubernetes; for people only, nobody compares it with a clock."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
