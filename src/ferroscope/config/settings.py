"""The settings that code receives: frozen, typed, with no idea of where they came from.

Only ``options`` fills them and only ``runtime`` hands them out; nothing reads a global.
"""

from __future__ import annotations

import ipaddress
from typing import Final, Literal
from urllib.parse import urlsplit

import msgspec

from ferroscope.domain.decision import DeliveryPolicy
from ferroscope.domain.lease import DEFAULT, FAST, LeaseProfile


def is_loopback(host: str) -> bool:
    """Whether what listens on ``host`` can be reached from this host alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class ApiSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``[api]``: listeners and limits. A port of 0 disables that listener."""

    host: tuple[str, ...] = ("localhost",)
    bare_metal_port: int = 6385
    introspection_port: int = 5050
    threads: int = 4
    public_url: str = ""
    max_body_size: int = 2 * 1024 * 1024
    max_json_depth: int = 25
    max_limit: int = 1000
    enable_ramdisk_endpoints: bool = True
    heartbeat_timeout: int = 300
    drain_delay: float = 0.0
    enable_metrics: bool = True
    header_timeout: float = 15.0
    body_timeout: float = 60.0
    idle_timeout: float = 60.0
    max_connections: int = 4096
    max_connections_per_source: int = 256
    max_buffered: int = 64 * 1024 * 1024
    trusted_proxies: tuple[str, ...] = ()
    failure_rate: float = 1.0
    failure_burst: int = 100

    @property
    def loopback_only(self) -> bool:
        """Whether no other host can reach the API, unless a proxy on this one passes it on."""
        return all(is_loopback(host) for host in self.host)


class DatabaseSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``[database]``: where the truth lives, and how long to wait for it; ``options`` fills in the default place."""

    connection: str = ""
    pool_size: int = 12
    busy_timeout: float = 5.0
    connect_timeout: int = 5
    statement_timeout: float = 5.0
    outage_retries: int = 60
    retry_interval: float = 0.05
    poll_interval: float = 0.25


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``[worker]``: the lanes, the queue and the party.

    ``threads`` 0: the number of processors. ``bmc_slots`` 0: 128 for each of them.
    """

    threads: int = 0
    bmc_slots: int = 0
    get_timeout: float = 3.0
    max_attempts: int = 3
    interrupted: Literal["rerun", "error"] = "rerun"
    retry_delay: float = 1.0
    member_ttl: float = 6.0
    heartbeat_interval: float = 1.5
    graceful_timeout: float = 30.0
    reboot_throttle: float = 0.0

    def delivery(self) -> DeliveryPolicy:
        return DeliveryPolicy(max_attempts=self.max_attempts, interrupted=self.interrupted)


class LeaseSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``[lease]``: how fast leadership moves on; ``profile`` is a preset, ``custom`` takes the numbers."""

    profile: Literal["default", "fast", "custom"] = "default"
    ttl: float = 6.0
    renew: float = 1.5
    poll: float = 0.5
    margin: float = 1.0

    def numbers(self) -> LeaseProfile:
        """Return the numbers that apply, in seconds."""
        presets = {"default": DEFAULT, "fast": FAST}
        custom = LeaseProfile(ttl=self.ttl, renew=self.renew, poll=self.poll, margin=self.margin)
        return presets.get(self.profile, custom)


def _cpu_capabilities() -> dict[str, str]:
    flags = {"vmx": "vt", "svm": "vt", "aes": "aes", "pse": "hugepages", "pdpe1gb": "hugepages_1g", "smx": "txt"}
    return {flag: f"cpu_{name}" for flag, name in flags.items()}


class InspectorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``[inspector]``: hooks and what they do to nodes; time-outs of an inspection."""

    default_hooks: tuple[str, ...] = ("ramdisk-error", "validate-interfaces", "ports", "architecture")
    hooks: tuple[str, ...] = ("ramdisk-error", "validate-interfaces", "ports", "architecture")
    add_ports: Literal["all", "active", "pxe", "disabled"] = "pxe"
    keep_ports: Literal["all", "present", "added"] = "all"
    update_pxe_enabled: bool = True
    known_accelerators: str = ""
    cpu_capabilities: dict[str, str] = msgspec.field(default_factory=_cpu_capabilities)
    extra_hardware_strict: bool = False
    pci_device_alias: tuple[str, ...] = ()
    physical_network_cidr_map: tuple[str, ...] = ()
    disk_partitioning_spacing: int = 1
    power_off: bool = True
    extra_kernel_params: str = ""
    collect_lldp: bool = True
    callback_endpoint_override: str = ""
    require_managed_boot: bool = False
    ramdisk_iso: str = ""
    pre_create_ports: bool = True
    collect_out_of_band: bool = False
    timeout: float = 1800.0
    timeout_period: float = 30.0
    permit_active: bool = False
    retention: float = 7_776_000.0
    retention_number: int = 20
    logs_retention: float = 1_209_600.0
    retention_period: float = 30.0


class DiscoverySettings(msgspec.Struct, frozen=True, kw_only=True):
    """``[auto_discovery]``: whether an unknown machine's callback makes a node, and how many of them at most."""

    enabled: bool = False
    driver: str = ""
    approve: Literal["manual", "always"] = "manual"
    max_waiting: int = 1000
    max_per_minute: int = 600
    max_waiting_per_source: int = 200
    max_per_minute_per_source: int = 120
    remember_rejected: float = 2592000.0


class InspectionRuleSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``[inspection_rules]``: rules of the configuration, what rules may read, and whom they may call."""

    built_in_rules: str = ""
    mask_secrets: Literal["always", "never", "sensitive"] = "always"
    api_call_targets: tuple[str, ...] = ()


class StorageSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``[storage]``: where the data of inspections is kept once they have ended."""

    backend: Literal["database", "swift", "s3", "none"] = "database"
    period: float = 5.0
    timeout: float = 10.0
    retries: int = 2
    retry_pause: float = 0.2
    longest_pause: float = 60.0


