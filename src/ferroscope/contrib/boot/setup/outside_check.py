"""Checks a boot host as its machines see it: an allowed machine boots, and a denied one gets no answer.

Both are a visitor (``visitor``) with MAC addresses that no machine has, which are allowed and denied in the filter's
sets during the check. A host whose filter is closed, because another one is open, answers neither.
"""

from __future__ import annotations

import ipaddress
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from ferroscope.config.options import BootSettings
from ferroscope.contrib.boot import dhcp_message, dhcp_probe, dnsmasq, host_facts
from ferroscope.contrib.boot.dhcp_message import DhcpReply
from ferroscope.contrib.boot.setup import downloads
from ferroscope.contrib.boot.setup.visitor import NIC, SetupVisitor, VisitorError
from ferroscope.node_boot import HOST, base_url
from ferroscope_client.core import json_safety
from ferroscope_client.core.finding import Finding

_PATIENCE_SECONDS: Final = 4.0
_SILENCE_SECONDS: Final = 2.0
_OPEN_SECONDS: Final = 15.0
_FIREWALL: Final = (
    "if the service runs, a firewall of this host drops it: nft list ruleset; accept UDP 67, 69 and 4011, and the port "
    "of the web server"
)


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """What is checked. ``table``: of the filter; ``machine``: an address for the visitor, with prefix length.

    ``patience``: seconds that a server may take to answer; ``opens``: that the filter may take to open; ``silence``:
    for how long a machine that must not be answered waits in vain.
    """

    interface: str
    bridge: bool
    server: str
    table: str
    machine: str
    boot: BootSettings
    patience: float = _PATIENCE_SECONDS
    opens: float = _OPEN_SECONDS
    silence: float = _SILENCE_SECONDS

    @property
    def files(self) -> list[str]:
        return [file for file in (self.boot.kernel, self.boot.ramdisk) if "://" not in file]

    @property
    def web(self) -> str:
        return base_url(self.boot, self.server)


def look(subject: Subject) -> Iterator[Finding]:
    """Yield the results of a visit."""
    allowed, denied = dhcp_probe.random_mac(), dhcp_probe.random_mac()
    silent = list(_services(subject))
    yield from silent
    opened, why = _wait_open(subject)
    if not opened:
        yield Finding("filter", "wrong", why, "see: ferroscope status; systemctl status ferroscope-pxe-filter")
        return
    try:
        with _admit(subject.table, allowed, denied), _visitor(subject, allowed, denied) as visitor:
            yield from _check_denied(subject, visitor, denied)
            yield from _check_allowed(subject, visitor, allowed, {check.code for check in silent})
    except (VisitorError, OSError) as exc:
        advice = "boot one machine to see it work; its timeline and the console say where it stops"
        yield Finding("outside", "note", f"this host cannot be checked from the outside: {exc}", advice)


def _services(subject: Subject) -> Iterator[Finding]:
    """Yield services that do not run, so that no result is expected of them."""
    if not host_facts.listens(67, udp=True):
        advice = "see: systemctl status dnsmasq; journalctl -u dnsmasq"
        yield Finding("dhcp", "wrong", "dnsmasq does not run: no program listens on UDP port 67", advice)
    for port in _web_ports(subject):
        if not host_facts.listens(port, udp=False):
            summary = f"the web server does not run: no program listens on TCP port {port}"
            yield Finding("http", "wrong", summary, "see: systemctl status nginx; nginx -t")


def _web_ports(subject: Subject) -> list[int]:
    if HOST not in subject.boot.http_url:
        return []
    return [int(subject.web.rpartition(":")[2]) if subject.web.count(":") > 1 else 80]


