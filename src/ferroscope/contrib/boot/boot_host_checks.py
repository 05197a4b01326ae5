"""Checks of a boot host: address ranges, dnsmasq's configuration, boot files, callback URL, and the PXE filter.

Checks change nothing and end within a timeout. Checks that need root are skipped for other users, with a note.
"""

from __future__ import annotations

import http.client
import ipaddress
import shutil
import socket
import subprocess
import urllib.parse
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from ferroscope.config import foreign
from ferroscope.config.options import BootSettings, PxeFilterSettings, Settings
from ferroscope.contrib.boot import dhcp_probe, dnsmasq, host_facts, reach
from ferroscope.contrib.boot.addresses import (
    Address,
    AddressError,
    DhcpRange,
    overlap,
    own,
    own_name,
    parse,
    pools,
)
from ferroscope.contrib.boot.dhcp_probe import Server
from ferroscope.contrib.boot.host_facts import FactsError, interfaces, listens
from ferroscope.core.boot import CALLBACK_PATH
from ferroscope.node_boot import HOST
from ferroscope_client.core.finding import Finding
from ferroscope_client.core.host_spelling import parse_address

_TIMEOUT_SECONDS: Final = 5.0
_REGENERATE: Final = "run: ferroscope pxe config --install, then restart dnsmasq"


def examine_boot(all_settings: Settings, host: str | None = None) -> Iterator[Finding]:
    """Yield the findings about what this host serves; none if no boot hosts are configured."""
    settings, pxe_filter = all_settings.boot, all_settings.pxe_filter
    if not settings.hosts:
        return
    yield _callback(settings)
    try:
        others = {name: pools(settings, name) for name in settings.hosts}
    except AddressError as exc:
        yield Finding("boot-ranges", "wrong", str(exc), "correct [boot] ranges")
        return
    if not settings.ranges and not settings.proxied_networks:
        advice = "set [boot] ranges, or proxied_networks if another DHCP server assigns the addresses"
        yield Finding("boot-ranges", "wrong", "no DHCP address ranges are configured", advice)
        return
    name = host or own_name(settings.hosts)
    try:
        mine = own(settings, name)
    except AddressError as exc:
        yield Finding("boot-addresses", "wrong", str(exc), "correct [boot] on all boot hosts")
        return
    parts = "; ".join(f"{pool}: {', '.join(map(str, ranges))}" for pool, ranges in others.items())
    if settings.ranges:
        yield Finding("boot-ranges", "ok", f"each boot host has separate address ranges ({parts})")
    if settings.proxied_networks:
        summary = f"another DHCP server assigns the addresses of {', '.join(settings.proxied_networks)}"
        yield Finding("boot-ranges", "ok", summary)
    if name not in settings.hosts:
        summary = f"this host ({name}) is not a boot host; boot hosts: {', '.join(settings.hosts)}"
        yield Finding("boot-host", "note", summary, "to make it one, add it to [boot] hosts on all hosts")
        return
    del others[name]
    yield from _addresses(mine)
    strangers = _other_servers(settings, pxe_filter)
    yield from _check_assigned(settings, strangers)
    yield from unreachable(settings, pxe_filter, mine.values(), dhcp_probe.routers(strangers))
    yield from _time(settings)
    yield from _web(settings, pxe_filter)
    yield from _service()
    yield from check_interfaces(pxe_filter)
    yield from _configuration(settings, pxe_filter, name, others)
    yield from _files(settings)


def _addresses(mine: Mapping[int, Address]) -> Iterator[Finding]:
    wrong = ", ".join(str(address) for address in mine.values() if not _is_ours(address))
    if wrong:
        summary = f"[boot] addresses lists {wrong} for this host, which does not have that address"
        advice = "correct [boot] addresses on all boot hosts; 'ip address' shows this host's addresses"
        yield Finding("boot-addresses", "wrong", summary, advice)


def _other_servers(settings: BootSettings, pxe_filter: PxeFilterSettings) -> list[Server]:
    """Return the DHCP servers on the boot networks other than boot hosts, if this user may look for them."""
    ours = {word for text in settings.addresses for word in text.split()[1:]}
    answering: list[Server] = []
    with suppress(OSError, FactsError):
        for name in {interface.name for interface in interfaces() if interface.up} & {*pxe_filter.interfaces}:
            answering += dhcp_probe.servers(name)
    return [server for server in answering if server.address not in ours]


