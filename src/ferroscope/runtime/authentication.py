"""Builds what identifies callers and decides what they may do, as configured; also for the metrics port.

Methods that are not configured are not imported. What ``ferroscope token`` does is here, too: it works on the service's
own database, so no running service and no login is needed.
"""

from __future__ import annotations

import os
import pwd
import secrets
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from ferroscope.config.added import backend
from ferroscope.config.errors import SetupError
from ferroscope.config.followed import FileError
from ferroscope.config.options import Settings
from ferroscope.config.security_options import problem
from ferroscope.contracts.errors import NotFoundError
from ferroscope.contracts.queue import Clock
from ferroscope.core import credentials
from ferroscope.core.audit import AuditEvent, claimed
from ferroscope.core.credentials import AccessToken
from ferroscope.db.store import Store
from ferroscope.db.transaction import Transaction
from ferroscope.runtime.backend import opened

if TYPE_CHECKING:
    from ferroscope.api.auth.authentication import Authentication, Method
    from ferroscope.api.auth.policy import Policy


def build_authentication(settings: Settings, clock: Clock, store: Store | None = None) -> Authentication:
    """Return what identifies callers, without a store not by access tokens; ``SetupError``."""
    from ferroscope.api.auth.authentication import Authentication
    from ferroscope.api.auth.failures import FailedLogins

    methods = None if settings.api.auth_strategy == "noauth" else list(_methods(settings, clock, store))
    return Authentication(methods, FailedLogins(settings.api), clock, challenge=_challenge(settings))


def build_policy(settings: Settings, clock: Clock, *, needed: bool = True) -> Policy:
    """Return the policies with the configured overrides; ``SetupError``.

    Unless ``needed``, a service without authentication and overrides gets one that allows everything.
    """
    from ferroscope.api.auth.policy import NoPolicy, Policy

    file = settings.oslo_policy.policy_file
    if not (needed or file or settings.api.auth_strategy != "noauth"):
        return NoPolicy()
    try:
        return Policy(clock, file=file, service_project=settings.keystone_authtoken.project_name)
    except FileError as exc:
        raise SetupError(str(exc), "correct [oslo_policy] policy_file or the file") from exc


def metrics_check(
    settings: Settings, clock: Clock, store: Store | None = None
) -> Callable[[dict[str, Any]], None] | None:
    """Return what raises an ``ApiError`` if the sender of a request may not read the metrics; ``SetupError``.

    None if everybody may, which is the default; a worker then needs no file of users.
    """
    if settings.api.auth_strategy == "noauth" or not settings.oslo_policy.policy_file:
        return None
    from ferroscope.api.auth import access
    from ferroscope.api.http.audit import Audit
    from ferroscope.api.http.errors import ApiError

    policy, authentication = build_policy(settings, clock), build_authentication(settings, clock, store)

    log = (
        None if store is None or not settings.audit.enabled else Audit(settings.audit, store, clock, process="metrics")
    )

    def check(environ: dict[str, Any]) -> None:
        try:
            access.authorize(policy, (access.METRICS,), lambda: authentication.identify(environ), _no_node, {})
        except ApiError as exc:
            if log is not None and exc.status in (401, 403, 429):
                log.write_counts()
                log.refused(
                    AuditEvent(
                        request_id="",
                        user=claimed(authentication.claimed(environ)),
                        method="none",
                        source=authentication.source(environ),
                        policy=access.METRICS,
                        call="GET /metrics",
                        status=exc.status,
                    )
                )
            raise

    return check


def _no_node(_: object) -> Any:
    raise LookupError("metrics do not belong to a node")


def _challenge(settings: Settings) -> str:
    """Return how callers may authenticate, for ``WWW-Authenticate``."""
    if settings.api.auth_strategy == "keystone":
        keystone = settings.keystone_authtoken
        return f'Keystone uri="{keystone.www_authenticate_uri or keystone.auth_url}"'
    return 'Basic realm="Ferroscope", charset="UTF-8"'


def _methods(settings: Settings, clock: Clock, store: Store | None) -> Iterable[Method]:
    if store is not None:
        from ferroscope.api.auth.tokens import TokenAuth

        yield TokenAuth(store, clock)
    yield (
        _basic_auth(settings, clock) if settings.api.auth_strategy == "http_basic" else _keystone_auth(settings, clock)
    )
    if settings.api.tls_client_roles_file:  # last: who sends other credentials wants to use those
        yield _certificate_auth(settings, clock)


