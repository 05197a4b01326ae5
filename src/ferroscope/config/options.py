"""The options as operators write them: one oslo.config declaration, from which all else follows.

Sections and names are those of ``settings``; the reference in docs/ is generated from here. An
environment variable ``OS_<SECTION>__<OPTION>`` overrides the file, as oslo.config has it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
from oslo_config import cfg, types

from ferroscope.config import settings as target
from ferroscope.config.misspelt import misspelt

S = TypeVar("S", bound=msgspec.Struct)

CONFIG_FILES: Final = ("/etc/ferroscope/ferroscope.conf",)

_DEFAULT_HOOKS: Final = ",".join(target.InspectorSettings().default_hooks)
_HOOK_LISTS: Final = frozenset({"default_hooks", "hooks"})

API: Final = (
    cfg.StrOpt("host", default="::", help="Address to listen on; '::' is every address, IPv4 too."),
    cfg.PortOpt("bare_metal_port", default=6385, help="Port of the Bare Metal API; 0 disables it."),
    cfg.PortOpt("introspection_port", default=5050, help="Port of the Introspection API; 0 disables it."),
    cfg.IntOpt("threads", default=4, min=1, help="Requests answered at the same time by one api process."),
    cfg.StrOpt(
        "public_url", default="", help="Base URL in links, where a proxy changes it; empty: as the client named us."
    ),
    cfg.IntOpt("max_body_size", default=16 * 1024 * 1024, min=1024, help="Largest request body, in bytes."),
    cfg.IntOpt("max_json_depth", default=25, min=1, help="Deepest nesting that a request body may have."),
    cfg.IntOpt("max_limit", default=1000, min=1, help="Most items in one page of a list."),
    cfg.BoolOpt(
        "enable_ramdisk_endpoints",
        default=True,
        help="Serve the unauthenticated endpoints for ramdisks (continue_inspection, lookup, heartbeat).",
    ),
    cfg.IntOpt("heartbeat_timeout", default=300, min=1, help="Longest interval between heartbeats, in seconds."),
    cfg.FloatOpt(
        "drain_delay",
        default=0.0,
        min=0.0,
        max=60.0,
        help="Seconds after SIGTERM for which only the health check fails; set it behind a load balancer.",
    ),
    cfg.BoolOpt("enable_metrics", default=True, help="Serve GET /metrics for Prometheus, without authentication."),
)

DATABASE: Final = (
    cfg.StrOpt(
        "connection",
        default="sqlite:///ferroscope.db",
        secret=True,
        help="SQLAlchemy URL: sqlite:///FILE, postgresql://USER:PASSWORD@HOST/NAME or mysql://USER:PASSWORD@HOST/NAME. "
        "In it $$ stands for $, %40 for @.",
    ),
    cfg.IntOpt("pool_size", default=12, min=2, help="Connections that one process keeps at the most."),
    cfg.FloatOpt("busy_timeout", default=5.0, min=0.1, help="Seconds to try when others are in the way, before a 503."),
    cfg.IntOpt("connect_timeout", default=5, min=1, help="Seconds to wait for a connection."),
    cfg.FloatOpt("statement_timeout", default=5.0, min=1.0, help="Longest time of one statement, in seconds."),
    cfg.IntOpt(
        "outage_retries",
        default=60,
        min=0,
        help="Heartbeats in a row without an answer after which a process stops itself (exit code 69); 0: never.",
    ),
    cfg.FloatOpt("retry_interval", default=0.05, min=0.001, help="Longest pause between two tries, in seconds."),
    cfg.FloatOpt(
        "poll_interval", default=0.25, min=0.01, help="Seconds between two looks at the queue where nobody wakes us up."
    ),
)

WORKER: Final = (
    cfg.IntOpt("threads", default=0, min=0, help="Worker threads of one process; 0: the number of processors."),
    cfg.FloatOpt("get_timeout", default=3.0, min=0.01, help="Seconds to wait for a request before asking again."),
    cfg.IntOpt("max_attempts", default=3, min=1, help="Deliveries of one request before its inspection fails."),
    cfg.StrOpt(
        "interrupted",
        default="rerun",
        choices=["rerun", "error"],
        help="What becomes of a strict request whose worker died: run it again, or fail the inspection.",
    ),
    cfg.FloatOpt("retry_delay", default=1.0, min=0.0, help="Seconds before a request is tried again."),
    cfg.FloatOpt("member_ttl", default=6.0, min=0.5, help="Seconds after which a silent process counts as dead."),
    cfg.FloatOpt("heartbeat_interval", default=1.5, min=0.1, help="Seconds between a process's heartbeats."),
    cfg.FloatOpt("graceful_timeout", default=30.0, min=0.0, help="Seconds for running tasks to end after SIGTERM."),
    cfg.FloatOpt(
        "reboot_throttle", default=0.0, min=0.0, help="Least seconds between two power-ons, over all hosts; 0: none."
    ),
)

LEASE: Final = (
    cfg.StrOpt(
        "profile",
        default="default",
        choices=["default", "fast", "custom"],
        help="How fast leadership moves on: default (6 s), fast (3 s), or the numbers below.",
    ),
    cfg.FloatOpt("ttl", default=6.0, min=1.0, help="Seconds that a lease lives without renewal (profile custom)."),
    cfg.FloatOpt("renew", default=1.5, min=0.1, help="Seconds between two renewals (profile custom)."),
    cfg.FloatOpt("poll", default=0.5, min=0.05, help="Seconds between two tries of a candidate (profile custom)."),
    cfg.FloatOpt(
        "margin", default=1.0, min=0.1, help="Seconds by which a leader stops before its lease ends (profile custom)."
    ),
)


class Gibibytes(types.Integer):
    """A size in GiB; true and false, as the Bare Metal service has it, are 1 and 0."""

    _WORDS: Final = {"true": 1, "yes": 1, "on": 1, "false": 0, "no": 0, "off": 0}

    def __call__(self, value: Any) -> Any:
        word = str(value).strip().lower()
        return super().__call__(self._WORDS.get(word, value))


# What single hooks are told; they are read when a worker starts, by the hooks that are in use.
HOOKS: Final = (
    cfg.StrOpt(
        "known_accelerators",
        default="",
        help="File (YAML) with the accelerators that the hook accelerators knows; empty: those that come with it.",
    ),
    cfg.DictOpt(
        "cpu_capabilities",
        default=target.InspectorSettings().cpu_capabilities,
        help="Which CPU flag sets which capability (hook cpu-capabilities): flag:capability,...",
    ),
    cfg.BoolOpt(
        "extra_hardware_strict",
        default=False,
        help="Hook extra-hardware: refuse records that have not four items, and then drop the data.",
    ),
    cfg.MultiStrOpt(
        "pci_device_alias",
        default=[],
        help="Capability to count a PCI device in (hook pci-devices), once for each:"
        ' {"vendor_id": "10de", "product_id": "1eb8", "name": "gpu_t4"}.',
    ),
    cfg.ListOpt(
        "physical_network_cidr_map",
        default=[],
        help="Which addresses mean which physical network (hook physical-network), the first that fits:"
        " 192.0.2.0/24:net_a,2001:db8::/64:net_b.",
    ),
    cfg.Opt(
        "disk_partitioning_spacing",
        type=Gibibytes(min=0),
        default=1,
        help="GiB of the root disk that are not counted in local_gb (hook root-device); true is 1, false is 0.",
    ),
)

INSPECTOR: Final = (
    cfg.StrOpt("default_hooks", default=_DEFAULT_HOOKS, help="The hooks that $default_hooks stands for."),
    cfg.StrOpt(
        "hooks",
        default="$default_hooks",
        help="Hooks in their order, for example 'my-hook,$default_hooks,?memory'; '?' marks an optional one.",
    ),
    cfg.StrOpt(
        "add_ports",
        default="pxe",
        choices=["all", "active", "pxe", "disabled"],
        help="For which NICs ports are created: all, those with an IP address, the one that booted, none.",
    ),
    cfg.StrOpt(
        "keep_ports",
        default="all",
        choices=["all", "present", "added"],
        help="Which ports stay: all, those in the inventory, those that add_ports selects.",
    ),
    cfg.BoolOpt("update_pxe_enabled", default=True, help="Set pxe_enabled of ports to what the inventory says."),
    *HOOKS,
    cfg.BoolOpt("power_off", default=True, help="Power a machine off when its inspection ends."),
    cfg.StrOpt("extra_kernel_params", default="", help="More kernel parameters for the ramdisk, parted by spaces."),
    cfg.BoolOpt("collect_lldp", default=True, help="Let the ramdisk collect LLDP (kernel parameter ipa-collect-lldp)."),
    cfg.StrOpt(
        "callback_endpoint_override",
        default="",
        help="Base URL of the Bare Metal API as ramdisks reach it, such as http://192.0.2.1:6385; "
        "empty: [api] public_url.",
    ),
    cfg.BoolOpt(
        "require_managed_boot",
        default=False,
        help="Fail the inspection of a machine whose driver cannot boot the ramdisk itself, by virtual media.",
    ),
    cfg.StrOpt(
        "ramdisk_iso",
        default="",
        help="URL of the ramdisk's ISO image for virtual media, as BMCs reach it; a node's deploy_iso wins.",
    ),
    cfg.BoolOpt(
        "pre_create_ports", default=True, help="Create ports for the NICs that the BMC knows, before the first boot."
    ),
    cfg.BoolOpt(
        "collect_out_of_band",
        default=False,
        help="Read the hardware from the BMC too, before the ramdisk boots, and store both with their sources.",
    ),
    cfg.FloatOpt(
        "timeout", default=900.0, min=0.1, max=900.0, help="Seconds that an inspection may stay in one state."
    ),
    cfg.FloatOpt("timeout_period", default=30.0, min=0.0, help="Seconds between two looks for overdue ones; 0: never."),
    cfg.BoolOpt(
        "permit_active",
        default=False,
        help="Take data from machines in use too: a node that is available or active is inspected when it calls.",
    ),
    cfg.FloatOpt(
        "retention",
        default=86400.0,
        min=0.0,
        help="Seconds for which inspections are kept after their end; a node's newest (good) one stays. 0: for ever.",
    ),
    cfg.IntOpt(
        "retention_number",
        default=0,
        min=0,
        help="How many ended inspections of one node are kept at the most, the newest (good) one included. 0: any.",
    ),
    cfg.FloatOpt("retention_period", default=30.0, min=0.0, help="Seconds between two looks for old ones; 0: never."),
)

DISCOVERY: Final = (
    cfg.BoolOpt("enabled", default=False, help="Make a node of an unknown machine that calls back."),
    cfg.StrOpt("driver", default="fake-hardware", help="The driver of such nodes; one of [drivers] enabled."),
    cfg.StrOpt(
        "approve",
        default="manual",
        choices=["manual", "always"],
        help="Whether they wait in the inbox until somebody approves or rejects them, or are approved at once.",
    ),
    cfg.IntOpt(
        "max_waiting",
        default=1000,
        min=1,
        help="Most discovered nodes that are still in enroll, approved or not; then no more are made.",
    ),
    cfg.IntOpt(
        "max_per_minute", default=600, min=1, help="Most machines discovered within a minute, over all api processes."
    ),
    cfg.FloatOpt(
        "remember_rejected",
        default=2592000.0,
        min=0.0,
        help="Seconds for which a rejected machine is not discovered again; 0: for ever.",
    ),
)

INSPECTION_RULES: Final = (
    cfg.StrOpt(
        "built_in_rules",
        default="",
        help="YAML file with rules that run beside those of the API; read and checked when a process starts.",
    ),
    cfg.StrOpt(
        "mask_secrets",
        default="always",
        choices=["always", "never", "sensitive"],
        help="Whether passwords and the like in inspection data are masked for rules; sensitive: except for "
        "sensitive rules. Those of the node are masked always.",
    ),
    cfg.ListOpt(
        "api_call_targets",
        default=[],
        help="URLs at or below which the action api-call may call, like https://cmdb.example.com/hooks; none: nowhere.",
    ),
)

STORAGE: Final = (
    cfg.StrOpt(
        "backend",
        default="database",
        choices=["database", "swift", "s3", "none"],
        help="Where data is kept once its inspection has ended; until then it is in the database. none: nowhere.",
    ),
    cfg.FloatOpt("period", default=5.0, min=0.1, help="Seconds between two looks for data to move there."),
    cfg.FloatOpt("timeout", default=10.0, min=0.1, max=120.0, help="Seconds that one try may take."),
    cfg.IntOpt("retries", default=2, min=0, max=10, help="How often a request to it is tried again."),
)

S3: Final = (
    cfg.StrOpt("endpoint", default="", help="Base URL, such as https://s3.example.com; keys are in its path."),
    cfg.StrOpt("bucket", default="ferroscope", help="The bucket, which has to exist."),
    cfg.StrOpt("prefix", default="", help="What the objects' keys begin with, such as 'inspections/'."),
    cfg.StrOpt("region", default="us-east-1", help="The region that requests are signed for."),
    cfg.StrOpt("access_key", default="", help="Who we are."),
    cfg.StrOpt("secret_key", default="", secret=True, help="The key that requests are signed with."),
    cfg.StrOpt("ca_file", default="", help="Certificates to trust; empty: those of the system."),
)

SWIFT: Final = (
    cfg.StrOpt("auth_url", default="", help="Where tokens are: Keystone's URL with /v3, or Swift's /auth/v1.0."),
    cfg.StrOpt("auth_version", default="3", choices=["3", "1"], help="3: Keystone. 1: Swift's own."),
    cfg.StrOpt("username", default="", help="The user; with version 1 'account:user'."),
    cfg.StrOpt("password", default="", secret=True, help="The password, or the key with version 1."),
    cfg.StrOpt("project_name", default="", help="The project whose account it is."),
    cfg.StrOpt("user_domain_name", default="Default", help="The user's domain."),
    cfg.StrOpt("project_domain_name", default="Default", help="The project's domain."),
    cfg.StrOpt("region", default="", help="The region in the catalogue; empty: any."),
    cfg.StrOpt(
        "interface",
        default="public",
        choices=["public", "internal", "admin"],
        help="Which of the catalogue's addresses to use.",
    ),
    cfg.StrOpt("endpoint", default="", help="The account's URL, instead of the catalogue's."),
    cfg.StrOpt("container", default="ferroscope", help="The container; it is made where it is missing."),
    cfg.StrOpt("prefix", default="", help="What the objects' names begin with."),
    cfg.StrOpt("ca_file", default="", help="Certificates to trust; empty: those of the system."),
)

REGISTRY: Final = (
    cfg.StrOpt(
        "url",
        default="",
        help="Base URL of a Bare Metal API; nodes that it no longer tracks are deleted here. Empty: nodes are our own.",
    ),
    cfg.FloatOpt("sync_period", default=30.0, min=0.0, help="Seconds between two comparisons with it; 0: never."),
    cfg.FloatOpt("timeout", default=10.0, min=0.1, help="Seconds that one request to it may take."),
    cfg.IntOpt("retries", default=3, min=0, help="How often a request to it is tried again."),
)

DRIVERS: Final = (
    cfg.ListOpt(
        "enabled", default=["fake-hardware", "fake", "sim", "redfish", "ipmi"], help="The drivers that nodes may have."
    ),
    cfg.FloatOpt("command_timeout", default=10.0, min=0.1, help="Hard deadline of one BMC command, in seconds."),
    cfg.FloatOpt(
        "inventory_timeout",
        default=60.0,
        min=0.1,
        help="Hard deadline of what takes a BMC longer, in seconds: reading all hardware, inserting a virtual medium.",
    ),
    cfg.FloatOpt("power_timeout", default=60.0, min=0.1, help="Seconds for the power state to follow a command."),
    cfg.FloatOpt(
        "power_poll_interval", default=0.05, min=0.001, help="Seconds between two looks at a power state that lags."
    ),
)

PXE_FILTER: Final = (
    cfg.StrOpt(
        "network",
        default="default",
        regex=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,15}$",
        help="Name of the boot network: of all gates with this name, one is open.",
    ),
    cfg.ListOpt(
        "backends",
        default=["nftables"],
        help="What the gate consists of: nftables, iptables, dnsmasq, noop; several work together, in this order.",
    ),
    cfg.ListOpt("interfaces", default=[], help="Interfaces of this host on which machines boot."),
    cfg.StrOpt(
        "unknown_hosts",
        default="allow",
        choices=["allow", "deny"],
        help="Whether machines of which no node is known may boot: allow is what auto-discovery needs.",
    ),
    cfg.ListOpt(
        "http_ports",
        item_type=types.Integer(1, 65535),
        default=[],
        help="TCP ports of HTTP boot on these interfaces, to be guarded too; DHCP, proxyDHCP and TFTP always are.",
    ),
    cfg.ListOpt(
        "relayed_networks",
        default=[],
        help="Networks behind DHCP relays (CIDR): their TFTP and HTTP requests pass while the gate is open.",
    ),
    cfg.FloatOpt(
        "sync_period",
        default=15.0,
        min=0.0,
        max=30.0,
        help="Seconds between two looks for changes of which nobody told the gate; 0: never.",
    ),
    cfg.BoolOpt(
        "channels",
        default=True,
        help="Listen to the channels allow and deny, which tell the gate at once.",
    ),
    cfg.FloatOpt("reconcile_period", default=300.0, min=1.0, help="Seconds between two comparisons of everything."),
    cfg.FloatOpt("guard", default=0.5, min=0.0, max=60.0, help="Seconds from winning the network to opening the gate."),
    cfg.FloatOpt("command_timeout", default=2.0, min=0.1, max=60.0, help="Seconds that nft and the like may take."),
    cfg.FloatOpt(
        "allow_timeout",
        default=10.0,
        min=0.0,
        max=300.0,
        help="Longest time that a worker waits with a power-on for the open gate to let the machine pass; 0: none.",
    ),
    cfg.StrOpt("dhcp_hostsdir", default="", help="Directory of dnsmasq's dhcp-hostsdir, for the backend dnsmasq."),
    cfg.StrOpt(
        "dnsmasq_pid_file",
        default="",
        help="File with dnsmasq's pid: it gets a SIGHUP where it has to forget hosts. Empty: it never does.",
    ),
)

BOOT: Final = (
    cfg.ListOpt(
        "hosts",
        default=[],
        help="Names of all boot hosts, in an order that is the same everywhere. Empty: there are none.",
    ),
    cfg.ListOpt(
        "ranges",
        default=[],
        help="Addresses that boot hosts give, each host its own part: FIRST-LAST, of IPv4 or IPv6; "
        "FIRST-LAST/BITS@ROUTER for a network behind a DHCP relay.",
    ),
    cfg.StrOpt(
        "address_order",
        default="spread",
        choices=["spread", "sequential"],
        help="How dnsmasq chooses: spread by MAC; or sequential, in which machines that ask at once are offered "
        "the same address, and all but one of them have to ask again.",
    ),
    cfg.IntOpt("lease_time", default=600, min=120, help="Seconds for which a machine has its address."),
    cfg.StrOpt(
        "callback_url",
        default="",
        help="Where ramdisks post what they found, such as http://10.0.0.1:6385/v1/continue_inspection.",
    ),
    cfg.StrOpt("tftp_root", default="/var/lib/ferroscope/tftp", help="Directory that boot hosts serve over TFTP."),
    cfg.StrOpt(
        "http_url", default="", help="Base URL at which a web server serves the same directory; empty: TFTP serves all."
    ),
    cfg.StrOpt("script", default="boot.ipxe", help="Name of the iPXE script in that directory."),
    cfg.StrOpt("kernel", default="ipa.kernel", help="The ramdisk's kernel: a name in that directory, or a URL."),
    cfg.StrOpt("ramdisk", default="ipa.initramfs", help="The ramdisk: a name in that directory, or a URL."),
    cfg.ListOpt("kernel_options", default=[], help="More words for the kernel's command line, such as console=ttyS0."),
    cfg.StrOpt("loader_bios", default="undionly.kpxe", help="iPXE for BIOS firmware, in that directory."),
    cfg.StrOpt("loader_x64", default="ipxe.efi", help="iPXE for UEFI firmware on x86-64, in that directory."),
    cfg.StrOpt("loader_arm64", default="ipxe-arm64.efi", help="iPXE for UEFI firmware on arm64, in that directory."),
    cfg.StrOpt(
        "dnsmasq_config",
        default="/etc/dnsmasq.d/ferroscope.conf",
        help="Where a boot host keeps what 'ferroscope pxe config' made for its dnsmasq; 'ferroscope doctor' reads it.",
    ),
    cfg.ListOpt("dnsmasq_options", default=[], help="More lines for dnsmasq's configuration; they cannot have commas."),
)

METRICS: Final = (
    cfg.StrOpt("host", default="::", help="Address to serve metrics on; '::' is every address, IPv4 too."),
    cfg.PortOpt(
        "port",
        default=0,
        help="Port for the metrics of workers, or the next one that is free; 0: none. The api has GET /metrics.",
    ),
)

LOG: Final = (
    cfg.StrOpt(
        "level", default="info", choices=["debug", "info", "warning", "error"], help="Least level that is logged."
    ),
    cfg.StrOpt("format", default="console", choices=["console", "json"], help="Lines for people or for machines."),
)

SECTIONS: Final[dict[str, tuple[Sequence[Any], type[msgspec.Struct]]]] = {
    "api": (API, target.ApiSettings),
    "database": (DATABASE, target.DatabaseSettings),
    "worker": (WORKER, target.WorkerSettings),
    "lease": (LEASE, target.LeaseSettings),
    "inspector": (INSPECTOR, target.InspectorSettings),
    "auto_discovery": (DISCOVERY, target.DiscoverySettings),
    "inspection_rules": (INSPECTION_RULES, target.InspectionRuleSettings),
    "storage": (STORAGE, target.StorageSettings),
    "s3": (S3, target.S3Settings),
    "swift": (SWIFT, target.SwiftSettings),
    "registry": (REGISTRY, target.RegistrySettings),
    "drivers": (DRIVERS, target.DriverSettings),
    "pxe_filter": (PXE_FILTER, target.PxeFilterSettings),
    "boot": (BOOT, target.BootSettings),
    "log": (LOG, target.LogSettings),
    "metrics": (METRICS, target.MetricsSettings),
}


class ConfigurationError(Exception):
    """The configuration cannot be used; the message says which option, why, and what is possible."""


def load(files: Sequence[str] | None = None, overrides: dict[str, Any] | None = None) -> target.Settings:
    """Read ``files`` (default: those of ``CONFIG_FILES`` that exist) and return the settings.

    ``overrides`` maps ``section.option`` to a value of the command line. ``ConfigurationError``.
    """
    wanted = _files(files)
    conf = cfg.ConfigOpts()
    for section, (options, _) in SECTIONS.items():
        conf.register_opts(options, group=section)
    try:
        conf(args=[], project="ferroscope", default_config_files=wanted, default_config_dirs=[])
        for name, value in (overrides or {}).items():
            section, option = name.split(".", 1)
            conf.set_override(option, value, group=section)
        return target.Settings(**{section: _section(conf, section) for section in SECTIONS})
    except cfg.ConfigFilesNotFoundError as exc:
        raise ConfigurationError(f"no such configuration file: {', '.join(exc.config_files)}") from exc
    except (cfg.TemplateSubstitutionError, cfg.NoSuchOptError) as exc:
        raise ConfigurationError(
            f"{exc}; a '$' in a value begins the name of another option: write '$$' for the character itself"
        ) from exc
    except (cfg.Error, ValueError) as exc:
        raise ConfigurationError(str(exc)) from exc


def warnings(files: Sequence[str] | None = None) -> list[str]:
    """Return a sentence for each section, option or variable of ours that does not exist."""
    known = {section: [option.dest for option in options] for section, (options, _) in SECTIONS.items()}
    return list(misspelt(_files(files), os.environ, known))


def _files(files: Sequence[str] | None) -> list[str]:
    return [path for path in CONFIG_FILES if Path(path).exists()] if files is None else list(files)


def _section(conf: Any, section: str) -> Any:
    group = conf[section]
    options, struct = SECTIONS[section]
    values = {option.dest: getattr(group, option.dest) for option in options}
    for name in _HOOK_LISTS.intersection(values):
        values[name] = [hook.strip() for hook in values[name].split(",") if hook.strip()]
    known = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    return struct(**known)
