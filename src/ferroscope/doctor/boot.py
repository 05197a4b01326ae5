"""What ``ferroscope doctor`` looks at on a boot host: pools, dnsmasq's file, what is served, and the way back.

Like all checks: it changes nothing, gives up in time, and each is a sentence and what to do.
"""

from __future__ import annotations

import http.client
import ipaddress
import shutil
import socket
import subprocess
import urllib.parse
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from ferroscope.boot_config import dnsmasq
from ferroscope.boot_config.dnsmasq import HOST, Address, AddressError, PoolError, Range, overlap, own, own_name, parse
from ferroscope.config.options import BootSettings, PxeFilterSettings
from ferroscope.core.boot import CALLBACK_PATH
from ferroscope.telemetry.finding import Finding

_SECONDS: Final = 5.0
# There where systemd runs the host; a unit that a package or an operator installed.
_SYSTEMD: Final = Path("/run/systemd/system")
_UNITS: Final = tuple(
    Path(place, "dnsmasq.service")
    for place in ("/etc/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system")
)
_MADE: Final = "run: ferroscope pxe config --install, then restart dnsmasq"


def examine(settings: BootSettings, pxe_filter: PxeFilterSettings, host: str | None = None) -> Iterator[Finding]:
    """Yield the checks of this host; none at all where there are no boot hosts."""
    if not settings.hosts:
        return
    yield _callback(settings)
    try:
        others = {name: dnsmasq.pools(settings, name) for name in settings.hosts}
    except PoolError as exc:
        yield Finding("boot-ranges", "wrong", str(exc), "correct [boot] ranges")
        return
    if not settings.ranges:
        yield Finding("boot-ranges", "wrong", "boot hosts have no addresses to give", "set [boot] ranges")
        return
    name = host or own_name(settings.hosts)
    try:
        mine = own(settings, name)
    except AddressError as exc:
        yield Finding("boot-addresses", "wrong", str(exc), "correct it on all boot hosts")
        return
    parts = "; ".join(f"{one}: {', '.join(map(str, ranges))}" for one, ranges in others.items())
    yield Finding("boot-ranges", "ok", f"each boot host has addresses of its own ({parts})")
    if name not in settings.hosts:
        summary = f"this host, {name}, is none of the boot hosts ({', '.join(settings.hosts)})"
        yield Finding("boot-host", "note", summary, "if it shall be one, add it to [boot] hosts, on all hosts")
        return
    del others[name]
    yield from _addresses(mine)
    yield from _web(settings, pxe_filter)
    yield from _service()
    yield from interfaces(pxe_filter)
    yield from _configuration(settings, pxe_filter, name, others)
    yield from _files(settings)


def _addresses(mine: Mapping[int, Address]) -> Iterator[Finding]:
    wrong = ", ".join(str(address) for address in mine.values() if not _is_ours(address))
    if wrong:
        summary = f"this host has no address {wrong}, to which [boot] addresses sends its machines"
        advice = "correct [boot] addresses, on all boot hosts; ip address shows what this host has"
        yield Finding("boot-addresses", "wrong", summary, advice)


def _web(settings: BootSettings, pxe_filter: PxeFilterSettings) -> Iterator[Finding]:
    if HOST not in settings.http_url:
        return
    url = urllib.parse.urlsplit(settings.http_url)
    port = url.port or {"http": 80, "https": 443}[url.scheme]
    if port not in pxe_filter.http_ports:
        summary = f"port {port} of [boot] http_url is not guarded: every boot host serves every machine there"
        yield Finding("boot-files", "note", summary, f"add {port} to [pxe_filter] http_ports, on all boot hosts")


def _service() -> Iterator[Finding]:
    if _SYSTEMD.is_dir() and not any(unit.exists() for unit in _UNITS):
        summary = "there is no dnsmasq.service: nothing starts dnsmasq with this host, behind its filter"
        yield Finding("dnsmasq", "note", summary, "Debian's package dnsmasq has it; dnsmasq-base has the program alone")


def _is_ours(address: Address) -> bool:
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(address), 0))
    except OSError:
        return False
    return True


def interfaces(pxe_filter: PxeFilterSettings) -> Iterator[Finding]:
    """Yield a check where this host lacks one."""
    there = {name for _, name in socket.if_nameindex()}
    missing = [name for name in pxe_filter.interfaces if name not in there]
    if missing or not pxe_filter.interfaces:
        what = f"has no interface {', '.join(missing)}" if missing else "does not say on which interfaces machines boot"
        yield Finding("boot-host", "wrong", f"this host {what}", "correct [pxe_filter] interfaces; ip link shows them")


