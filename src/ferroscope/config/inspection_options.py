"""Options of inspection: hooks, rules, discovery, the node registry, and the storage of inspection data."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Final, Literal

import msgspec
from oslo_config import types

from ferroscope.config.declaration import Gibibytes, Opt
from ferroscope_client.core.mac_addresses import IGNORED_PATTERN, KNOWN, IgnoredMacs

# Callbacks that one api process forwards at a time to an ironic-inspector. Each occupies a thread of the API until that
# service has processed the data. Other ramdisks are asked to try again.
MAX_FORWARDED_CALLBACKS: Final = 2


def _cpu_capabilities() -> dict[str, str]:
    flags = {"vmx": "vt", "svm": "vt", "aes": "aes", "pse": "hugepages", "pdpe1gb": "hugepages_1g", "smx": "txt"}
    return {flag: f"cpu_{name}" for flag, name in flags.items()}


class InspectorSettings(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """``[inspector]``: hooks and their options; timeouts of an inspection."""

    default_hooks: Annotated[tuple[str, ...], Opt("The hooks that $default_hooks stands for.", type=types.String())] = (
        "ramdisk-error",
        "validate-interfaces",
        "ports",
        "architecture",
    )
    hooks: Annotated[
        tuple[str, ...],
        Opt(
            "Hooks in their order, for example 'my-hook,$default_hooks,?memory'; '?' marks an optional one.",
            type=types.String(),
            default="$default_hooks",
        ),
    ] = ("ramdisk-error", "validate-interfaces", "ports", "architecture")
    add_ports: Annotated[
        Literal["all", "active", "pxe", "disabled"],
        Opt("NICs for which ports are created: all, those with an IP address, the one that booted, none."),
    ] = "pxe"
    ignored_macs: Annotated[
        tuple[str, ...],
        Opt(
            "MAC addresses that several machines share, such as USB NICs of BMCs: they are kept in the "
            "inventory, but never become ports and never identify a machine. An address or its beginning, with ? for "
            "any digit; 'known' stands for those that Ferroscope knows. 'ferroscope status' reports others.",
            regex=IGNORED_PATTERN,
        ),
    ] = (KNOWN,)
    keep_ports: Annotated[
        Literal["all", "present", "added"],
        Opt("Ports to keep: all, those in the inventory, those that add_ports selects."),
    ] = "all"
    update_pxe_enabled: Annotated[bool, Opt("Set pxe_enabled of ports from the inventory.")] = True
    known_accelerators: Annotated[
        str, Opt("YAML file with the devices for the hook accelerators; empty: the built-in list.")
    ] = ""
    cpu_capabilities: Annotated[
        dict[str, str], Opt("CPU flags and the capabilities that they set (hook cpu-capabilities): flag:capability,...")
    ] = msgspec.field(default_factory=_cpu_capabilities)
    extra_hardware_strict: Annotated[
        bool, Opt("Hook extra-hardware: drop the data if a record does not have exactly four items.")
    ] = False
    pci_device_alias: Annotated[
        tuple[str, ...],
        Opt(
            "PCI device to count, and the capability for its count (hook pci-devices); may be repeated: "
            '{"vendor_id": "10de", "product_id": "1eb8", "name": "gpu_t4"}.',
            repeated=True,
        ),
    ] = ()
    physical_network_cidr_map: Annotated[
        tuple[str, ...],
        Opt(
            "Map of networks to physical networks (hook physical-network); the first match applies: "
            "192.0.2.0/24:net_a,2001:db8::/64:net_b."
        ),
    ] = ()
    disk_partitioning_spacing: Annotated[
        int,
        Opt(
            "GiB of the root disk excluded from local_gb (hook root-device); true is 1, false is 0.",
            type=Gibibytes(min=0),
        ),
    ] = 1
    properties_as_text: Annotated[
        bool,
        Opt(
            "Whether hooks write the node's properties cpus, memory_mb and local_gb as text, as ironic-inspector did, "
            "for clients that accept nothing else."
        ),
    ] = False
    power_off: Annotated[bool, Opt("Power off a machine when its inspection ends.")] = True
    extra_kernel_params: Annotated[str, Opt("Additional kernel parameters for the ramdisk, separated by spaces.")] = ""
    collect_lldp: Annotated[bool, Opt("Collect LLDP in the ramdisk (kernel parameter ipa-collect-lldp).")] = True
    callback_endpoint_override: Annotated[
        str,
        Opt(
            "Base URL of the Bare Metal API as ramdisks reach it, such as http://192.0.2.1:6385; empty: [api] "
            "public_url."
        ),
    ] = ""
    callback_secret: Annotated[
        Literal["required", "optional", "off"],
        Opt(
            "Whether a callback must present its inspection's secret. required: if the machine gets it with its "
            "boot parameters (virtual media; PXE with [boot] machine_script_url). optional: a callback without it is "
            "accepted, one with a wrong secret is refused. off: no secret."
        ),
    ] = "required"  # noqa: S105  # a mode, not a password
    hold_contradicting_data: Annotated[
        bool,
        Opt(
            "Hold inspection data that contradicts the node's last inspection (serial number, system UUID, MAC "
            "addresses) until an operator approves it: see 'ferroscope node inbox'."
        ),
    ] = True
    require_managed_boot: Annotated[
        bool | None,
        Opt(
            "true: fail the inspection if the service cannot boot the ramdisk itself, by virtual media or with the "
            "boot interface ipxe. false: machines may boot from a network that is managed elsewhere. Not set: they "
            "may, but ferroscope doctor and status point it out if nothing says how that network is served.",
            type=types.Boolean(),
        ),
    ] = None
    ramdisk_iso: Annotated[
        str,
        Opt(
            "The ramdisk's ISO image for virtual media: a URL, as BMCs reach it; or the path of a file on the api's "
            "hosts, which then serve it as /v1/media/NAME. A node's deploy_iso overrides it."
        ),
    ] = ""
    pre_create_ports: Annotated[bool, Opt("Create ports for the NICs that the BMC reports, before the first boot.")] = (
        True
    )
    collect_out_of_band: Annotated[
        bool, Opt("Also read the hardware from the BMC before the ramdisk boots, and store both with their sources.")
    ] = False
    timeout: Annotated[
        float,
        Opt(
            "Timeout in seconds for each of: starting the machine, waiting for the callback, processing.",
            ge=0.1,
            le=86400,
        ),
    ] = 1800.0
    timeout_period: Annotated[float, Opt("Seconds between checks for timed-out inspections; 0: never.", ge=0)] = 30.0
    permit_active: Annotated[
        bool, Opt("Accept inspection data of machines in use: a node that is available is inspected when it calls.")
    ] = False
    forward_unknown_to: Annotated[
        str,
        Opt(
            "URL of an ironic-inspector that is being replaced, such as http://192.0.2.7:5050/v1/continue. Callbacks "
            "that this service does not wait for are forwarded to it. Empty: they are refused."
        ),
    ] = ""
    forward_timeout: Annotated[
        float, Opt("Timeout in seconds for its answer, which comes after it has processed the data.", ge=0.1, le=600)
    ] = 60.0
    forward_ca_file: Annotated[str, Opt("File with CA certificates for forward_unknown_to; empty: the system's.")] = ""
    retention: Annotated[
        float,
        Opt(
            "Seconds that ended inspections are kept (default: 90 days); a node's newest successful one is always "
            "kept. Also applies to timeline entries outside any inspection. 0: forever.",
            ge=0,
        ),
    ] = 7_776_000.0
    retention_number: Annotated[
        int,
        Opt(
            "Maximum number of ended inspections kept per node, including the newest successful one. 0: no limit.", ge=0
        ),
    ] = 20
    logs_retention: Annotated[
        float,
        Opt("Seconds that a ramdisk's log is kept (ferroscope node log). 0: as long as its inspection.", ge=0),
    ] = 1_209_600.0
    retention_period: Annotated[float, Opt("Seconds between deletions of old inspections; 0: never.", ge=0)] = 30.0
    reinspect_after: Annotated[
        float,
        Opt(
            "Seconds after which a machine is inspected again, if its BMC supplies the hardware: nodes that are "
            "manageable, not in maintenance, and have the inspect interface of their driver. No machine is rebooted. "
            "0: never.",
            ge=0,
        ),
    ] = 0.0
    reinspect_nodes: Annotated[
        str, Opt("Only nodes with these labels are inspected again: a selector such as rack=r1; empty: all.")
    ] = ""
    reinspect_at_once: Annotated[
        int,
        Opt("Machines are inspected again only while fewer inspections than this are in progress.", ge=1, le=1000),
    ] = 4

    @cached_property
    def ignored(self) -> IgnoredMacs:
        """The addresses of ``ignored_macs``; ``ValueError``."""
        return IgnoredMacs(self.ignored_macs)


class DiscoverySettings(msgspec.Struct, frozen=True, kw_only=True):
    """``[auto_discovery]``: whether unknown machines that call back are enrolled, and limits on their number."""

    enabled: Annotated[bool, Opt("Enroll unknown machines that call back.")] = False
    driver: Annotated[str, Opt("Driver of discovered nodes, one of [drivers] enabled. Required with enabled.")] = ""
    approve: Annotated[
        Literal["manual", "always"],
        Opt(
            "manual: discovered nodes wait in the inbox until an operator approves or rejects them; always: they do "
            "not wait."
        ),
    ] = "manual"
    max_waiting: Annotated[
        int,
        Opt(
            "Maximum number of discovered nodes in enroll, approved or not; above it, none are created. Nor are they "
            "if the inspection data of these nodes takes more than 512 KiB for each node of this number. One source "
            "address (IPv6: one /64) may have a fifth of it, or 200; behind a proxy, set [api] trusted_proxies.",
            ge=1,
        ),
    ] = 1000
    max_per_minute: Annotated[
        int, Opt("Maximum number of machines discovered per minute by all api processes.", ge=1)
    ] = 600


class InspectionRuleSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``[inspection_rules]``: built-in rules, and what rules may read and call."""

    built_in_rules: Annotated[
        str, Opt("YAML file with rules that run in addition to the API's; read when a process starts.")
    ] = ""
    mask_secrets: Annotated[
        Literal["always", "never", "sensitive"],
        Opt(
            "Whether secrets in inspection data are masked for rules; sensitive: except for sensitive rules. Secrets "
            "of the node are always masked."
        ),
    ] = "always"
    api_call_targets: Annotated[
        tuple[str, ...],
        Opt("URLs at or below which the action api-call may send requests, such as https://cmdb.example.com/hooks."),
    ] = ()


