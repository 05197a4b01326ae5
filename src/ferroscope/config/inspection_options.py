"""Options of what happens to a machine's data: inspection, hooks, rules, discovery, and where data is kept."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from oslo_config import types

from ferroscope.config.declaration import Gibibytes, Opt


def _cpu_capabilities() -> dict[str, str]:
    flags = {"vmx": "vt", "svm": "vt", "aes": "aes", "pse": "hugepages", "pdpe1gb": "hugepages_1g", "smx": "txt"}
    return {flag: f"cpu_{name}" for flag, name in flags.items()}


class InspectorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``[inspector]``: hooks and what they do to nodes; time-outs of an inspection."""

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
        Opt("For which NICs ports are created: all, those with an IP address, the one that booted, none."),
    ] = "pxe"
    keep_ports: Annotated[
        Literal["all", "present", "added"],
        Opt("Which ports stay: all, those in the inventory, those that add_ports selects."),
    ] = "all"
    update_pxe_enabled: Annotated[bool, Opt("Set pxe_enabled of ports to what the inventory says.")] = True
    known_accelerators: Annotated[
        str, Opt("File (YAML) with the accelerators that the hook accelerators knows; empty: those that come with it.")
    ] = ""
    cpu_capabilities: Annotated[
        dict[str, str], Opt("Which CPU flag sets which capability (hook cpu-capabilities): flag:capability,...")
    ] = msgspec.field(default_factory=_cpu_capabilities)
    extra_hardware_strict: Annotated[
        bool, Opt("Hook extra-hardware: refuse records that have not four items, and then drop the data.")
    ] = False
    pci_device_alias: Annotated[
        tuple[str, ...],
        Opt(
            "Capability to count a PCI device in (hook pci-devices), once for each: "
            '{"vendor_id": "10de", "product_id": "1eb8", "name": "gpu_t4"}.',
            repeated=True,
        ),
    ] = ()
    physical_network_cidr_map: Annotated[
        tuple[str, ...],
        Opt(
            "Which addresses mean which physical network (hook physical-network), the first that fits: "
            "192.0.2.0/24:net_a,2001:db8::/64:net_b."
        ),
    ] = ()
    disk_partitioning_spacing: Annotated[
        int,
        Opt(
            "GiB of the root disk that are not counted in local_gb (hook root-device); true is 1, false is 0.",
            type=Gibibytes(min=0),
        ),
    ] = 1
    power_off: Annotated[bool, Opt("Power a machine off when its inspection ends.")] = True
    extra_kernel_params: Annotated[str, Opt("More kernel parameters for the ramdisk, parted by spaces.")] = ""
    collect_lldp: Annotated[bool, Opt("Let the ramdisk collect LLDP (kernel parameter ipa-collect-lldp).")] = True
    callback_endpoint_override: Annotated[
        str,
        Opt(
            "Base URL of the Bare Metal API as ramdisks reach it, such as http://192.0.2.1:6385; empty: [api] "
            "public_url."
        ),
    ] = ""
    require_managed_boot: Annotated[
        bool, Opt("Fail the inspection of a machine whose driver cannot boot the ramdisk itself, by virtual media.")
    ] = False
    ramdisk_iso: Annotated[
        str, Opt("URL of the ramdisk's ISO image for virtual media, as BMCs reach it; a node's deploy_iso wins.")
    ] = ""
    pre_create_ports: Annotated[bool, Opt("Create ports for the NICs that the BMC knows, before the first boot.")] = (
        True
    )
    collect_out_of_band: Annotated[
        bool, Opt("Read the hardware from the BMC too, before the ramdisk boots, and store both with their sources.")
    ] = False
    timeout: Annotated[
        float,
        Opt(
            "Seconds for the BMC to start the machine, for the ramdisk to call back, and for processing: each.",
            ge=0.1,
            le=86400,
        ),
    ] = 1800.0
    timeout_period: Annotated[float, Opt("Seconds between two looks for overdue ones; 0: never.", ge=0)] = 30.0
    permit_active: Annotated[
        bool, Opt("Take data from machines in use too: a node that is available or active is inspected when it calls.")
    ] = False
    retention: Annotated[
        float,
        Opt(
            "Seconds for which inspections are kept after their end (90 days); a node's newest (good) one stays. As "
            "long are steps of the timeline kept that belong to none. 0: for ever.",
            ge=0,
        ),
    ] = 7_776_000.0
    retention_number: Annotated[
        int,
        Opt(
            "How many ended inspections of one node are kept at the most, the newest (good) one included. 0: any.", ge=0
        ),
    ] = 20
    logs_retention: Annotated[
        float,
        Opt("Seconds for which a ramdisk's log is kept (ferroscope node log). 0: as long as its inspection.", ge=0),
    ] = 1_209_600.0
    retention_period: Annotated[float, Opt("Seconds between two looks for old ones; 0: never.", ge=0)] = 30.0


