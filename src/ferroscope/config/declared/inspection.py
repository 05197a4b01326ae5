"""Options of what happens to a machine's data: inspection, hooks, rules, discovery."""

from __future__ import annotations

from typing import Any, Final

from oslo_config import cfg, types

from ferroscope.config import settings as target

_DEFAULT_HOOKS: Final = ",".join(target.InspectorSettings().default_hooks)


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
        "timeout",
        default=1800.0,
        min=0.1,
        max=86400.0,
        help="Seconds for the BMC to start the machine, for the ramdisk to call back, and for processing: each.",
    ),
    cfg.FloatOpt("timeout_period", default=30.0, min=0.0, help="Seconds between two looks for overdue ones; 0: never."),
    cfg.BoolOpt(
        "permit_active",
        default=False,
        help="Take data from machines in use too: a node that is available or active is inspected when it calls.",
    ),
    cfg.FloatOpt(
        "retention",
        default=7_776_000.0,
        min=0.0,
        help="Seconds for which inspections are kept after their end (90 days); a node's newest (good) one stays. "
        "As long are steps of the timeline kept that belong to none. 0: for ever.",
    ),
    cfg.IntOpt(
        "retention_number",
        default=20,
        min=0,
        help="How many ended inspections of one node are kept at the most, the newest (good) one included. 0: any.",
    ),
    cfg.FloatOpt(
        "logs_retention",
        default=1_209_600.0,
        min=0.0,
        help="Seconds for which a ramdisk's log is kept (ferroscope node log). 0: as long as its inspection.",
    ),
    cfg.FloatOpt("retention_period", default=30.0, min=0.0, help="Seconds between two looks for old ones; 0: never."),
)


DISCOVERY: Final = (
    cfg.BoolOpt("enabled", default=False, help="Make a node of an unknown machine that calls back."),
    cfg.StrOpt("driver", default="", help="The driver of such nodes; one of [drivers] enabled. Needed with enabled."),
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
    cfg.IntOpt(
        "max_waiting_per_source",
        default=200,
        min=0,
        help="Most discovered nodes in enroll that calls from one address (of IPv6 its /64) have made; 0: any number. "
        "Set [api] trusted_proxies where a proxy is before the API.",
    ),
    cfg.IntOpt(
        "max_per_minute_per_source",
        default=120,
        min=0,
        help="Most machines discovered within a minute by calls from one address, in one api process; 0: any number.",
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