def _check_assigned(settings: BootSettings, strangers: Collection[Server]) -> Iterator[Finding]:
    """Yield other servers that assign addresses, unless that is intended."""
    for server in strangers:
        if server.offers and not settings.proxied_networks:
            summary = f"another DHCP server answers machines: {server}; machines may take its address and fail to boot"
            advice = "stop it there, or be its proxy: ferroscope docs keep-your-dhcp-server"
            yield Finding("dhcp-server", "wrong", summary, advice)


def unreachable(
    settings: BootSettings, pxe_filter: PxeFilterSettings, own: Collection[Address], routers: Mapping[str, str]
) -> Iterator[Finding]:
    """Yield what machines cannot load or call from their networks.

    ``own``: this host's addresses; ``routers``: what other DHCP servers offer, by an offered address.
    """
    with suppress(FactsError):  # without ip(8), only networks behind relays are known
        local = [
            each
            for interface in interfaces()
            if interface.name in pxe_filter.interfaces
            for each in interface.addresses
        ]
        networks = tuple(reach.segments(settings, local, routers))
        for gap in reach.gaps(settings, own, networks, _resolve):
            yield Finding("boot-reach", "wrong", gap.summary, gap.advice)


def _resolve(host: str) -> Collection[Address]:
    try:
        return {ipaddress.ip_address(info[4][0]) for info in socket.getaddrinfo(host, None)}
    except OSError:  # another check reports that
        return ()


def _time(settings: BootSettings) -> Iterator[Finding]:
    secure = settings.callback_url.startswith("https:")
    if secure and dnsmasq.offers_own_time(settings) and not listens(123, udp=True):
        summary = "machines learn the time from this host, on which no NTP server runs"
        advice = "run one, such as chrony with 'allow', or name another: ferroscope docs set-up-a-boot-host"
        yield Finding("boot-time", "note", f"{summary}: if a clock is wrong, its machine trusts no certificate", advice)


def _web(settings: BootSettings, pxe_filter: PxeFilterSettings) -> Iterator[Finding]:
    if HOST not in settings.http_url:
        return
    url = urllib.parse.urlsplit(settings.http_url)
    port = url.port or {"http": 80, "https": 443}[url.scheme]
    if port not in pxe_filter.http_ports:
        summary = f"port {port} of [boot] http_url is not filtered: every boot host serves every machine on it"
        yield Finding("boot-files", "note", summary, f"add {port} to [pxe_filter] http_ports on all boot hosts")


def _service() -> Iterator[Finding]:
    if host_facts.SYSTEMD.is_dir() and host_facts.unit("dnsmasq.service") is None:
        summary = "dnsmasq.service does not exist: dnsmasq is not started at boot, after the PXE filter"
        advice = "install the package dnsmasq; on Debian, dnsmasq-base contains only the program"
        yield Finding("dnsmasq", "note", summary, advice)


def _is_ours(address: Address) -> bool:
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(address), 0))
    except OSError:
        return False
    return True


def check_interfaces(pxe_filter: PxeFilterSettings) -> Iterator[Finding]:
    """Yield a finding if a configured interface is missing, or none is configured."""
    existing = {name for _, name in socket.if_nameindex()}
    missing = [name for name in pxe_filter.interfaces if name not in existing]
    if missing or not pxe_filter.interfaces:
        summary = f"interface {', '.join(missing)} does not exist" if missing else "no boot interfaces are configured"
        advice = "correct [pxe_filter] interfaces; 'ip link' shows this host's interfaces"
        yield Finding("boot-host", "wrong", summary, advice)


def _configuration(
    settings: BootSettings, pxe_filter: PxeFilterSettings, host: str, others: dict[str, tuple[DhcpRange, ...]]
) -> Iterator[Finding]:
    path = Path(settings.dnsmasq_config)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        summary = f"cannot read {path}: {getattr(exc, 'strerror', None) or exc}"
        yield Finding("dnsmasq", "wrong", summary, _REGENERATE)
        return
    yield _pools(path, text, others)
    yield _syntax(path)
    if text == dnsmasq.configuration(settings, pxe_filter, host):
        yield Finding("dnsmasq", "ok", f"{path} matches this configuration")
    else:
        yield Finding("dnsmasq", "note", f"{path} does not match this configuration", _REGENERATE)