def _wait_open(subject: Subject) -> tuple[bool, str]:
    """Wait until the filter is open; return whether it is, and why not."""
    end = time.monotonic() + subject.opens
    while True:
        listed = _nft("-j", "list", "set", "inet", subject.table, "open")
        if listed is None:
            return False, f"the PXE filter is not installed: nftables has no table inet {subject.table}"
        objects = json_safety.decode_own(listed).get("nftables", ())
        if any(nft_object.get("set", {}).get("elem") for nft_object in objects):
            return True, ""
        if time.monotonic() > end:
            return False, "the PXE filter of this host is closed: it answers no machine"
        time.sleep(0.2)


@contextmanager
def _visitor(subject: Subject, *macs: str) -> Iterator[SetupVisitor]:
    with SetupVisitor(subject.interface, bridge=subject.bridge, macs=macs) as visitor:
        yield visitor


@contextmanager
def _admit(table: str, allowed: str, denied: str) -> Iterator[None]:
    """Let the filter know both machines; its own next full reconciliation would forget them."""
    elements = [(name, f"{{ 0x{mac.replace(':', '')} }}") for name, mac in (("allow", allowed), ("deny", denied))]
    for name, element in elements:
        if _nft("add", "element", "inet", table, name, element) is None:
            raise VisitorError(f"nft cannot change the set {name} of the table {table}")
    try:
        yield
    finally:
        for name, element in elements:
            _nft("delete", "element", "inet", table, name, element)


def _check_denied(subject: Subject, visitor: SetupVisitor, mac: str) -> Iterator[Finding]:
    visitor.become(mac)
    with visitor.inside():
        question = dhcp_message.message(mac, 0, architecture=7)
        answer = dhcp_probe.ask(NIC, mac, question, seconds=subject.silence, of=subject.server)
    visitor.become(mac, subject.machine)
    with visitor.inside():
        got = [] if answer is None else ["DHCP"]
        if not downloads.tftp(subject.server, subject.boot.loader_x64, seconds=subject.silence).error.startswith(
            "no answer"
        ):
            got.append("TFTP")
        if _web_ports(subject) and downloads.web(f"{subject.web}/", seconds=subject.silence).error != "no answer":
            got.append("HTTP")
    if got:
        summary = f"a machine that must not boot is answered over {', '.join(got)}"
        yield Finding("denied", "wrong", summary, "the filter does not guard it: ferroscope doctor")
    else:
        yield Finding("denied", "ok", "a machine that must not boot gets no answer: DHCP, TFTP, HTTP")


def _check_allowed(subject: Subject, visitor: SetupVisitor, mac: str, broken: set[str]) -> Iterator[Finding]:
    if "dhcp" not in broken:
        visitor.become(mac)
        yield from _addresses(subject, visitor, mac)
    visitor.become(mac, subject.machine)
    with visitor.inside():
        if "dhcp" not in broken:
            yield from _loaders(subject)
        yield from _boot_files(subject, over_http="http" not in broken)


def _addresses(subject: Subject, visitor: SetupVisitor, mac: str) -> Iterator[Finding]:
    """Ask as each kind of machine, and compare the boot file that it gets."""
    boot = subject.boot
    script = f"{subject.web}/{dnsmasq.SCRIPT_NAME}" if subject.web else dnsmasq.SCRIPT_NAME
    expected = [
        ("BIOS", 0, False, boot.loader_bios),
        ("UEFI x86-64", 7, False, boot.loader_x64),
        ("UEFI arm64", 11, False, boot.loader_arm64),
        ("iPXE", 7, True, script),
    ]
    wrong, offered = [], ""
    for name, architecture, is_ipxe, file in expected:
        question = dhcp_message.message(mac, 0, architecture=architecture, ipxe=is_ipxe)
        with visitor.inside():
            answer = dhcp_probe.ask(NIC, mac, question, seconds=subject.patience, of=subject.server)
        if answer is None:
            yield Finding("dhcp", "wrong", f"an allowed machine ({name}) gets no answer over DHCP", _FIREWALL)
            return
        if boot.proxied_networks and not is_ipxe and architecture:
            answer = _from_proxy(subject, visitor, mac, architecture)
        offered = offered or (answer.address if answer is not None else "")
        if answer is None or answer.boot_file != file:
            got = answer.boot_file if answer is not None else "no answer on port 4011"
            wrong.append(f"{name} gets the boot file {got!r} instead of {file!r}")
    if wrong:
        yield Finding(
            "dhcp", "wrong", "; ".join(wrong), "does dnsmasq run with these settings? systemctl restart dnsmasq"
        )
    elif boot.proxied_networks:
        yield Finding("dhcp", "ok", "an allowed machine gets its boot file, and no address from this host")
    else:
        yield Finding("dhcp", "ok", f"an allowed machine gets an address ({offered}) and its boot file")


