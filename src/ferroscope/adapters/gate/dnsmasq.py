"""The gate as host files in dnsmasq's ``dhcp-hostsdir``: a file for each MAC, and one for unknown hosts.

dnsmasq reads a file when it is renamed into the directory, at once; it never forgets what it has
read until SIGHUP or its restart. So a MAC that is no longer known keeps its file, which then says
what holds for unknown ones, until dnsmasq can be told to forget (``[pxe_filter] dnsmasq_pid_file``).
Files are written beside, under a name that dnsmasq ignores, and renamed; where the disk is full,
closing overwrites them in place. TFTP is not guarded. Source: dnsmasq(8), and trials with 2.90.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from ferroscope.adapters.gate.watchdog import PREFIX, close_files
from ferroscope.adapters.gate.watched import Watchdog
from ferroscope.domain.gate import spelled
from ferroscope.domain.macsets import SetChange
from ferroscope.ports.gate import GateError

_UNKNOWN: Final = "*:*:*:*:*:*"
_UNKNOWN_FILE: Final = f"{PREFIX}unknown"
_FILES: Final = 200  # between two signs of life


class DnsmasqGate:
    """See ``ports.gate.GateBackend``. A watchdog closes it when this process does not; the kernel cannot."""

    name = "dnsmasq"
    self_closing = False

    def __init__(self, directory: str, *, unknown: bool, pid_file: str = "") -> None:
        self._directory = Path(directory)
        self._unknown = unknown
        self._pid_file = pid_file
        self._watchdog = Watchdog(directory=directory)
        self._allowed: set[int] = set()
        self._denied: set[int] = set()
        self._written: dict[int, bool] = {}  # what the file of each MAC says: may it boot?
        self._open = False

    def install(self) -> None:
        """Start from whatever an earlier process left: its files are denied, or forgotten where that is possible."""
        self._open = False
        self._allowed, self._denied, self._written = set(), set(), {}
        try:
            self._write(_UNKNOWN_FILE, _UNKNOWN, passes=False)
            if self._can_forget():
                self._forget()
            else:
                close_files(str(self._directory))
                self._written = {mac: False for path in self._files() if (mac := _mac_of(path)) is not None}
        except OSError as exc:
            raise GateError(self._trouble(exc)) from exc

    def apply(self, change: SetChange, *, fresh: bool, progress: Callable[[], object] = lambda: None) -> None:
        before: set[int] = (self._allowed | self._denied) if fresh else set()
        if fresh:
            self._allowed, self._denied = set(), set()
        self._allowed = self._allowed.difference(change.no_longer_allow).union(change.allow)
        self._denied = self._denied.difference(change.no_longer_deny).union(change.deny)
        macs = list(before.union(change.no_longer_allow, change.no_longer_deny, change.allow, change.deny))
        for start in range(0, len(macs), _FILES):
            progress()
            self._sync(macs[start : start + _FILES])

    def hold(self, until: float) -> float:
        if self._watchdog.hold(until) and self._open:
            self._open = False
            self._written = dict.fromkeys(self._written, False)  # the watchdog wrote them all
        if not self._open:
            self._switch(True)
        return until

    def close(self) -> None:
        try:
            self._switch(False)
        except GateError:
            self._close_in_place()
        self._watchdog.release()

    def remove(self) -> None:
        self._watchdog.end()
        try:
            for path in self._files():
                path.unlink(missing_ok=True)
            self._tell_to_forget()
        except OSError as exc:
            raise GateError(self._trouble(exc)) from exc
        self._written = {}

    def _switch(self, opened: bool) -> None:
        """Write what changes when the gate opens or closes; unknown hosts are the first to be shut out."""
        self._open = opened
        try:
            if not opened or self._unknown:
                self._write(_UNKNOWN_FILE, _UNKNOWN, passes=opened and self._unknown)
        except OSError as exc:
            raise GateError(self._trouble(exc)) from exc
        self._sync(mac for mac in list(self._written) + list(self._allowed) if mac not in self._denied)

    def _sync(self, macs: Iterable[int]) -> None:
        try:
            for mac in macs:
                passes = self._passes(mac)
                if self._needs_file(mac) and self._written.get(mac) is not passes:
                    self._write(PREFIX + f"{mac:012x}", spelled(mac), passes=passes)
                    self._written[mac] = passes
        except OSError as exc:
            raise GateError(self._trouble(exc)) from exc

    def _passes(self, mac: int) -> bool:
        if mac in self._allowed:
            return self._open
        return self._open and self._unknown and mac not in self._denied

    def _needs_file(self, mac: int) -> bool:
        """Whether it differs from unknown hosts, or dnsmasq remembers that it once did."""
        return mac in self._written or mac in self._allowed or (mac in self._denied and self._unknown)

    def _write(self, name: str, host: str, *, passes: bool) -> None:
        beside = self._directory / f".{name}"
        beside.write_text(f"{host}\n" if passes else f"{host},ignore\n")
        beside.replace(self._directory / name)

    def _close_in_place(self) -> None:
        try:
            close_files(str(self._directory))
        except OSError as exc:
            raise GateError(self._trouble(exc)) from exc
        self._written = dict.fromkeys(self._written, False)

    def _files(self) -> list[Path]:
        return [*self._directory.glob(f"{PREFIX}*"), *self._directory.glob(f".{PREFIX}*")]

    def _can_forget(self) -> bool:
        return bool(self._pid_file) and Path(self._pid_file).exists()

    def _forget(self) -> None:
        for path in self._files():
            if path.name != _UNKNOWN_FILE:
                path.unlink(missing_ok=True)
        self._tell_to_forget()

    def _tell_to_forget(self) -> None:
        if not self._can_forget():
            return
        try:
            os.kill(int(Path(self._pid_file).read_text()), signal.SIGHUP)
        except (ValueError, ProcessLookupError):
            return  # it does not run: it will read the directory when it starts

    def _trouble(self, exc: OSError) -> str:
        return f"dnsmasq's host files in {self._directory} could not be written: {exc.strerror}; see [pxe_filter]"


def _mac_of(path: Path) -> int | None:
    try:
        return int(path.name.removeprefix(PREFIX), 16)
    except ValueError:
        return None
