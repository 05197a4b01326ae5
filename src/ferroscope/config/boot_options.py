"""Options of boot hosts: the PXE filter, and the configuration of dnsmasq and iPXE."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from ferroscope.config.declaration import DnsmasqLines, Opt, Words


class PxeFilterSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``[pxe_filter]``: the PXE filter of one network, on a host with a DHCP and TFTP service."""

    network: Annotated[
        str,
        Opt(
            "Name of the boot network. Of all filters with the same name, one is open.",
            regex=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,15}$",
        ),
    ] = "default"
    backends: Annotated[
        tuple[str, ...],
        Opt("Backends of the filter: nftables, iptables, dnsmasq, noop. Several are applied in this order."),
    ] = ("nftables",)
    interfaces: Annotated[tuple[str, ...], Opt("Interfaces of this host on which machines boot.")] = ()
    unknown_hosts: Annotated[
        Literal["discovery", "allow", "deny"],
        Opt("Whether machines without a known port may boot; discovery: if [auto_discovery] enabled is set."),
    ] = "discovery"
    http_ports: Annotated[
        tuple[int, ...],
        Opt(
            "TCP ports of HTTP boot to filter on these interfaces; DHCP, proxyDHCP and TFTP are always filtered.",
            ge=1,
            le=65535,
        ),
    ] = ()
    relayed_networks: Annotated[
        tuple[str, ...],
        Opt("Networks behind DHCP relays (CIDR); their DHCPv6, TFTP and HTTP requests pass while the filter is open."),
    ] = ()
    sync_period: Annotated[
        float, Opt("Seconds between polls for changes that arrived without a notification; 0: never.", ge=0, le=30)
    ] = 15.0
    channels: Annotated[bool, Opt("Listen for change notifications on the channels allow and deny.")] = True
    dhcp_hostsdir: Annotated[str, Opt("Directory of dnsmasq's dhcp-hostsdir, for the backend dnsmasq.")] = ""
    inspector_connection: Annotated[
        str,
        Opt(
            "SQLAlchemy URL of the database of an ironic-inspector that is being replaced. Machines that it inspects "
            "may boot as well. The database is only read, every sync_period (at least every 30 s). Empty: none.",
            secret=True,
        ),
    ] = ""
    dnsmasq_pid_file: Annotated[
        str, Opt("dnsmasq's PID file; dnsmasq gets SIGHUP when it must drop hosts. Empty: no SIGHUP.")
    ] = ""


class BootSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``[boot]``: what boot hosts serve; the same on all of them."""

    hosts: Annotated[
        tuple[str, ...], Opt("Names of all boot hosts, in the same order on every host. Empty: no boot hosts.")
    ] = ()
    addresses: Annotated[
        tuple[str, ...],
        Opt(
            "Addresses of each boot host on the boot network, HOST ADDRESS or HOST ADDRESS ADDRESS, such as boot1 "
            "10.0.0.11 fd00::11. Required for IPv6, where a boot file is a URL, and for {host} in http_url."
        ),
    ] = ()
    ranges: Annotated[
        tuple[str, ...],
        Opt(
            "Address ranges (IPv4 or IPv6) for DHCP, divided among the boot hosts: FIRST-LAST, or FIRST-LAST@ROUTER if "
            "machines reach the api through a router, or FIRST-LAST/BITS@ROUTER for a network behind a DHCP relay."
        ),
    ] = ()
    proxied_networks: Annotated[
        tuple[str, ...],
        Opt(
            "IPv4 networks in which another DHCP server assigns the addresses and stays, such as 10.0.0.0/24: dnsmasq "
            "only tells machines where to boot from (proxy DHCP). Cannot be combined with IPv4 ranges."
        ),
    ] = ()
    address_order: Annotated[
        Literal["spread", "sequential"],
        Opt(
            "How dnsmasq allocates addresses: spread, by a hash of the MAC address; or sequential, where machines that "
            "boot at the same time may be offered the same address and all but one have to retry."
        ),
    ] = "spread"
    callback_url: Annotated[
        str, Opt("URL to which ramdisks post the inventory, such as http://10.0.0.1:6385/v1/continue_inspection.")
    ] = ""
    machine_script_url: Annotated[
        str,
        Opt(
            "URL at which the api serves each machine its part of the iPXE script, with the secret of its inspection, "
            "such as http://10.0.0.1:6385/v1/boot.ipxe. Also set it for api and workers, which then require the "
            "secret (see [inspector] callback_secret). Empty: machines that boot from the network get no secret."
        ),
    ] = ""
    tftp_root: Annotated[
        str, Opt("Directory served over TFTP. It, and all above it, must be root's: root builds and writes there.")
    ] = "/var/lib/ferroscope-tftp"
    http_url: Annotated[
        str,
        Opt(
            "Base URL at which a web server serves the same directory, such as http://{host}:8080/. {host} is replaced "
            "by the boot host's address (see addresses). Empty: TFTP serves everything."
        ),
    ] = ""
    kernel: Annotated[str, Opt("The ramdisk's kernel: a name in that directory, or a URL.")] = "ipa.kernel"
    ramdisk: Annotated[str, Opt("The ramdisk: a name in that directory, or a URL.")] = "ipa.initramfs"
    kernel_options: Annotated[
        tuple[str, ...],
        Opt(
            "Additional kernel parameters, separated by spaces, such as console=ttyS0,115200n8 quiet; appended to "
            "[inspector] extra_kernel_params.",
            type=Words(),
        ),
    ] = ()
    loader_bios: Annotated[str, Opt("iPXE binary for BIOS, in that directory.")] = "undionly.kpxe"
    loader_x64: Annotated[str, Opt("iPXE binary for UEFI on x86-64, in that directory.")] = "ipxe.efi"
    loader_arm64: Annotated[str, Opt("iPXE binary for UEFI on arm64, in that directory.")] = "ipxe-arm64.efi"
    dnsmasq_config: Annotated[
        str,
        Opt("dnsmasq's configuration file, generated by 'ferroscope pxe config' and checked by 'ferroscope doctor'."),
    ] = "/etc/dnsmasq.d/ferroscope.conf"
    dnsmasq_options: Annotated[
        tuple[str, ...],
        Opt(
            "Additional lines for dnsmasq's configuration: repeat this option, or indent several lines below it.",
            repeated=True,
            type=DnsmasqLines(),
        ),
    ] = ()
