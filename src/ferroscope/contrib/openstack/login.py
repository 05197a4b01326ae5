"""Logins at Ironic as keystoneauth1 knows them: every plugin, or a cloud of clouds.yaml.

keystoneauth1 talks to Keystone only, through a session that is limited in time and size, ignores the environment and
follows no redirect to another host. Its errors become messages without secrets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ferroscope.config.integration_options import PLUGIN_OPTIONS, IronicSettings
from ferroscope.contracts.remote import IronicRefusedError, IronicUnavailableError
from ferroscope.contrib.openstack.client import LoginSetupError
from ferroscope.remote.calls import Deadline, DeadlineError

T = TypeVar("T")


class KeystoneLogin:
    """A plugin of keystoneauth1; ``LoginSetupError``, ``ImportError`` if a package is missing."""

    def __init__(self, settings: IronicSettings) -> None:
        self._settings = settings
        self._cloud = _cloud(settings) if settings.cloud else None
        self._session = _cloud_session(self._cloud, settings) if self._cloud else _session(settings)

    def endpoint(self) -> str:
        settings = self._settings
        if settings.endpoint_override:
            return settings.endpoint_override
        wanted = {
            "service_type": settings.service_type,
            "interface": list(settings.valid_interfaces),
            "region_name": settings.region_name or None,
        }
        if self._cloud is not None:
            configured = self._cloud.get_endpoint(settings.service_type)
            if configured:
                return str(configured)
            wanted["region_name"] = wanted["region_name"] or self._cloud.get_region_name(settings.service_type)
        # The URL as it stands in the catalog: we negotiate the version ourselves.
        endpoint = self._call(lambda: self._session.get_endpoint(**wanted, skip_discovery=True))
        if not endpoint:
            where = f" in region {settings.region_name}" if settings.region_name else ""
            message = (
                f"the service catalog has no {settings.service_type} endpoint for the interfaces "
                f"{', '.join(settings.valid_interfaces)}{where}; correct [ironic] valid_interfaces or region_name, or "
                "set endpoint_override"
            )
            raise IronicRefusedError(message, status=404)
        return str(endpoint)

    def headers(self) -> Mapping[str, str]:
        headers = self._call(lambda: self._session.get_auth_headers()) or {}
        return {name: value.decode() if isinstance(value, bytes) else str(value) for name, value in headers.items()}

    def renew(self) -> bool:
        return bool(self._session.invalidate())

    def _call(self, act: Callable[[], T]) -> T | None:
        """Return the result; None if the catalog has no such endpoint."""
        from keystoneauth1 import exceptions

        with Deadline(self._settings.timeout) as deadline:
            try:
                return act()
            except exceptions.Unauthorized:
                where = f"cloud {self._settings.cloud}" if self._settings.cloud else "[ironic]"
                raise IronicRefusedError(f"Keystone rejected the credentials of {where}", status=401) from None
            except exceptions.EndpointNotFound:
                return None
            except (exceptions.NotFound, exceptions.DiscoveryFailure):
                message = "no Keystone answers at this URL; correct [ironic] auth_url"
                raise IronicRefusedError(message, status=404) from None
            except (exceptions.HttpError, exceptions.ConnectionError, DeadlineError) as exc:
                why = "timed out" if deadline.has_expired else type(exc).__name__
                raise IronicUnavailableError(f"cannot log in at Keystone: {why}") from None
            except exceptions.ClientException as exc:
                message = f"cannot log in with [ironic] auth_type {self._settings.auth_type}: {type(exc).__name__}"
                raise IronicRefusedError(message, status=400) from None


def _session(settings: IronicSettings) -> Any:
    from keystoneauth1 import loading
    from keystoneauth1.exceptions import MissingRequiredOptions, NoMatchingPlugin
    from keystoneauth1.session import Session

    from ferroscope.remote.session import BoundedSession

    try:
        loader: Any = loading.get_plugin_loader(settings.auth_type)
    except NoMatchingPlugin:
        names = ", ".join(sorted(loading.get_available_plugin_names()))
        raise LoginSetupError(f'[ironic] auth_type "{settings.auth_type}" is unknown; known: {names}') from None
    options = {option.dest for option in loader.get_options()}
    values = {name: value for name in PLUGIN_OPTIONS if (value := getattr(settings, name))}
    for name in settings.auth_options:
        if name not in options:
            raise LoginSetupError(f"[ironic] auth_options: auth_type {settings.auth_type} has no option {name}")
    values |= settings.auth_options
    if settings.auth_type == "http_basic":
        values["endpoint"] = settings.endpoint_override
    if unused := sorted(values.keys() - options):
        raise LoginSetupError(f"[ironic] {unused[0]} has no meaning with auth_type {settings.auth_type}")
    try:
        auth = loader.load_from_options(**values)
    except MissingRequiredOptions as exc:
        missing = ", ".join(option.dest for option in exc.options)
        raise LoginSetupError(f"[ironic] {missing} not set, which auth_type {settings.auth_type} requires") from None
    return Session(
        auth=auth,
        session=BoundedSession(settings.auth_url or settings.endpoint_override),
        verify=False if settings.insecure else settings.cafile or True,
        cert=(settings.certfile, settings.keyfile or settings.certfile) if settings.certfile else None,
        timeout=settings.timeout,
        redirect=False,
    )


def _cloud(settings: IronicSettings) -> Any:
    from openstack.config import OpenStackConfig
    from openstack.exceptions import SDKException

    try:
        return OpenStackConfig(load_envvars=False).get_one(cloud=settings.cloud)
    except SDKException as exc:
        why = next(iter(str(exc).splitlines()), type(exc).__name__)
        raise LoginSetupError(f"cannot use [ironic] cloud {settings.cloud}: {why[:300]}") from None


def _cloud_session(cloud: Any, settings: IronicSettings) -> Any:
    from ferroscope.remote.session import BoundedSession

    session = cloud.get_session()
    session.session = BoundedSession(str((cloud.config.get("auth") or {}).get("auth_url", "")))
    session.timeout, session.redirect = settings.timeout, False
    return session