class RegistrySettings(msgspec.Struct, frozen=True, kw_only=True):
    """``[registry]``: which service manages the nodes."""

    backend: Annotated[
        Literal["embedded", "ironic"],
        Opt(
            "embedded: Ferroscope manages the nodes. ironic: an attached Ironic does (section [ironic]); Ferroscope "
            "inspects its nodes and writes the results there."
        ),
    ] = "embedded"
    url: Annotated[
        str,
        Opt(
            "Base URL of another Bare Metal API that defines which nodes exist: nodes that it no longer has are marked "
            "as orphans, and deleted after delete_after. Only with backend = embedded; empty: none."
        ),
    ] = ""
    sync_period: Annotated[
        float,
        Opt(
            "Seconds between synchronizations with it; 0: never. With backend = ironic, above 0 and at most 30: the "
            "PXE filter does not know a node that is new in Ironic for that long.",
            ge=0,
        ),
    ] = 15.0
    max_missing: Annotated[
        float,
        Opt(
            "Maximum fraction of nodes (at least one node) that it may no longer have. If more are missing, or it has "
            "none at all, nothing is marked or deleted, and ferroscope status reports it.",
            ge=0,
            le=1,
        ),
    ] = 0.1
    delete_after: Annotated[
        float,
        Opt(
            "Seconds before an orphan is deleted (default: 3 days), unless it is protected, has an instance_uuid or "
            "is being inspected. 0: never.",
            ge=0,
        ),
    ] = 259_200.0
    timeout: Annotated[float, Opt("Timeout of one request to it, in seconds.", ge=0.1)] = 10.0
    retries: Annotated[int, Opt("Number of retries of a failed request.", ge=0)] = 3


class StorageSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``[storage]``: where inspection data is stored after the inspection has ended."""

    backend: Annotated[
        Literal["database", "swift", "s3", "none"],
        Opt("Where inspection data is stored after the inspection; until then it is in the database. none: discarded."),
    ] = "database"


class S3Settings(msgspec.Struct, frozen=True, kw_only=True):
    """``[s3]``: an S3 bucket."""

    endpoint: Annotated[str, Opt("Base URL, such as https://s3.example.com; path-style requests.")] = ""
    bucket: Annotated[str, Opt("Name of the bucket; it must exist.")] = "ferroscope"
    prefix: Annotated[str, Opt("Prefix of all keys, such as 'inspections/'.")] = ""
    region: Annotated[str, Opt("Region for which requests are signed.")] = "us-east-1"
    access_key: Annotated[str, Opt("Access key ID.")] = ""
    secret_key: Annotated[str, Opt("Secret access key.", secret=True)] = ""
    ca_file: Annotated[str, Opt("File with CA certificates; empty: the system's.")] = ""


class SwiftSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``[swift]``: a container of OpenStack Swift."""

    auth_url: Annotated[str, Opt("Authentication URL: Keystone's, or Swift's /auth/v1.0.")] = ""
    auth_version: Annotated[
        Literal["3", "1"], Opt("Authentication version: 3 for Keystone, 1 for Swift's own (TempAuth).")
    ] = "3"
    username: Annotated[str, Opt("User name; with version 1 'account:user'.")] = ""
    password: Annotated[str, Opt("Password; with version 1 the key.", secret=True)] = ""
    project_name: Annotated[str, Opt("Name of the project.")] = ""
    user_domain_name: Annotated[str, Opt("Domain of the user.")] = "Default"
    project_domain_name: Annotated[str, Opt("Domain of the project.")] = "Default"
    application_credential_id: Annotated[str, Opt("ID of an application credential, instead of user and project.")] = ""
    application_credential_secret: Annotated[str, Opt("Secret of the application credential.", secret=True)] = ""
    region: Annotated[str, Opt("Region in the service catalog; empty: any.")] = ""
    interface: Annotated[Literal["public", "internal", "admin"], Opt("Interface in the service catalog.")] = "public"
    endpoint: Annotated[str, Opt("URL of the account, instead of the one in the service catalog.")] = ""
    container: Annotated[str, Opt("Name of the container; created if it does not exist.")] = "ferroscope"
    prefix: Annotated[str, Opt("Prefix of all object names.")] = ""
    ca_file: Annotated[str, Opt("File with CA certificates; empty: the system's.")] = ""