class DiscoverySettings(msgspec.Struct, frozen=True, kw_only=True):
    """``[auto_discovery]``: whether an unknown machine's callback makes a node, and how many of them at most."""

    enabled: Annotated[bool, Opt("Make a node of an unknown machine that calls back.")] = False
    driver: Annotated[str, Opt("The driver of such nodes; one of [drivers] enabled. Needed with enabled.")] = ""
    approve: Annotated[
        Literal["manual", "always"],
        Opt("Whether they wait in the inbox until somebody approves or rejects them, or are approved at once."),
    ] = "manual"
    max_waiting: Annotated[
        int, Opt("Most discovered nodes that are still in enroll, approved or not; then no more are made.", ge=1)
    ] = 1000
    max_per_minute: Annotated[int, Opt("Most machines discovered within a minute, over all api processes.", ge=1)] = 600
    max_waiting_per_source: Annotated[
        int,
        Opt(
            "Most discovered nodes in enroll that calls from one address (of IPv6 its /64) have made; 0: any number. "
            "Set [api] trusted_proxies where a proxy is before the API.",
            ge=0,
        ),
    ] = 200
    max_per_minute_per_source: Annotated[
        int,
        Opt(
            "Most machines discovered within a minute by calls from one address, in one api process; 0: any number.",
            ge=0,
        ),
    ] = 120
    remember_rejected: Annotated[
        float, Opt("Seconds for which a rejected machine is not discovered again; 0: for ever.", ge=0)
    ] = 2592000.0


class InspectionRuleSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``[inspection_rules]``: rules of the configuration, what rules may read, and whom they may call."""

    built_in_rules: Annotated[
        str, Opt("YAML file with rules that run beside those of the API; read and checked when a process starts.")
    ] = ""
    mask_secrets: Annotated[
        Literal["always", "never", "sensitive"],
        Opt(
            "Whether passwords and the like in inspection data are masked for rules; sensitive: except for sensitive "
            "rules. Those of the node are masked always."
        ),
    ] = "always"
    api_call_targets: Annotated[
        tuple[str, ...],
        Opt("URLs at or below which the action api-call may call, like https://cmdb.example.com/hooks; none: nowhere."),
    ] = ()


class RegistrySettings(msgspec.Struct, frozen=True, kw_only=True):
    """``[registry]``: a Bare Metal API whose nodes are the ones to keep; without ``url`` they are our own."""

    url: Annotated[
        str,
        Opt(
            "Base URL of a Bare Metal API; nodes that it no longer tracks are marked as orphans here, and deleted "
            "after delete_after. Empty: nodes are our own."
        ),
    ] = ""
    sync_period: Annotated[float, Opt("Seconds between two comparisons with it; 0: never.", ge=0)] = 30.0
    max_missing: Annotated[
        float,
        Opt(
            "Which part of our nodes it may lack at most (one node in any case): where it lacks more, or has none at "
            "all, nothing is marked and nothing deleted, and ferroscope status says so.",
            ge=0,
            le=1,
        ),
    ] = 0.1
    delete_after: Annotated[
        float,
        Opt(
            "Seconds (3 days) for which a node is an orphan before it is deleted; one that is protected, has an "
            "instance_uuid or is under inspection stays. 0: never.",
            ge=0,
        ),
    ] = 259_200.0
    timeout: Annotated[float, Opt("Seconds that one request to it may take.", ge=0.1)] = 10.0
    retries: Annotated[int, Opt("How often a request to it is tried again.", ge=0)] = 3


class StorageSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``[storage]``: where the data of inspections is kept once they have ended."""

    backend: Annotated[
        Literal["database", "swift", "s3", "none"],
        Opt("Where data is kept once its inspection has ended; until then it is in the database. none: nowhere."),
    ] = "database"
    period: Annotated[float, Opt("Seconds between two looks for data to move there.", ge=0.1)] = 5.0
    timeout: Annotated[float, Opt("Seconds that one try may take.", ge=0.1, le=120)] = 10.0
    retries: Annotated[int, Opt("How often a request to it is tried again.", ge=0, le=10)] = 2
    retry_pause: Annotated[float, Opt("Seconds before it is tried again; doubled each time.", ge=0, le=10)] = 0.2
    longest_pause: Annotated[
        float,
        Opt(
            "Longest pause between two tries to move data while the store is away, in seconds; the first is 2 s.",
            ge=0.1,
        ),
    ] = 60.0


class S3Settings(msgspec.Struct, frozen=True, kw_only=True):
    """``[s3]``: a bucket; the keys of its objects begin with ``prefix``."""

    endpoint: Annotated[str, Opt("Base URL, such as https://s3.example.com; keys are in its path.")] = ""
    bucket: Annotated[str, Opt("The bucket, which has to exist.")] = "ferroscope"
    prefix: Annotated[str, Opt("What the objects' keys begin with, such as 'inspections/'.")] = ""
    region: Annotated[str, Opt("The region that requests are signed for.")] = "us-east-1"
    access_key: Annotated[str, Opt("Who we are.")] = ""
    secret_key: Annotated[str, Opt("The key that requests are signed with.", secret=True)] = ""
    ca_file: Annotated[str, Opt("Certificates to trust; empty: those of the system.")] = ""


class SwiftSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``[swift]``: a container of OpenStack Swift; ``endpoint`` instead of the one that the catalogue names."""

    auth_url: Annotated[str, Opt("Where tokens are: Keystone's URL, or Swift's /auth/v1.0.")] = ""
    auth_version: Annotated[Literal["3", "1"], Opt("3: Keystone. 1: Swift's own.")] = "3"
    username: Annotated[str, Opt("The user; with version 1 'account:user'.")] = ""
    password: Annotated[str, Opt("The password, or the key with version 1.", secret=True)] = ""
    project_name: Annotated[str, Opt("The project whose account it is.")] = ""
    user_domain_name: Annotated[str, Opt("The user's domain.")] = "Default"
    project_domain_name: Annotated[str, Opt("The project's domain.")] = "Default"
    application_credential_id: Annotated[str, Opt("An application credential, instead of user and project.")] = ""
    application_credential_secret: Annotated[str, Opt("Its secret.", secret=True)] = ""
    region: Annotated[str, Opt("The region in the catalogue; empty: any.")] = ""
    interface: Annotated[Literal["public", "internal", "admin"], Opt("Which of the catalogue's addresses to use.")] = (
        "public"
    )
    endpoint: Annotated[str, Opt("The account's URL, instead of the catalogue's.")] = ""
    container: Annotated[str, Opt("The container; it is made where it is missing.")] = "ferroscope"
    prefix: Annotated[str, Opt("What the objects' names begin with.")] = ""
    ca_file: Annotated[str, Opt("Certificates to trust; empty: those of the system.")] = ""
