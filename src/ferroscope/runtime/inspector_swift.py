"""The data that ironic-inspector 12.5.0 stored in Swift (``[processing] store_data = swift``). It is only read.

The login is that of the section ``[swift]`` of its configuration file, with every plugin of keystoneauth1. Source:
``ironic_inspector/common/swift.py``.
"""

from __future__ import annotations

from configparser import ConfigParser
from typing import Any, Final

from ferroscope.config.integration_options import PLUGIN_OPTIONS, IronicSettings
from ferroscope.config.options import SwiftSettings
from ferroscope.contracts.remote import (
    ObjectMissingError,
    ObjectStoreError,
    RegistryRefusedError,
    RegistryUnavailableError,
)
from ferroscope.runtime.system import SetupError

_SECTION: Final = "swift"
_CONTAINER: Final = "ironic-inspector"
_TIMEOUT: Final = 60.0
# What is read here or has no meaning for a reader; everything else is an option of the plugin.
_OTHERS: Final = frozenset(
    {
        "auth_section", "collect_timing", "connect_retries", "connect_retry_delay", "container", "delete_after",
        "max_version", "min_version", "retriable_status_codes", "service_name", "service_type", "split_loggers",
        "status_code_retries", "status_code_retry_delay", "timeout", "tls_ciphers", "tls_min_version", "version",
    }
)  # fmt: skip
_OF_SESSION: Final = ("cafile", "certfile", "keyfile", "region_name", "endpoint_override")


class StoredData:
    """The objects of nodes; ``SetupError`` if they cannot be read."""

    def __init__(self, parser: ConfigParser) -> None:
        from ferroscope.storage.object_http import Access, RetryPolicy
        from ferroscope.storage.swift import SwiftStore

        settings = _login(parser)
        login = _keystone(settings)

        def access() -> Access:
            try:
                login.renew()
                return Access(login.headers()["X-Auth-Token"], login.endpoint())
            except (RegistryRefusedError, RegistryUnavailableError) as exc:
                raise ObjectStoreError(_ours(exc)) from None

        given = SwiftSettings(
            container=parser.get(_SECTION, "container", fallback=_CONTAINER).strip(), ca_file=settings.cafile
        )
        self._store = SwiftStore(given, RetryPolicy(timeout=_TIMEOUT), log_in=access)

    def data_of(self, node: str) -> dict[bool, bytes]:
        """Return the processed (True) and unprocessed data of a node, as JSON."""
        found = {}
        for processed, suffix in ((True, ""), (False, "-UNPROCESSED")):
            try:
                found[processed] = self._store.get(f"inspector_data-{node}{suffix}")
            except ObjectMissingError:
                continue
            except ObjectStoreError as exc:
                raise SetupError(f"cannot read the data of ironic-inspector in Swift: {exc}") from None
        return found

    def close(self) -> None:
        self._store.close()


def _login(parser: ConfigParser) -> IronicSettings:
    """Return the login; our own client of Ironic has the same options."""
    if not parser.has_section(_SECTION):
        raise SetupError("the data is in Swift ([processing] store_data), but there is no section [swift]")
    given = dict(parser.items(_SECTION))
    other = given.get("auth_section", "").strip()
    if other:
        if not parser.has_section(other):
            raise SetupError(f"[swift] auth_section is {other}, but there is no such section")
        given = dict(parser.items(other)) | {name: given[name] for name in _OF_SESSION if name in given}
    plain: dict[str, Any] = {name: given.pop(name) for name in (*PLUGIN_OPTIONS, *_OF_SESSION) if name in given}
    if interfaces := given.pop("valid_interfaces", ""):
        plain["valid_interfaces"] = tuple(one.strip() for one in interfaces.split(","))
    insecure = given.pop("insecure", "").strip().lower() in ("true", "1", "yes", "on")
    auth_type = given.pop("auth_type", "").strip() or "password"
    options = {
        name: value for name, value in given.items() if name not in _OTHERS and value and name not in parser.defaults()
    }
    return IronicSettings(
        **plain,
        auth_type=auth_type,
        auth_options=options,
        insecure=insecure,
        service_type="object-store",
        timeout=_TIMEOUT,
    )


def _keystone(settings: IronicSettings) -> Any:
    try:
        from ferroscope.remote.ironic import LoginSetupError
        from ferroscope.remote.keystone_login import KeystoneLogin

        return KeystoneLogin(settings)
    except ImportError as exc:
        raise SetupError(f"the package {exc.name} is missing", "install ferroscope[swift]") from None
    except LoginSetupError as exc:
        raise SetupError(f"its data in Swift: {_ours(exc)}") from None


def _ours(exc: Exception) -> str:
    """Return the message, about ironic-inspector's configuration file."""
    return str(exc).replace("[ironic]", "[swift]")
