"""Options of boot hosts: the PXE filter, and what dnsmasq and iPXE are told."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from ferroscope.config.declaration import DnsmasqLines, Opt, Words


class PxeFilterSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``[pxe_filter]``: the PXE filter of one network, beside this host's DHCP and TFTP service."""

    network: Annotated[
        str,
        Opt(
            "Name of the boot network: of all filters with this name, one is open.",
            regex=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,15}$",
        ),
    ] = "default"
    backends: Annotated[
        tuple[str, ...],
        Opt("What the filter consists of: nftables, iptables, dnsmasq, noop; several work together, in this order."),
    ] = ("nftables",)
    interfaces: Annotated[tuple[str, ...], Opt("Interfaces of this host on which machines boot.")] = ()
    unknown_hosts: Annotated[
        Literal["discovery", "allow", "deny"],
        Opt("Whether machines without a known port may boot; discovery: where [auto_discovery] enabled is set."),
    ] = "discovery"
    http_ports: Annotated[
        tuple[int, ...],
        Opt(
            "TCP ports of HTTP boot on these interfaces, to be guarded too; DHCP, proxyDHCP and TFTP always are.",
            ge=1,
            le=65535,
        ),
    ] = ()
    relayed_networks: Annotated[
        tuple[str, ...],
        Opt("Networks behind DHCP relays (CIDR): their TFTP and HTTP requests pass while the filter is open."),
    ] = ()
    sync_period: Annotated[
        float, Opt("Seconds between two looks for changes of which nobody told the filter; 0: never.", ge=0, le=30)
    ] = 15.0
    channels: Annotated[bool, Opt("Listen to the channels allow and deny, which tell the filter at once.")] = True
    reconcile_period: Annotated[float, Opt("Seconds between two comparisons of everything.", ge=1)] = 300.0
    guard: Annotated[float, Opt("Seconds from winning the network to opening the filter.", ge=0, le=60)] = 0.5
    command_timeout: Annotated[float, Opt("Seconds that nft and the like may take.", ge=0.1, le=60)] = 2.0
    allow_timeout: Annotated[
        float,
        Opt(
            "Longest time that a worker waits with a power-on for the open filter to let the machine pass; 0: none.",
            ge=0,
            le=300,
        ),
    ] = 10.0
    dhcp_hostsdir: Annotated[str, Opt("Directory of dnsmasq's dhcp-hostsdir, for the backend dnsmasq.")] = ""
    dnsmasq_pid_file: Annotated[
        str, Opt("File with dnsmasq's pid: it gets a SIGHUP where it has to forget hosts. Empty: it never does.")
    ] = ""


class BootSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``[boot]``: what boot hosts serve, the same on all of them. No ``hosts``: there are none."""

    hosts: Annotated[
        tuple[str, ...], Opt("Names of all boot hosts, in an order that is the same everywhere. Empty: there are none.")
    ] = ()
    addresses: Annotated[
        tuple[str, ...],
        Opt(
            "Each boot host's own addresses on the boot network, HOST ADDRESS or HOST ADDRESS ADDRESS, such as boot1 "
            "10.0.0.11 fd00::11. Needed for IPv6, where a boot file is a URL, and for {host} in http_url."
        ),
    ] = ()
    ranges: Annotated[
        tuple[str, ...],
        Opt(
            "Addresses that boot hosts give, each host its own part: FIRST-LAST, of IPv4 or IPv6; "
            "FIRST-LAST/BITS@ROUTER for a network behind a DHCP relay."
        ),
    ] = ()
    address_order: Annotated[
        Literal["spread", "sequential"],
        Opt(
            "How dnsmasq chooses: spread by MAC; or sequential, in which machines that ask at once are offered the "
            "same address, and all but one of them have to ask again."
        ),
    ] = "spread"
    lease_time: Annotated[int, Opt("Seconds for which a machine has its address.", ge=120)] = 600
    callback_url: Annotated[
        str, Opt("Where ramdisks post what they found, such as http://10.0.0.1:6385/v1/continue_inspection.")
    ] = ""
    tftp_root: Annotated[str, Opt("Directory that boot hosts serve over TFTP.")] = "/var/lib/ferroscope/tftp"
    http_url: Annotated[
        str,
        Opt(
            "Base URL at which a web server serves the same directory, such as http://{host}:8080/, where {host} is "
            "each boot host's own address (of addresses). Empty: TFTP serves all."
        ),
    ] = ""
    script: Annotated[str, Opt("Name of the iPXE script in that directory.")] = "boot.ipxe"
    kernel: Annotated[str, Opt("The ramdisk's kernel: a name in that directory, or a URL.")] = "ipa.kernel"
    ramdisk: Annotated[str, Opt("The ramdisk: a name in that directory, or a URL.")] = "ipa.initramfs"
    kernel_options: Annotated[
        tuple[str, ...],
        Opt(
            "More words for the kernel's command line, parted by spaces, such as console=ttyS0,115200n8 quiet, after "
            "[inspector] extra_kernel_params.",
            type=Words(),
        ),
    ] = ()
    loader_bios: Annotated[str, Opt("iPXE for BIOS firmware, in that directory.")] = "undionly.kpxe"
    loader_x64: Annotated[str, Opt("iPXE for UEFI firmware on x86-64, in that directory.")] = "ipxe.efi"
    loader_arm64: Annotated[str, Opt("iPXE for UEFI firmware on arm64, in that directory.")] = "ipxe-arm64.efi"
    dnsmasq_config: Annotated[
        str,
        Opt("Where a boot host keeps what 'ferroscope pxe config' made for its dnsmasq; 'ferroscope doctor' reads it."),
    ] = "/etc/dnsmasq.d/ferroscope.conf"
    dnsmasq_options: Annotated[
        tuple[str, ...],
        Opt(
            "More lines for dnsmasq's configuration: this option once for each, or all of them indented below it.",
            repeated=True,
            type=DnsmasqLines(),
        ),
    ] = ()