def _basic_auth(settings: Settings, clock: Clock) -> Method:
    from ferroscope.api.auth.http_basic import BasicAuth

    file = settings.api.http_basic_auth_user_file
    advice = f"create it with: ferroscope user add NAME --role admin --file {file}"
    with _usable(f"the user file {file} ([api] http_basic_auth_user_file)", advice):
        return BasicAuth(file, clock, threads=settings.api.threads)


def _certificate_auth(settings: Settings, clock: Clock) -> Method:
    from ferroscope.api.auth.certificate import CertificateAuth

    file = settings.api.tls_client_roles_file
    advice = "write a line NAME:ROLE for each name of a certificate"
    with _usable(f"the roles file {file} ([api] tls_client_roles_file)", advice):
        return CertificateAuth(file, clock)


@contextmanager
def _usable(file: str, advice: str) -> Iterator[None]:
    try:
        yield
    except (FileError, OSError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else str(exc)
        raise SetupError(f"cannot use {file}: {reason}", advice) from exc


def _keystone_auth(settings: Settings, clock: Clock) -> Method:
    if wrong := problem(settings.keystone_authtoken):
        raise SetupError(f"[api] auth_strategy is keystone, but {wrong}", "see: ferroscope docs secure-the-service")
    try:
        method: Method = backend("api.keystone")(settings.keystone_authtoken, clock, threads=settings.api.threads)
    except ImportError as exc:
        raise SetupError(
            f"[api] auth_strategy = keystone needs the Python package {exc.name}, which is not installed",
            "install Ferroscope with [keystone], for example: pip install '.[keystone]'",
        ) from exc
    return method


class Issued(NamedTuple):
    """A new token: its record, and the text that is shown only now."""

    token: AccessToken
    text: str


def create(
    settings: Settings,
    name: str,
    roles: Sequence[str],
    *,
    project: str | None = None,
    lifetime: float | None = None,
    expires_at: float | None = None,
) -> Issued:
    """Store a new token, which expires after ``lifetime`` seconds or at ``expires_at``; ``ConflictError``."""
    ident, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
    creator = _creator()

    def work(tx: Transaction) -> AccessToken:
        token = AccessToken(
            id=ident,
            name=name,
            digest=credentials.token_digest(secret),
            roles=list(dict.fromkeys(roles)),
            project=project,
            created_at=tx.now,
            created_by=creator,
            expires_at=expires_at if lifetime is None else tx.now + lifetime,
        )
        tx.access_tokens.add(token)
        _record(settings, tx, "token create", token, 201)
        return token

    with opened(settings) as backend:
        return Issued(backend.store.write(work), credentials.token_text(ident, secret))


def listed(settings: Settings) -> tuple[Sequence[AccessToken], float]:
    """Return all tokens, oldest first, and the time by the database's clock."""
    with opened(settings) as backend:
        return backend.store.read(lambda tx: (tx.access_tokens.list(), tx.now))


def revoke(settings: Settings, ident: str) -> AccessToken:
    """Revoke the active token with this ID or name, and return it; ``NotFoundError``."""

    def work(tx: Transaction) -> AccessToken:
        active = [token for token in tx.access_tokens.active() if ident in (token.id, token.name)]
        # Two tokens can have one name if they were created at the same time: both are meant.
        if not [token for token in active if tx.access_tokens.revoke(token.id)]:
            raise NotFoundError("token", ident)
        for token in active:
            _record(settings, tx, "token revoke", token, 200)
        return active[0]

    with opened(settings) as backend:
        return backend.store.write(work)


def _record(settings: Settings, tx: Transaction, command: str, token: AccessToken, status: int) -> None:
    """Append the audit event of a command of this host, in the transaction of the change."""
    if settings.audit.enabled:
        target = f"{token.name} (ID {token.id})"
        tx.audit.append(
            AuditEvent(request_id="", user=_creator(), method="host", call=command, target=target, status=status)
        )


def _creator() -> str:
    """Return the login name of the person at this host, also if they use sudo."""
    try:
        user = os.environ.get("SUDO_USER") or pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"[:255]
