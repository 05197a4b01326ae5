"""Network namespaces of one process: made, connected, entered, and removed with everything that runs in them.

Names begin with this process's id, so that runs beside each other do not meet, and what a killed run left
behind can be told and swept. Nothing here touches the namespace of the host itself: no address, no route, no link.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

_CLONE_NEWNET: Final = 0x40000000
_RUN: Final = Path("/run/netns")
_OURS: Final = re.compile(r"^fp(\d+)-")
_libc = ctypes.CDLL(None, use_errno=True)


class Netns:
    """A namespace with its loopback up and IPv6 addresses that may be used at once."""

    def __init__(self, tag: str) -> None:
        self.name = f"fp{os.getpid()}-{tag}"
        self.prefix: Sequence[str] = ("ip", "netns", "exec", self.name)
        ip("netns", "add", self.name)
        for scope in ("all", "default"):
            self.sysctl(f"ipv6/conf/{scope}/accept_dad", "0")
        self.ip("link", "set", "lo", "up")

    def ip(self, *words: str, check: bool = True) -> str:
        """Run ``ip`` in it; return what it printed."""
        return ip("-n", self.name, *words, check=check)

    def run(self, *command: str, timeout: float = 30.0) -> subprocess.CompletedProcess[str]:
        """Run a command in it to its end, whatever that is."""
        return subprocess.run(
            [*self.prefix, *command], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout,
            check=False,
        )  # fmt: skip

    def entered(self) -> contextlib.AbstractContextManager[None]:
        """Within, this thread opens its sockets there; they stay there."""
        return entered(self.name)

    def close(self) -> None:
        """End all that runs in it, and remove it; its links go with it."""
        end(self.name)

    def sysctl(self, name: str, value: str) -> None:
        """Set a parameter below /proc/sys/net."""
        with self.entered():
            Path("/proc/sys/net", name).write_text(value)  # it shows the namespace of whoever looks


def connect(here: Netns, name: str, there: Netns, other: str) -> None:
    """Lay a cable between two namespaces: link ``name`` here, link ``other`` there; both are up."""
    ip("link", "add", name, "netns", here.name, "type", "veth", "peer", "name", other, "netns", there.name)
    here.ip("link", "set", name, "up")
    there.ip("link", "set", other, "up")


def bridge(where: Netns, name: str) -> None:
    """Make a switch that forwards at once and everything."""
    where.ip("link", "add", name, "type", "bridge", "stp_state", "0", "forward_delay", "0", "mcast_snooping", "0")
    where.ip("link", "set", name, "up")


def ip(*words: str, check: bool = True) -> str:
    """Run ``ip``; ``RuntimeError`` where it fails."""
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if check and done.returncode:
        raise RuntimeError(f"ip {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


@contextlib.contextmanager
def entered(name: str) -> Iterator[None]:
    """Within, this thread opens its sockets in the namespace; they stay there."""
    with Path("/proc/thread-self/ns/net").open("rb") as home, (_RUN / name).open("rb") as there:
        _setns(there.fileno())
        try:
            yield
        finally:
            _setns(home.fileno())


def end(name: str) -> None:
    """End what runs in the namespace, by pid, and remove it."""
    for pid in ip("netns", "pids", name, check=False).split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
    ip("netns", "delete", name, check=False)


def sweep() -> None:
    """Remove the namespaces of processes that were killed before they could do so."""
    for path in _RUN.glob("fp*-*") if _RUN.is_dir() else ():
        owner = _OURS.match(path.name)
        if owner and not Path(f"/proc/{owner[1]}").exists():
            end(path.name)


def need_root() -> None:
    """Raise where namespaces cannot be made: an error, for a skipped proof is none."""
    if os.geteuid() != 0:
        raise RuntimeError("network namespaces need root: run this as root, for example with sudo")


def _setns(descriptor: int) -> None:
    if _libc.setns(descriptor, _CLONE_NEWNET) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