class S3Settings(msgspec.Struct, frozen=True, kw_only=True):
    """``[s3]``: a bucket; the keys of its objects begin with ``prefix``."""

    endpoint: str = ""
    bucket: str = "ferroscope"
    prefix: str = ""
    region: str = "us-east-1"
    access_key: str = ""
    secret_key: str = ""
    ca_file: str = ""


class SwiftSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``[swift]``: a container of OpenStack Swift; ``endpoint`` instead of the one that the catalogue names."""

    auth_url: str = ""
    auth_version: Literal["3", "1"] = "3"
    username: str = ""
    password: str = ""
    project_name: str = ""
    user_domain_name: str = "Default"
    project_domain_name: str = "Default"
    application_credential_id: str = ""
    application_credential_secret: str = ""
    region: str = ""
    interface: Literal["public", "internal", "admin"] = "public"
    endpoint: str = ""
    container: str = "ferroscope"
    prefix: str = ""
    ca_file: str = ""


class RegistrySettings(msgspec.Struct, frozen=True, kw_only=True):
    """``[registry]``: a Bare Metal API whose nodes are the ones to keep; without ``url`` they are our own."""

    url: str = ""
    sync_period: float = 30.0
    max_missing: float = 0.1
    delete_after: float = 259_200.0
    timeout: float = 10.0
    retries: int = 3


# Drivers behind which there is no machine, or none that is commanded.
NO_MACHINE: Final = frozenset({"sim", "fake-hardware", "fake"})


class DriverSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``[drivers]``: which are offered, and how long a BMC may take."""

    enabled: tuple[str, ...] = ("redfish", "ipmi")
    command_timeout: float = 10.0
    command_tries: int = 4
    inventory_timeout: float = 60.0
    power_timeout: float = 60.0
    power_poll_interval: float = 0.05
    bmc_networks: tuple[str, ...] = ()
    allow_http_passwords: bool = False
    ca_directory: str = "/etc/ferroscope/ca"


class PxeFilterSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``[pxe_filter]``: the PXE gate of one network, beside this host's DHCP and TFTP service."""

    network: str = "default"
    backends: tuple[str, ...] = ("nftables",)
    interfaces: tuple[str, ...] = ()
    unknown_hosts: Literal["discovery", "allow", "deny"] = "discovery"
    http_ports: tuple[int, ...] = ()
    relayed_networks: tuple[str, ...] = ()
    sync_period: float = 15.0
    channels: bool = True
    reconcile_period: float = 300.0
    guard: float = 0.5
    command_timeout: float = 2.0
    allow_timeout: float = 10.0
    dhcp_hostsdir: str = ""
    dnsmasq_pid_file: str = ""


def told_by_discovery(settings: Settings) -> Literal["allow", "deny"]:
    """Return what ``[pxe_filter] unknown_hosts = discovery`` comes to."""
    return "allow" if settings.auto_discovery.enabled else "deny"


class BootSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``[boot]``: what boot hosts serve, the same on all of them. No ``hosts``: there are none."""

    hosts: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()
    ranges: tuple[str, ...] = ()
    address_order: Literal["spread", "sequential"] = "spread"
    lease_time: int = 600
    callback_url: str = ""
    tftp_root: str = "/var/lib/ferroscope/tftp"
    http_url: str = ""
    script: str = "boot.ipxe"
    kernel: str = "ipa.kernel"
    ramdisk: str = "ipa.initramfs"
    kernel_options: tuple[str, ...] = ()
    loader_bios: str = "undionly.kpxe"
    loader_x64: str = "ipxe.efi"
    loader_arm64: str = "ipxe-arm64.efi"
    dnsmasq_config: str = "/etc/dnsmasq.d/ferroscope.conf"
    dnsmasq_options: tuple[str, ...] = ()


class MetricsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``[metrics]``: a port of its own for the metrics of processes without the API. 0: none."""

    host: str = "127.0.0.1"
    port: int = 0


class LogSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``[log]``: structured lines on standard error."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    levels: dict[str, str] = {}
    format: Literal["console", "json"] = "console"
    access: bool = False


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one process needs to know."""

    api: ApiSettings = ApiSettings()
    database: DatabaseSettings = DatabaseSettings()
    worker: WorkerSettings = WorkerSettings()
    lease: LeaseSettings = LeaseSettings()
    inspector: InspectorSettings = InspectorSettings()
    auto_discovery: DiscoverySettings = DiscoverySettings()
    inspection_rules: InspectionRuleSettings = InspectionRuleSettings()
    storage: StorageSettings = StorageSettings()
    s3: S3Settings = S3Settings()
    swift: SwiftSettings = SwiftSettings()
    registry: RegistrySettings = RegistrySettings()
    drivers: DriverSettings = DriverSettings()
    pxe_filter: PxeFilterSettings = PxeFilterSettings()
    boot: BootSettings = BootSettings()
    log: LogSettings = LogSettings()
    metrics: MetricsSettings = MetricsSettings()

    @property
    def callback_base(self) -> str:
        """The Bare Metal API's base URL as ramdisks and BMCs reach it; "" where nobody told us."""
        return self.inspector.callback_endpoint_override or self.api.public_url

    @property
    def hidden_from_ramdisks(self) -> bool:
        """Whether the API listens on loopback only, and no URL is set under which other machines would reach it."""
        told = (self.inspector.callback_endpoint_override, self.api.public_url, self.boot.callback_url)
        return self.api.loopback_only and not any(url and not is_loopback(urlsplit(url).hostname or "") for url in told)
