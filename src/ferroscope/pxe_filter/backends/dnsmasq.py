"""The filter as host files in dnsmasq's ``dhcp-hostsdir``: a few lists of denied MACs, and files for single ones.

dnsmasq reads a file at once; it never forgets what it has read until SIGHUP or its restart, and walks through all of
it for each packet (some 0.3 ms for 10,000 MACs, 8 ms for 100,000) and each of its leases for each file. So whoever is
denied from the start is on a list, of which dnsmasq reads 100,000 lines in 0.1 s, and each change afterwards is a file
with one line. The MACs of idle nodes are denied here also where nftables stands in front, for of a relayed DHCPv6
message only dnsmasq knows the client; with ``unknown_hosts = deny`` no such line is needed.

A MAC that is no longer known keeps its file, which then says what holds for unknown ones, until dnsmasq is told to
forget (``[pxe_filter] dnsmasq_pid_file``). Where the disk is full, closing overwrites files in place. TFTP is not
guarded. Source: dnsmasq(8), and trials with 2.90; a tag in a host's line needs 2.81.
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

from ferroscope.contracts.pxe_filter import PxeFilterError
from ferroscope.core.boot_macs import SetChange, SortedMacs
from ferroscope.pxe_filter.backends.host_files import ANYBODY, HostFiles
from ferroscope.pxe_filter.backends.watchdog_client import Watchdog

# Has dnsmasq forget what it has read: by SIGHUP, to the process in its pid file and to no other.

_log = structlog.get_logger(__name__)

_PROGRAM: Final = "dnsmasq"


class Memory(Enum):
    """What dnsmasq knows of files that are gone."""

    NONE = "it does not run"
    FORGETS = "it can be told to forget them"
    KEEPS = "it remembers them until its restart"


class Dnsmasq:
    """``pid_file`` is dnsmasq's; empty: nothing is known of the process."""

    def __init__(self, pid_file: str) -> None:
        self._pid_file = pid_file

    def memory(self) -> Memory:
        """Look at the process; whoever else has its number is left alone, and named in the log."""
        return self._look()[0]

    def tell_to_forget(self) -> Memory:
        """Have it read its files anew where it can be told; what it knows of those that are gone now."""
        memory, pid = self._look()
        if memory is not Memory.FORGETS:
            return memory
        try:
            os.kill(pid, signal.SIGHUP)
        except ProcessLookupError:
            return Memory.NONE
        except PermissionError:
            _log.warning("dnsmasq may not be told to forget host files; give the filter CAP_KILL", pid=pid)
            return Memory.KEEPS
        return Memory.NONE

    def _look(self) -> tuple[Memory, int]:
        if not self._pid_file:
            return Memory.KEEPS, 0
        try:
            pid = int(Path(self._pid_file).read_text(encoding="ascii"))
        except OSError:
            return Memory.KEEPS, 0
        except ValueError:
            pid = 0
        if pid <= 1:
            return self._foreign(pid, "no pid of a dnsmasq")
        try:
            name = Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
        except FileNotFoundError:
            return Memory.NONE, pid
        except OSError as exc:
            return self._foreign(pid, exc.strerror or "unreadable")
        return (Memory.FORGETS, pid) if name == _PROGRAM else self._foreign(pid, name)

    def _foreign(self, pid: int, name: str) -> tuple[Memory, int]:
        _log.warning(
            "no dnsmasq is told to forget host files: the pid file names another process; see [pxe_filter] "
            "dnsmasq_pid_file", file=self._pid_file, pid=pid, process=name,
        )  # fmt: skip
        return Memory.KEEPS, pid


_FEW: Final = 20  # so many at once are denied by files of their own
_LINES: Final = 10_000  # of a list
_FILES: Final = 200  # which are written before anybody else has a turn
_REPEATED: Final = 20_000  # lines that dnsmasq has read in vain before it is told to forget


