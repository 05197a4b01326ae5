"""Options of boot hosts: the PXE gate, and what dnsmasq and iPXE are told."""

from __future__ import annotations

from typing import Any, Final

from oslo_config import cfg, types


class Words(types.String):
    """Words with spaces between them, as on a kernel's command line; commas belong to the words."""

    def __call__(self, value: Any) -> Any:
        words = str(super().__call__(value)).split()
        for word in words:
            name = word.partition("=")[0]
            if "," in name or word.endswith(",") or f",{name}=" in word:
                raise ValueError(f"{word!r} is a list with commas; write a space between the words, and no comma")
        return words


class DnsmasqLines(types.String):
    """Lines of dnsmasq's configuration, one or several; commas belong to them."""

    def __call__(self, value: Any) -> Any:
        lines = [line.strip() for line in str(super().__call__(value)).splitlines() if line.strip()]
        for line in lines:
            if "," in line.partition("=")[0]:
                raise ValueError(f"{line!r} is a list with commas; write each option on a line of its own")
            if len(line) == 1:  # oslo.config takes an environment variable apart
                raise ValueError(f"{line!r} is no line of dnsmasq's; an environment variable cannot hold this option")
        return "\n".join(lines)


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
        default="discovery",
        choices=["discovery", "allow", "deny"],
        help="Whether machines without a known port may boot; discovery: where [auto_discovery] enabled is set.",
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
        "addresses",
        default=[],
        help="Each boot host's own addresses on the boot network, HOST ADDRESS or HOST ADDRESS ADDRESS, such as "
        "boot1 10.0.0.11 fd00::11. Needed for IPv6, where a boot file is a URL, and for {host} in http_url.",
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
        "http_url",
        default="",
        help="Base URL at which a web server serves the same directory, such as http://{host}:8080/, where {host} is "
        "each boot host's own address (of addresses). Empty: TFTP serves all.",
    ),
    cfg.StrOpt("script", default="boot.ipxe", help="Name of the iPXE script in that directory."),
    cfg.StrOpt("kernel", default="ipa.kernel", help="The ramdisk's kernel: a name in that directory, or a URL."),
    cfg.StrOpt("ramdisk", default="ipa.initramfs", help="The ramdisk: a name in that directory, or a URL."),
    cfg.Opt(
        "kernel_options",
        type=Words(),
        default="",
        help="More words for the kernel's command line, parted by spaces, such as console=ttyS0,115200n8 quiet, "
        "after [inspector] extra_kernel_params.",
    ),
    cfg.StrOpt("loader_bios", default="undionly.kpxe", help="iPXE for BIOS firmware, in that directory."),
    cfg.StrOpt("loader_x64", default="ipxe.efi", help="iPXE for UEFI firmware on x86-64, in that directory."),
    cfg.StrOpt("loader_arm64", default="ipxe-arm64.efi", help="iPXE for UEFI firmware on arm64, in that directory."),
    cfg.StrOpt(
        "dnsmasq_config",
        default="/etc/dnsmasq.d/ferroscope.conf",
        help="Where a boot host keeps what 'ferroscope pxe config' made for its dnsmasq; 'ferroscope doctor' reads it.",
    ),
    cfg.MultiOpt(
        "dnsmasq_options",
        item_type=DnsmasqLines(),
        default=[],
        help="More lines for dnsmasq's configuration: this option once for each, or all of them indented below it.",
    ),
)
