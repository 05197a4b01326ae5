"""A boot host's dnsmasq configuration. Source: dnsmasq(8); architectures of clients: RFC 4578 and IANA's register.

It gives addresses from this host's own part of every range, and the way to boot: firmware gets iPXE, iPXE gets the
script. It holds no machine's MAC: whom dnsmasq may hear is the gate's matter.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from ferroscope.boot.addresses import base_url, literal, own
from ferroscope.boot.pools import Address, Range, parse_all
from ferroscope.config.options import BootSettings, PxeFilterSettings

# What a client says it is -> the tag of it.
_ARCHITECTURES: Final = {
    "0": "bios",
    "6": "ia32",
    "7": "x64",
    "9": "x64",
    "11": "arm64",
    "16": "http",
    "19": "http-arm64",
}
# What firmware that boots over HTTP looks for in a DHCPv6 answer. Option 16 (RFC 8415) is an enterprise number of four
# bytes, a length of two, and HTTPClient, which is all that EDK II reads. dnsmasq 2.90 makes a list of texts of it, each
# behind its length: so a first text of two letters and its length are the number (0x24653, which nobody has).
_HTTP_CLIENT: Final = "FS,HTTPClient"


class HostError(ValueError):
    """The host is none of ``[boot] hosts``; the message has those."""


def pools(settings: BootSettings, host: str) -> tuple[Range, ...]:
    """Return the ranges of this host alone; ``HostError``, ``PoolError``."""
    if host not in settings.hosts:
        known = ", ".join(settings.hosts) or "nobody"
        raise HostError(f"{host} is none of the boot hosts; [boot] hosts names {known}")
    count = len(settings.hosts)
    return tuple(one.part(settings.hosts.index(host), count) for one in parse_all(settings.ranges, hosts=count))


def configuration(settings: BootSettings, gate: PxeFilterSettings, host: str) -> str:
    """Return the whole file; ``HostError``, ``PoolError``, ``AddressError``. ``gate``: what stands before it."""
    return "\n".join(_lines(settings, gate, host)) + "\n"


def _lines(settings: BootSettings, gate: PxeFilterSettings, host: str) -> Iterator[str]:
    mine = pools(settings, host)
    place = f"{settings.hosts.index(host) + 1} of {len(settings.hosts)}"
    yield f"# dnsmasq of {host}, boot host {place}. Made by: ferroscope pxe config --host {host}"
    yield "# Changes belong into [boot] of Ferroscope's configuration, which is the same on all boot hosts."
    yield from ("", "# DHCP and TFTP on the boot network; no DNS.", "port=0")
    yield from (f"interface={interface}" for interface in gate.interfaces)
    yield from ("except-interface=lo", "bind-dynamic", "")
    yield from _gate(gate)
    yield from _addresses(settings, mine)
    if any(one.version == 6 for one in mine):
        yield from ("# Machines are told to ask with DHCPv6, and which prefix is on the link.", "enable-ra")
        yield "# No gate is in front of that. So this host is nobody's default router: a lifetime of 0 seconds."
        yield from (f"ra-param={interface},60,0" for interface in gate.interfaces)
    yield from _boot(settings, {one.version for one in mine}, own(settings, host))
    yield from ("", "# What a machine loads. Answers come from a port of their own, so a transfer that runs outlives")
    yield from ("# the gate's closing.", "enable-tftp", f"tftp-root={settings.tftp_root}")
    if settings.dnsmasq_options:
        yield from ("", "# [boot] dnsmasq_options", *settings.dnsmasq_options)


def _gate(gate: PxeFilterSettings) -> Iterator[str]:
    if gate.dnsmasq_pid_file:
        yield f"pid-file={gate.dnsmasq_pid_file}"
    if gate.dhcp_hostsdir and "dnsmasq" in gate.backends:
        yield from ("# The gate's backend dnsmasq says here who is ignored.", f"dhcp-hostsdir={gate.dhcp_hostsdir}")


def _addresses(settings: BootSettings, mine: tuple[Range, ...]) -> Iterator[str]:
    yield "# This host's own part of every range: no other boot host gives these addresses."
    if settings.address_order == "sequential":
        yield "dhcp-sequential-ip"
    yield "# Without it an answer may come seconds late, when another host's gate is open already."
    yield "no-ping"
    lease = f"{settings.lease_time}s"
    for number, one in enumerate(mine, start=1):
        tag = f"range{number}"
        if one.version == 6:
            yield f"dhcp-range=set:{tag},{one.first},{one.last},{one.bits},{lease}"
            continue
        yield f"dhcp-range=set:{tag},{one.first},{one.last}{',' if one.netmask else ''}{one.netmask},{lease}"
        # Empty: no route at all; otherwise dnsmasq names itself.
        yield f"dhcp-option=tag:{tag},option:router{',' if one.router else ''}{one.router}"


def _boot(settings: BootSettings, versions: Collection[int], mine: Mapping[int, Address]) -> Iterator[str]:
    yield from ("", "# Who asks: iPXE, or a firmware of which kind.", "dhcp-match=set:ipxe,175")
    yield "dhcp-userclass=set:ipxe,iPXE"
    for number, tag in _ARCHITECTURES.items():
        if 4 in versions:
            yield f"dhcp-match=set:{tag},option:client-arch,{number}"
        if 6 in versions:
            yield f"dhcp-match=set:{tag},option6:61,{number}"
    if 4 in versions:
        yield from (
            "",
            "# iPXE gets the script, a firmware gets iPXE.",
            *_boot4(settings, literal(mine[4]) if 4 in mine else ""),
        )
    if 6 in versions:
        yield from ("", "# The same over IPv6, as URLs.", *_boot6(settings, literal(mine[6])))


def _boot4(settings: BootSettings, host: str) -> Iterator[str]:
    base = base_url(settings, host)
    yield f"dhcp-boot=tag:ipxe,{base}/{settings.script}" if base else f"dhcp-boot=tag:ipxe,{settings.script}"
    for tag, file in _loaders(settings):
        yield f"dhcp-boot=tag:{tag},tag:!ipxe,{file}"
    if base:
        for tag, file in _http_loaders(settings):
            yield f"dhcp-option=tag:{tag},tag:!ipxe,option:vendor-class,HTTPClient"
            yield f"dhcp-boot=tag:{tag},tag:!ipxe,{base}/{file}"


def _boot6(settings: BootSettings, host: str) -> Iterator[str]:
    base, tftp = base_url(settings, host), f"tftp://{host}"
    yield f"dhcp-option=tag:ipxe,option6:bootfile-url,{base or tftp}/{settings.script}"
    for tag, file in _loaders(settings):
        if tag != "bios":
            yield f"dhcp-option=tag:{tag},tag:!ipxe,option6:bootfile-url,{tftp}/{file}"
    if base:
        for tag, file in _http_loaders(settings):
            yield f"dhcp-option-force=tag:{tag},tag:!ipxe,option6:16,{_HTTP_CLIENT}"
            yield f"dhcp-option=tag:{tag},tag:!ipxe,option6:bootfile-url,{base}/{file}"


def _loaders(settings: BootSettings) -> Iterator[tuple[str, str]]:
    yield "bios", settings.loader_bios
    yield "x64", settings.loader_x64
    yield "arm64", settings.loader_arm64


def _http_loaders(settings: BootSettings) -> Iterator[tuple[str, str]]:
    yield "http", settings.loader_x64
    yield "http-arm64", settings.loader_arm64
