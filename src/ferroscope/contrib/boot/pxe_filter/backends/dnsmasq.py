"""The filter as host files in dnsmasq's ``dhcp-hostsdir``: a few lists of denied MACs, and files for single MACs.

dnsmasq reads a new file at once. It forgets nothing until SIGHUP or a restart, searches all entries for each packet
(0.3 ms for 10,000 MACs, 8 ms for 100,000) and checks all its leases for each file. So MACs that are denied from the
start are in lists (dnsmasq reads 100,000 lines in 0.1 s), and each later change is a file with one line. The MACs of
idle nodes are denied here even if nftables is in front: only dnsmasq knows the client of a relayed DHCPv6 message.
With ``unknown_hosts = deny`` no such lines are needed.

A MAC that is no longer known keeps its file, which then has the rule for unknown hosts, until dnsmasq is made to
reload (``[pxe_filter] dnsmasq_pid_file``). If the disk is full, closing overwrites files in place. TFTP is not
guarded. Source: dnsmasq(8), and experiments with 2.90; a tag in a host line requires 2.81.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Final

import structlog

from ferroscope.contrib.boot.pxe_filter import PxeFilterError
from ferroscope.contrib.boot.pxe_filter.backends.base import FilterWatchdog
from ferroscope.contrib.boot.pxe_filter.backends.host_files import UNKNOWN_HOSTS, HostFiles
from ferroscope.core.boot_macs import SetChange, SortedMacs

# Makes dnsmasq forget deleted files: SIGHUP to the process in its pid file, and to no other process.

_log = structlog.get_logger(__name__)

_PROGRAM: Final = "dnsmasq"


class HostFileMemory(Enum):
    """How dnsmasq treats deleted files."""

    NONE = "not running"
    FORGETS = "can be made to reload"
    KEEPS = "remembers them until it is restarted"


class Dnsmasq:
    """``pid_file`` is dnsmasq's; empty: the process is unknown."""

    def __init__(self, pid_file: str) -> None:
        self._pid_file = pid_file

    def memory(self) -> HostFileMemory:
        """Check the process; if the PID belongs to another program, leave that alone and log it."""
        return self._find_process()[0]

    def reload(self) -> HostFileMemory:
        """Make it reload its files if possible; return how it then treats deleted ones."""
        memory, pid = self._find_process()
        if memory is not HostFileMemory.FORGETS:
            return memory
        try:
            os.kill(pid, signal.SIGHUP)
        except ProcessLookupError:
            return HostFileMemory.NONE
        except PermissionError:
            _log.warning("permission denied: cannot send SIGHUP to dnsmasq; grant CAP_KILL to pxe-filter", pid=pid)
            return HostFileMemory.KEEPS
        return HostFileMemory.NONE

    def _find_process(self) -> tuple[HostFileMemory, int]:
        if not self._pid_file:
            return HostFileMemory.KEEPS, 0
        try:
            pid = int(Path(self._pid_file).read_text(encoding="ascii"))
        except OSError:
            return HostFileMemory.KEEPS, 0
        except ValueError:
            pid = 0
        if pid <= 1:
            return self._wrong_process(pid, "not a PID")
        try:
            name = Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
        except FileNotFoundError:
            return HostFileMemory.NONE, pid
        except OSError as exc:
            return self._wrong_process(pid, exc.strerror or "unreadable")
        return (HostFileMemory.FORGETS, pid) if name == _PROGRAM else self._wrong_process(pid, name)

    def _wrong_process(self, pid: int, name: str) -> tuple[HostFileMemory, int]:
        _log.warning(
            "cannot make dnsmasq reload: the pid file names another process; see [pxe_filter] dnsmasq_pid_file",
            file=self._pid_file, pid=pid, process=name,
        )  # fmt: skip
        return HostFileMemory.KEEPS, pid


_MAX_SINGLE_MACS: Final = 20  # up to this many MACs at once get single files instead of a list
_MAX_LIST_LINES: Final = 10_000  # of a list
_BATCH_FILES: Final = 200  # written before the lock is released, so that closing need not wait long
_MAX_REPEATED_LINES: Final = 20_000  # superseded lines that dnsmasq holds before it is made to reload