def _from_proxy(subject: Subject, visitor: SetupVisitor, mac: str, architecture: int) -> DhcpReply | None:
    own = str(ipaddress.IPv4Interface(subject.machine).ip)
    visitor.become(mac, subject.machine)
    try:
        with visitor.inside():
            return dhcp_probe.ask_proxy(
                subject.server, mac, own, architecture=architecture, seconds=subject.patience
            )  # fmt: skip
    finally:
        visitor.become(mac)


def _loaders(subject: Subject) -> Iterator[Finding]:
    boot = subject.boot
    names = [
        loader
        for loader in (boot.loader_bios, boot.loader_x64, boot.loader_arm64)
        if Path(boot.tftp_root, loader).exists()
    ]
    if not names:
        summary = f"{boot.tftp_root} has no iPXE: firmware cannot boot"
        yield Finding("tftp", "wrong", summary, "install the package ipxe, then run: ferroscope setup --boot network")
    loads = {name: downloads.tftp(subject.server, name, seconds=subject.patience) for name in names}
    yield from _verdict(subject, "tftp", loads)


def _boot_files(subject: Subject, *, over_http: bool) -> Iterator[Finding]:
    names = [dnsmasq.SCRIPT_NAME, *subject.files]
    if subject.web and not _web_ports(subject):
        yield Finding("http", "note", f"{subject.web} is on another host, and was not checked")
    elif not subject.web:
        yield from _verdict(
            subject, "tftp", {name: downloads.tftp(subject.server, name, seconds=subject.patience) for name in names}
        )
    elif over_http:
        yield from _verdict(
            subject, "http", {name: downloads.web(f"{subject.web}/{name}", seconds=subject.patience) for name in names}
        )


def _verdict(subject: Subject, code: str, loads: dict[str, downloads.PackageDownload]) -> Iterator[Finding]:
    root = Path(subject.boot.tftp_root)
    for name, got in loads.items():
        path = root / name
        if not got.error and path.is_file() and got.size not in (None, path.stat().st_size):
            summary = f"{name} has {got.size} bytes over {code.upper()}, but {path.stat().st_size} on this host"
            yield Finding(code, "wrong", summary, f"does the server serve another directory than {root}?")
        if got.error:
            yield Finding(
                code, "wrong", f"{name} cannot be loaded over {code.upper()}: {got.error}", _cure(subject, path, got)
            )
    if loads and not any(got.error for got in loads.values()):
        yield Finding(code, "ok", f"an allowed machine loads over {code.upper()}: {', '.join(loads)}")


def _cure(subject: Subject, path: Path, got: downloads.PackageDownload) -> str:
    if got.error == "no answer":
        return _FIREWALL
    if path.exists():
        return f"let all users read it: chmod o+r {path}, and o+x its directories"
    if path.name in subject.files:
        return "build kernel and ramdisk: ferroscope ramdisk build"
    return "run: ferroscope setup --boot network"


def _nft(*words: str) -> str | None:
    """Return what nft says; None if it fails."""
    try:
        done = subprocess.run(  # noqa: S603  # nft(8)
            [shutil.which("nft", path=host_facts.PATH) or "nft", *words],
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