class DnsmasqFilter:
    """See ``contracts.pxe_filter.FilterBackend``. A watchdog closes it where this process does not; no kernel can."""

    name = "dnsmasq"
    self_closing = False

    def __init__(self, directory: str, *, unknown: bool, pid_file: str = "") -> None:
        self._directory = directory
        self._unknown = unknown
        self._dnsmasq = Dnsmasq(pid_file)
        self._watchdog = Watchdog(directory=directory)
        self._files = HostFiles(directory)
        self._turn = threading.Lock()
        self._lock = threading.Lock()  # for all that follows, and the files
        self._allowed: set[int] = set()
        self._denied = SortedMacs()
        self._open = False
        self._settled = False  # whether all files say what they should

    def install(self) -> None:
        """Start from whatever an earlier process left: its files are denied, then forgotten where that is possible."""
        with self._changing():
            self._allowed, self._denied = set(), SortedMacs()
            self._files.take_over()
            self._switch(False)
            if self._dnsmasq.memory() is not Memory.KEEPS:
                self._files.forget()
                self._dnsmasq.tell_to_forget()

    def apply(self, change: SetChange, *, fresh: bool, progress: Callable[[], object] = lambda: None) -> None:
        with self._changing():
            self._heed_the_watchdog(closed=self._watchdog.has_closed())
            listed = self._take(change, fresh=fresh)
        for macs in _portions(listed, _LINES):
            progress()
            with self._changing():
                self._files.deny(macs)
        for macs in _portions(self._single(change, fresh=fresh), _FILES):
            progress()
            with self._changing():
                self._say(macs)
        with self._changing():
            if self._files.repeated > _REPEATED and self._dnsmasq.memory() is Memory.FORGETS:
                self._dnsmasq.tell_to_forget()
                self._files.repeated = 0

    def hold(self, until: float) -> float:
        with self._changing():
            self._heed_the_watchdog(closed=self._watchdog.hold(until))
            self._look_for_missing()
            if not self._open or not self._settled:
                self._switch(True)
        return until

    def close(self) -> None:
        try:
            with self._changing():
                self._look_for_missing()
                if self._open or not self._settled:
                    self._switch(False)
        except PxeFilterError:
            with self._changing():
                self._files.close_in_place()
        with self._changing():
            self._watchdog.release()

    def remove(self) -> None:
        self._watchdog.end()
        with self._changing():
            self._files.remove()
        if self._dnsmasq.tell_to_forget() is Memory.KEEPS:
            _log.warning(
                "dnsmasq remembers its host files, and whom they denied; restart it", directory=self._directory
            )

    def _take(self, change: SetChange, *, fresh: bool) -> list[int]:
        """Change the sets; return whom to deny by lists."""
        if fresh:
            self._allowed, self._denied = set(), SortedMacs(change.deny)
        self._allowed.difference_update(change.no_longer_allow)
        self._allowed.update(change.allow)
        for mac in change.no_longer_deny:
            self._denied.discard(mac)
        for mac in () if fresh else change.deny:
            self._denied.add(mac)
        if not self._unknown:  # they are denied as all others are
            return []
        denied = self._denied if fresh else change.deny
        wanted = [mac for mac in denied if mac not in self._files.single and mac not in self._files.listed]
        return wanted if len(wanted) > _FEW else []

    def _single(self, change: SetChange, *, fresh: bool) -> list[int]:
        """Return whose own files may have to say something else now."""
        with self._changing():
            if not fresh:
                macs = {*change.no_longer_allow, *change.no_longer_deny, *change.allow, *change.deny}
            else:
                macs = (self._files.single - {ANYBODY}) | self._allowed
                macs |= self._files.listed.without(self._denied) | self._denied.without(self._files.listed)
            return [mac for mac in macs if self._needs_file(mac)]

    def _heed_the_watchdog(self, *, closed: bool) -> None:
        if closed and self._open:
            self._open = self._settled = False
            self._files.doubt()

    def _look_for_missing(self) -> None:
        if self._files.restore():
            self._settled = False

    def _switch(self, opened: bool) -> None:
        """Write what changes when the filter opens or closes; unknown hosts are the first to be shut out."""
        self._open, self._settled = opened, False
        self._say([ANYBODY])
        self._say([*self._files.single, *self._allowed])
        self._settled = True

    def _say(self, hosts: Sequence[int]) -> None:
        for host in hosts:
            self._files.say(host, passes=self._passes(host))

    def _passes(self, host: int) -> bool:
        return self._open and (host in self._allowed or (self._unknown and host not in self._denied))

    def _needs_file(self, mac: int) -> bool:
        """Whether a file of its own has to say it, or did once, which dnsmasq remembers."""
        if mac in self._files.single or mac in self._allowed:
            return True
        return self._unknown and (mac in self._denied) is not (mac in self._files.listed)

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Let nobody else change the filter meanwhile; ``PxeFilterError`` where files cannot be written."""
        with self._turn:  # whoever waits is the next: who has many portions does not have them all at once
            self._lock.acquire()
        try:
            yield
        except OSError as exc:
            raise PxeFilterError(
                f"dnsmasq's host files in {self._directory} could not be written: {exc.strerror}; see [pxe_filter]"
            ) from exc
        finally:
            self._lock.release()


def _portions(macs: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    for start in range(0, len(macs), size):
        yield macs[start : start + size]