class DnsmasqFilter:
    """A ``FilterBackend``. The kernel cannot close it, so a watchdog process does if this process dies or hangs."""

    name = "dnsmasq"
    self_closing = False

    def __init__(self, directory: str, *, unknown: bool, pid_file: str = "") -> None:
        self._directory = directory
        self._unknown = unknown
        self._dnsmasq = Dnsmasq(pid_file)
        self._watchdog = FilterWatchdog(directory=directory)
        self._files = HostFiles(directory)
        self._queue = threading.Lock()
        self._lock = threading.Lock()  # for the files and all attributes below
        self._allowed: set[int] = set()
        self._denied = SortedMacs()
        self._open = False
        self._written = False  # whether all files have the right content

    def install(self) -> None:
        """Start from an earlier process's files: deny them, then delete them if dnsmasq can be made to reload."""
        with self._changing():
            self._allowed, self._denied = set(), SortedMacs()
            self._files.take_over()
            self._rewrite(False)
            if self._dnsmasq.memory() is not HostFileMemory.KEEPS:
                self._files.forget()
                self._dnsmasq.reload()

    def apply(self, change: SetChange, *, fresh: bool, progress: Callable[[], object] = lambda: None) -> None:
        with self._changing():
            self._apply_watchdog_closing(closed=self._watchdog.has_closed())
            new_list = self._take(change, fresh=fresh)
        for macs in _batches(new_list, _MAX_LIST_LINES):
            progress()
            with self._changing():
                self._files.deny(macs)
        for macs in _batches(self._single(change, fresh=fresh), _BATCH_FILES):
            progress()
            with self._changing():
                self._write(macs)
        with self._changing():
            if self._files.repeated > _MAX_REPEATED_LINES and self._dnsmasq.memory() is HostFileMemory.FORGETS:
                self._dnsmasq.reload()
                self._files.repeated = 0

    def hold(self, until: float) -> float:
        with self._changing():
            self._apply_watchdog_closing(closed=self._watchdog.hold(until))
            self._restore_missing()
            if not self._open or not self._written:
                self._rewrite(True)
        return until

    def close(self) -> None:
        try:
            with self._changing():
                self._restore_missing()
                if self._open or not self._written:
                    self._rewrite(False)
        except PxeFilterError:
            with self._changing():
                self._files.close_in_place()
        with self._changing():
            self._watchdog.release()

    def remove(self) -> None:
        self._watchdog.end()
        with self._changing():
            self._files.remove()
        if self._dnsmasq.reload() is HostFileMemory.KEEPS:
            _log.warning(
                "dnsmasq remembers its host files and the denied MACs; restart dnsmasq", directory=self._directory
            )

    def _take(self, change: SetChange, *, fresh: bool) -> list[int]:
        """Update the sets; return the MACs to deny by lists."""
        if fresh:
            self._allowed, self._denied = set(), SortedMacs(change.deny)
        self._allowed.difference_update(change.no_longer_allow)
        self._allowed.update(change.allow)
        for mac in change.no_longer_deny:
            self._denied.discard(mac)
        for mac in () if fresh else change.deny:
            self._denied.add(mac)
        if not self._unknown:  # all unknown hosts are denied, and these with them
            return []
        denied = self._denied if fresh else change.deny
        unlisted = [mac for mac in denied if mac not in self._files.single and mac not in self._files.listed]
        return unlisted if len(unlisted) > _MAX_SINGLE_MACS else []

    def _single(self, change: SetChange, *, fresh: bool) -> list[int]:
        """Return the hosts whose single files may need new content."""
        with self._changing():
            if not fresh:
                macs = {*change.no_longer_allow, *change.no_longer_deny, *change.allow, *change.deny}
            else:
                macs = (self._files.single - {UNKNOWN_HOSTS}) | self._allowed
                macs |= self._files.listed.without(self._denied) | self._denied.without(self._files.listed)
            return [mac for mac in macs if self._needs_file(mac)]

    def _apply_watchdog_closing(self, *, closed: bool) -> None:
        if closed and self._open:
            self._open = self._written = False
            self._files.doubt()

    def _restore_missing(self) -> None:
        if self._files.restore():
            self._written = False

    def _rewrite(self, opened: bool) -> None:
        """Rewrite the files for an open or a closed filter; unknown hosts are denied first."""
        self._open, self._written = opened, False
        self._write([UNKNOWN_HOSTS])
        self._write([*self._files.single, *self._allowed])
        self._written = True

    def _write(self, hosts: Sequence[int]) -> None:
        for host in hosts:
            self._files.write(host, passes=self._passes(host))

    def _passes(self, host: int) -> bool:
        return self._open and (host in self._allowed or (self._unknown and host not in self._denied))

    def _needs_file(self, mac: int) -> bool:
        """Whether the MAC needs a single file, or had one, which dnsmasq remembers."""
        if mac in self._files.single or mac in self._allowed:
            return True
        return self._unknown and (mac in self._denied) is not (mac in self._files.listed)

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Hold the lock while changing the filter; ``PxeFilterError`` if files cannot be written."""
        with self._queue:  # fair: a thread that waits goes next, between two batches of another one
            self._lock.acquire()
        try:
            yield
        except OSError as exc:
            raise PxeFilterError(
                f"cannot write dnsmasq's host files in {self._directory}: {exc.strerror}; see dhcp_hostsdir"
            ) from exc
        finally:
            self._lock.release()


def _batches(macs: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    for start in range(0, len(macs), size):
        yield macs[start : start + size]