def _pools(path: Path, text: str, others: dict[str, tuple[DhcpRange, ...]]) -> Finding:
    """Compare the ranges that dnsmasq is configured with to those of the other hosts: they must not overlap."""
    for configured in _configured_ranges(text):
        for name, ranges in others.items():
            for pool in ranges:
                if overlap(configured, pool):
                    summary = (
                        f"{path} allocates {configured}, which overlaps with {pool} of {name}: duplicate addresses"
                    )
                    return Finding("boot-pools", "wrong", summary, _REGENERATE)
    return Finding("boot-pools", "ok", f"{path} allocates no addresses of other boot hosts")


def _configured_ranges(text: str) -> Iterator[DhcpRange]:
    """Yield the ranges of dnsmasq's ``dhcp-range`` lines: the first two words that are addresses."""
    for line in text.splitlines():
        option, _, value = line.strip().partition("=")
        if option.removeprefix("--").strip() != "dhcp-range":
            continue
        addresses = [word for word in map(str.strip, value.split(",")) if parse_address(word)][:2]
        if len(addresses) == 2:
            with suppress(AddressError):  # dnsmasq --test reports its errors
                yield parse("-".join(addresses), hosts=1)


def _syntax(path: Path) -> Finding:
    program = shutil.which("dnsmasq", path="/usr/sbin:/usr/bin:/usr/local/sbin:/sbin:/bin")
    if program is None:
        return Finding("dnsmasq", "wrong", "dnsmasq is not installed", "install the package dnsmasq")
    command = [program, "--test", f"--conf-file={path}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as exc:
        return Finding("dnsmasq", "wrong", f"cannot run {program}: {exc}", f"run it manually: {' '.join(command)}")
    if done.returncode:
        error = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        return Finding("dnsmasq", "wrong", f"dnsmasq rejects {path}: {error}", _REGENERATE)
    return Finding("dnsmasq", "ok", f"dnsmasq accepts {path}")


def _files(settings: BootSettings) -> Iterator[Finding]:
    root = Path(settings.tftp_root)
    needed = [dnsmasq.SCRIPT_NAME, *(name for name in (settings.kernel, settings.ramdisk) if "://" not in name)]
    missing = [name for name in needed if not (root / name).is_file()]
    if missing:
        advice = "create the script: ferroscope pxe config --install; kernel and ramdisk: ferroscope ramdisk build"
        yield Finding("boot-files", "wrong", f"missing in {root}: {', '.join(missing)}; machines cannot boot", advice)
    else:
        yield Finding("boot-files", "ok", f"boot files found in {root}: {', '.join(needed)}")
    with suppress(OSError):  # an unreadable file is reported as missing
        if (part := foreign.changeable(root, 0)) is not None:
            summary = f"users other than root can change {part}, and thus what machines boot from {root}"
            yield Finding(
                "boot-files", "note", summary, "choose a directory that only root can write: [boot] tftp_root"
            )
    loaders = [settings.loader_bios, settings.loader_x64, settings.loader_arm64]
    lacking = [name for name in loaders if not (root / name).is_file()]
    if lacking:
        summary = f"missing in {root}: {', '.join(lacking)}; machines of these types without iPXE firmware cannot boot"
        yield Finding("boot-files", "note", summary, "copy them from /usr/lib/ipxe (Debian package ipxe)")


def _callback(settings: BootSettings) -> Finding:
    url = urllib.parse.urlsplit(settings.callback_url)
    if url.scheme not in ("http", "https") or not url.hostname or not url.path.endswith(CALLBACK_PATH):
        summary = f'invalid [boot] callback_url "{settings.callback_url}"'
        return Finding("callback", "wrong", summary, f"set it to http://HOST:6385{CALLBACK_PATH}")
    kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
    connection = kind(url.hostname, url.port, timeout=_TIMEOUT_SECONDS)
    path = url.path.removesuffix(CALLBACK_PATH) + "/healthcheck"
    try:
        connection.request("GET", path)
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as exc:
        advice = "check that the API is running and can be reached from this host and from the boot network"
        return Finding("callback", "wrong", f"cannot connect to the API at {url.netloc}: {exc}", advice)
    finally:
        connection.close()
    if status != 200:
        summary = f"the health check of {url.netloc} failed (HTTP {status}); callbacks of ramdisks may fail"
        return Finding("callback", "wrong", summary, "see the log of the api, or correct [boot] callback_url")
    return Finding("callback", "ok", f"the API is reachable at {settings.callback_url}")
