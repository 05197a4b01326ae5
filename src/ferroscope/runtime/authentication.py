"""Builds what identifies callers and decides what they may do, as configured; also for the metrics port.

Methods that are not configured are not imported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ferroscope.config.followed import FileError
from ferroscope.config.options import Settings
from ferroscope.config.security_options import problem
from ferroscope.contracts.queue import Clock
from ferroscope.contracts.store import Store
from ferroscope.runtime.system import SetupError

if TYPE_CHECKING:
    from ferroscope.api.auth.authentication import Authentication, Method
    from ferroscope.api.auth.policy import Policy

# Passwords are worth more attempts to an attacker than MAC addresses, and cost more to check.
_LOGINS: Final = 20


def build_authentication(settings: Settings, clock: Clock, store: Store | None = None) -> Authentication:
    """Return what identifies callers, without a store not by access tokens; ``SetupError``."""
    from ferroscope.api.auth.authentication import Authentication
    from ferroscope.api.http.rate_limit import Callers

    logins = msgspec.structs.replace(settings.api, failure_burst=min(settings.api.failure_burst, _LOGINS))
    methods = None if settings.api.auth_strategy == "noauth" else list(_methods(settings, clock, store))
    return Authentication(methods, Callers(logins), clock, challenge=_challenge(settings))


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


def metrics_check(settings: Settings, clock: Clock, store: Store) -> Callable[[dict[str, Any]], None] | None:
    """Return what raises an ``ApiError`` if the sender of a request may not read the metrics; ``SetupError``.

    None if everybody may, which is the default; a worker then needs no file of users.
    """
    if settings.api.auth_strategy == "noauth" or not settings.oslo_policy.policy_file:
        return None
    from ferroscope.api.auth import access

    policy, authentication = build_policy(settings, clock), build_authentication(settings, clock, store)

    def check(environ: dict[str, Any]) -> None:
        access.authorize(policy, (access.METRICS,), lambda: authentication.identify(environ), _no_node, {})

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
        raise SetupError(f"[api] auth_strategy is keystone, but {wrong}", "see docs/how-to/secure-the-service.md")
    try:
        from ferroscope.api.auth.keystone import KeystoneAuth

        return KeystoneAuth(settings.keystone_authtoken, clock, threads=settings.api.threads)
    except ImportError as exc:
        raise SetupError(
            f"[api] auth_strategy = keystone needs the Python package {exc.name}, which is not installed",
            "install Ferroscope with [keystone], for example: pip install '.[keystone]'",
        ) from exc
