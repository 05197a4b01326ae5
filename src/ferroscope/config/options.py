"""All options: each section is a struct, each field an option (see ``declaration``).

Code receives its settings as these frozen structs. Only ``load`` creates them and only ``runtime`` passes them on;
nothing reads a global. The names are those in the configuration file; an environment variable
``OS_<SECTION>__<OPTION>`` overrides the file, as usual with oslo.config.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeVar
from urllib.parse import urlsplit

import msgspec

from ferroscope.config.api_options import ApiSettings, is_loopback
from ferroscope.config.boot_options import BootSettings, PxeFilterSettings
from ferroscope.config.coordination_options import CoordinationSettings
from ferroscope.config.inspection_options import (
    DiscoverySettings,
    InspectionRuleSettings,
    InspectorSettings,
    RegistrySettings,
    S3Settings,
    StorageSettings,
    SwiftSettings,
)
from ferroscope.config.integration_options import IronicSettings
from ferroscope.config.messaging_options import BusSettings, NotificationSettings
from ferroscope.config.security_options import AuditSettings, KeystoneSettings, PolicySettings, SecretSettings
from ferroscope.config.service_options import (
    SIMULATED,
    DatabaseSettings,
    DriverSettings,
    LeaseSettings,
    LogSettings,
    MetricsSettings,
    TracingSettings,
    WorkerSettings,
)

__all__ = [
    "SECTIONS",
    "SIMULATED",
    "ApiSettings",
    "AuditSettings",
    "BootSettings",
    "BusSettings",
    "CoordinationSettings",
    "DatabaseSettings",
    "DiscoverySettings",
    "DriverSettings",
    "InspectionRuleSettings",
    "InspectorSettings",
    "IronicSettings",
    "KeystoneSettings",
    "LeaseSettings",
    "LogSettings",
    "MetricsSettings",
    "NotificationSettings",
    "PolicySettings",
    "PxeFilterSettings",
    "RegistrySettings",
    "S3Settings",
    "SecretSettings",
    "Settings",
    "StorageSettings",
    "SwiftSettings",
    "TracingSettings",
    "WorkerSettings",
    "is_loopback",
]


T = TypeVar("T", bound=msgspec.Struct)


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one process."""

    api: ApiSettings = ApiSettings()
    database: DatabaseSettings = DatabaseSettings()
    bus: BusSettings = BusSettings()
    worker: WorkerSettings = WorkerSettings()
    lease: LeaseSettings = LeaseSettings()
    coordination: CoordinationSettings = CoordinationSettings()
    inspector: InspectorSettings = InspectorSettings()
    auto_discovery: DiscoverySettings = DiscoverySettings()
    inspection_rules: InspectionRuleSettings = InspectionRuleSettings()
    storage: StorageSettings = StorageSettings()
    s3: S3Settings = S3Settings()
    swift: SwiftSettings = SwiftSettings()
    registry: RegistrySettings = RegistrySettings()
    ironic: IronicSettings = IronicSettings()
    drivers: DriverSettings = DriverSettings()
    secrets: SecretSettings = SecretSettings()
    audit: AuditSettings = AuditSettings()
    notifications: NotificationSettings = NotificationSettings()
    pxe_filter: PxeFilterSettings = PxeFilterSettings()
    boot: BootSettings = BootSettings()
    log: LogSettings = LogSettings()
    metrics: MetricsSettings = MetricsSettings()
    tracing: TracingSettings = TracingSettings()
    oslo_policy: PolicySettings = PolicySettings()
    keystone_authtoken: KeystoneSettings = KeystoneSettings()
    parts: Mapping[str, msgspec.Struct] = {}
    """The sections that other packages declare (see ``config.sections``)."""

    def part(self, declared: type[T]) -> T:
        """Return the section with this declaration; its defaults if nothing was read."""
        return next((section for section in self.parts.values() if isinstance(section, declared)), None) or declared()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all sections that were read."""
        return (*SECTIONS, *self.parts)

    def section(self, name: str) -> msgspec.Struct:
        """Return the section of this name."""
        section: msgspec.Struct = self.parts[name] if name in self.parts else getattr(self, name)
        return section

    @property
    def callback_base(self) -> str:
        """The Bare Metal API's base URL as ramdisks and BMCs reach it; "" if not configured."""
        return self.inspector.callback_endpoint_override or self.api.public_url

    @property
    def boots_unmanaged_by_silence(self) -> bool:
        """Whether machines boot from a network, and no option says who serves it or that this is intended."""
        configured = self.inspector.ramdisk_iso or self.boot.hosts or self.boot.machine_script_url
        return self.inspector.require_managed_boot is None and not (configured or self.pxe_filter.interfaces)

    @property
    def hidden_from_ramdisks(self) -> bool:
        """Whether the API listens on loopback only, and no URL is configured by which other machines reach it."""
        urls = (self.inspector.callback_endpoint_override, self.api.public_url, self.boot.callback_url)
        return self.api.loopback_only and not any(url and not is_loopback(_host(url)) for url in urls)

    @property
    def unknown_hosts_by_discovery(self) -> Literal["allow", "deny"]:
        """The meaning of ``[pxe_filter] unknown_hosts = discovery``."""
        return "allow" if self.auto_discovery.enabled else "deny"


def _host(url: str) -> str:
    """Return the host of a URL, "" if it is invalid."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


# The service's own sections: name and struct of each.
SECTIONS: Final[dict[str, type[msgspec.Struct]]] = {
    field.name: field.type for field in msgspec.structs.fields(Settings) if field.name != "parts"
}