def _configuration(
    settings: BootSettings, pxe_filter: PxeFilterSettings, host: str, others: dict[str, tuple[Range, ...]]
) -> Iterator[Finding]:
    path = Path(settings.dnsmasq_config)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        yield Finding("dnsmasq", "wrong", f"{path} cannot be read: {getattr(exc, 'strerror', None) or exc}", _MADE)
        return
    yield _pools(path, text, others)
    yield _syntax(path)
    if text == dnsmasq.configuration(settings, pxe_filter, host):
        yield Finding("dnsmasq", "ok", f"{path} is what this configuration makes")
    else:
        yield Finding("dnsmasq", "note", f"{path} is not what this configuration makes", _MADE)


def _pools(path: Path, text: str, others: dict[str, tuple[Range, ...]]) -> Finding:
    """The addresses that are really given here must be nobody else's."""
    for found in _given(text):
        for name, ranges in others.items():
            for one in ranges:
                if overlap(found, one):
                    said = f"{path} gives {found}, but {one} is the part of {name}: one address could be given twice"
                    return Finding("boot-pools", "wrong", said, _MADE)
    return Finding("boot-pools", "ok", f"no address that {path} gives is another host's")


def _given(text: str) -> Iterator[Range]:
    """Yield the ranges of dnsmasq's ``dhcp-range`` lines: their first two words that are addresses."""
    for line in text.splitlines():
        option, _, value = line.strip().partition("=")
        if option.removeprefix("--").strip() != "dhcp-range":
            continue
        addresses = [word for word in map(str.strip, value.split(",")) if _is_address(word)][:2]
        if len(addresses) == 2:
            with suppress(PoolError):  # dnsmasq itself says what is wrong with it
                yield parse("-".join(addresses), hosts=1)


def _is_address(word: str) -> bool:
    try:
        ipaddress.ip_address(word)
    except ValueError:
        return False
    return True


def _syntax(path: Path) -> Finding:
    program = shutil.which("dnsmasq", path="/usr/sbin:/usr/bin:/usr/local/sbin:/sbin:/bin")
    if program is None:
        return Finding("dnsmasq", "wrong", "dnsmasq is not installed", "install it, Debian's package is dnsmasq")
    command = [program, "--test", f"--conf-file={path}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as exc:
        return Finding("dnsmasq", "wrong", f"{program} cannot be run: {exc}", "see whether it works by hand")
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["it does not say why"])[-1]
        return Finding("dnsmasq", "wrong", f"dnsmasq does not take {path}: {said}", _MADE)
    return Finding("dnsmasq", "ok", f"dnsmasq takes {path}")


def _files(settings: BootSettings) -> Iterator[Finding]:
    root = Path(settings.tftp_root)
    needed = [settings.script, *(name for name in (settings.kernel, settings.ramdisk) if "://" not in name)]
    missing = [name for name in needed if not (root / name).is_file()]
    if missing:
        advice = f"the script comes from ferroscope pxe config --install; put kernel and ramdisk into {root}"
        yield Finding("boot-files", "wrong", f"{root} lacks {', '.join(missing)}: no machine can boot", advice)
    else:
        yield Finding("boot-files", "ok", f"{', '.join(needed)} are in {root}")
    loaders = [settings.loader_bios, settings.loader_x64, settings.loader_arm64]
    lacking = [name for name in loaders if not (root / name).is_file()]
    if lacking:
        summary = f"{root} lacks {', '.join(lacking)}: machines of that kind whose firmware is not iPXE cannot boot"
        yield Finding("boot-files", "note", summary, "Debian has them in the package ipxe, in /usr/lib/ipxe")


def _callback(settings: BootSettings) -> Finding:
    url = urllib.parse.urlsplit(settings.callback_url)
    if url.scheme not in ("http", "https") or not url.hostname or not url.path.endswith(CALLBACK_PATH):
        summary = f"[boot] callback_url is {settings.callback_url!r}, to which no ramdisk could post"
        return Finding("callback", "wrong", summary, f"set it to http://HOST:6385{CALLBACK_PATH}")
    kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
    connection = kind(url.hostname, url.port, timeout=_SECONDS)
    path = url.path.removesuffix(CALLBACK_PATH) + "/healthcheck"
    try:
        connection.request("GET", path)
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as exc:
        advice = "is the api running, and is there a way to it from here? Machines need one from the boot network"
        return Finding("callback", "wrong", f"{url.netloc} cannot be reached: {exc}", advice)
    finally:
        connection.close()
    if status != 200:
        summary = f"{url.netloc} answers {status} to a health check, so that ramdisks may call back in vain"
        return Finding("callback", "wrong", summary, "see the api's log; correct [boot] callback_url where it is wrong")
    return Finding("callback", "ok", f"ramdisks find the api at {settings.callback_url}")
