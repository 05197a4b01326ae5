"""A machine on the boot network, for a check: a network namespace whose cable ends at a boot interface of this host.

With a bridge, the cable is plugged into it. With any other interface, tc(8) makes frames of the visitor arrive as if
they came in through it, and sends to the visitor what leaves it for the visitor or for everybody. So the firewall, the
PXE filter and the servers see an ordinary machine. Everything is removed at the end; only the qdisc ``clsact``, which
has no effect by itself, stays. Needs root.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

_NEW_NET: Final = 0x40000000  # CLONE_NEWNET, setns(2)
_GET_MAC: Final = 0x8927  # SIOCGIFHWADDR, netdevice(7)
_FILTER_PRIORITY: Final = 49000
NIC: Final = "eth0"
_COMMAND_SECONDS: Final = 10.0
_libc = ctypes.CDLL(None, use_errno=True)


class VisitorError(Exception):
    """The kernel or a missing program does not allow it; the message has the command and its error."""


class SetupVisitor:
    """``with Visitor(interface, bridge=..., macs=...) as visitor``; ``macs``: all that it will have."""

    def __init__(self, interface: str, *, bridge: bool, macs: Sequence[str]) -> None:
        self._interface = interface
        self._bridge = bridge
        self._macs = macs
        self.name = f"fscheck-{os.getpid()}"
        self._cable = f"fsc{os.getpid() % 10**7}"

    def __enter__(self) -> Self:
        try:
            self._open()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def become(self, mac: str, address: str = "") -> None:
        """Take this MAC address, and an address such as 10.0.0.50/24, or none."""
        inside = ("ip", "-n", self.name)
        _run(*inside, "link", "set", NIC, "down")
        _run(*inside, "address", "flush", "dev", NIC)
        _run(*inside, "link", "set", NIC, "address", mac)
        _run(*inside, "link", "set", NIC, "up")
        if address:
            _run(*inside, "address", "add", address, "dev", NIC)
            # This host may remember the address with the former MAC address.
            with suppress(VisitorError):
                _run("ip", "neighbour", "del", address.partition("/")[0], "dev", self._interface)

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Within, this thread opens its sockets in the namespace; they stay there."""
        with Path("/proc/thread-self/ns/net").open("rb") as home, Path("/run/netns", self.name).open("rb") as there:
            _enter(there.fileno())
            try:
                yield
            finally:
                _enter(home.fileno())

    def _open(self) -> None:
        _run("ip", "netns", "add", self.name)
        _run("ip", "link", "add", self._cable, "type", "veth", "peer", "name", NIC, "netns", self.name)
        with suppress(VisitorError):  # a kernel without IPv6
            _run("ip", "link", "set", self._cable, "addrgenmode", "none")  # nothing may be sent from this end
        _run("ip", "link", "set", self._cable, "up")
        if self._bridge:
            _run("ip", "link", "set", self._cable, "master", self._interface)
            return
        # Otherwise the kernel takes what the visitor sends to this host for frames of others, and drops them.
        _run("ip", "link", "set", self._cable, "address", _mac(self._interface))
        with suppress(VisitorError):  # it is there already
            _run("tc", "qdisc", "add", "dev", self._interface, "clsact")
        _run("tc", "qdisc", "add", "dev", self._cable, "clsact")
        rule = ("protocol", "all", "pref", str(_FILTER_PRIORITY), "u32", "match")
        _run("tc", "filter", "add", "dev", self._cable, "ingress", *rule, "u32", "0", "0",
             "action", "mirred", "ingress", "redirect", "dev", self._interface)  # fmt: skip
        out = ("tc", "filter", "add", "dev", self._interface, "egress", *rule, "ether", "dst")
        for mac in self._macs:
            _run(*out, mac, "action", "mirred", "egress", "redirect", "dev", self._cable)
        _run(*out, "ff:ff:ff:ff:ff:ff", "action", "mirred", "egress", "mirror", "dev", self._cable)

    def _close(self) -> None:
        commands = [["ip", "netns", "delete", self.name], ["ip", "link", "delete", self._cable]]
        if not self._bridge:
            commands.insert(
                0, ["tc", "filter", "delete", "dev", self._interface, "egress", "pref", str(_FILTER_PRIORITY)]
            )
        for command in commands:
            with suppress(VisitorError):
                _run(*command)


def _run(*command: str) -> None:
    try:
        done = subprocess.run(  # noqa: S603  # ip(8) and tc(8)
            command, capture_output=True, text=True, timeout=_COMMAND_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise VisitorError(f"{' '.join(command)}: {exc}") from exc
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise VisitorError(f"{' '.join(command)}: {lines[0]}")


def _mac(interface: str) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        answer = fcntl.ioctl(any_socket, _GET_MAC, struct.pack("256s", interface.encode()))
    return answer[18:24].hex(":")


def _enter(descriptor: int) -> None:
    if _libc.setns(descriptor, _NEW_NET) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
