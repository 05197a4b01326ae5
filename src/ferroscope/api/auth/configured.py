"""Builds what identifies callers and decides what they may do, as configured.

Methods that are not configured are not imported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ferroscope.config.errors import SetupError, extra
from ferroscope.config.followed import ConfigFileError
from ferroscope.config.options import Settings
from ferroscope.config.plugins import backend
from ferroscope.config.security_options import problem
from ferroscope.contracts.store import Clock
from ferroscope.db import Store

if TYPE_CHECKING:
    from ferroscope.api.auth.authentication import Authentication, Method
    from ferroscope.api.auth.policy import Policy


def build_authentication(settings: Settings, clock: Clock, store: Store | None = None) -> Authentication:
    """Return what identifies callers; access tokens need a store. ``SetupError``."""
    from ferroscope.api.auth.authentication import Authentication
    from ferroscope.api.auth.failures import FailedLogins

    methods = None if settings.api.auth_strategy == "noauth" else list(_methods(settings, clock, store))
    return Authentication(methods, FailedLogins(settings.api), clock, challenge=_challenge(settings))


def build_policy(settings: Settings, clock: Clock, *, needed: bool = True) -> Policy:
    """Return the policies with the configured overrides; ``SetupError``.

    Unless ``needed``, a service without authentication and without overrides gets a policy that allows everything.
    """
    from ferroscope.api.auth.policy import NoPolicy, Policy

    file = settings.oslo_policy.policy_file
    if not (needed or file or settings.api.auth_strategy != "noauth"):
        return NoPolicy()
    try:
        keystone = settings.keystone_authtoken
        project, domain = keystone.project_name, keystone.project_domain_name
        return Policy(clock, file=file, service_project=project, service_domain=domain)
    except ConfigFileError as exc:
        raise SetupError(str(exc), "correct [oslo_policy] policy_file or the file") from exc


def policies_without_effect(settings: Settings) -> list[str]:
    """Return the entries of a readable policy file that have no effect, each with the name that was probably meant."""
    from ferroscope.api.auth.policy import overrides, unknown_policies

    return unknown_policies(overrides(settings.oslo_policy.policy_file))


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
    if settings.api.tls_client_roles_file:  # last: a caller who sends other credentials wants to use them
        yield _certificate_auth(settings, clock)


def _basic_auth(settings: Settings, clock: Clock) -> Method:
    from ferroscope.api.auth.http_basic import BasicAuthentication

    file = settings.api.http_basic_auth_user_file
    advice = f"create it with: ferroscope user add NAME --role admin --file {file}"
    with _usable(f"the user file {file} ([api] http_basic_auth_user_file)", advice):
        return BasicAuthentication(file, clock, threads=settings.api.threads)


def _certificate_auth(settings: Settings, clock: Clock) -> Method:
    from ferroscope.api.auth.certificate import CertificateAuth

    file = settings.api.tls_client_roles_file
    advice = "write a line such as CN:deploy.example.org:admin for each name of a certificate"
    with _usable(f"the roles file {file} ([api] tls_client_roles_file)", advice):
        return CertificateAuth(file, clock)


@contextmanager
def _usable(file: str, advice: str) -> Iterator[None]:
    try:
        yield
    except (ConfigFileError, OSError) as exc:
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
            extra("openstack"),
        ) from exc
    return method
