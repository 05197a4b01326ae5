"""The files in dnsmasq's ``dhcp-hostsdir``: one for unknown hosts, some for single MACs, and lists of many denied ones.

dnsmasq reads a file when it is renamed into the directory, at once, and *adds* what it says to what it has read
before. So nothing is written that is said already, and a file for a single MAC, once written, stays: it says from
then on what holds for that MAC, and goes before all lists, whatever the order in which dnsmasq reads. A list is never
changed.

Everybody may read the files, whatever the umask: dnsmasq has dropped root and its groups when it does. Nothing is
synced to the disk: after a power failure files may be empty, so what is found is judged by its name, and a list
whose lines are not all as they were written is replaced.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, KeysView, Sequence
from itertools import chain
from pathlib import Path
from typing import Final

from ferroscope.core.boot_macs import SortedMacs, spelled
from ferroscope.pxe_filter.backends.watchdog import PREFIX, READABLE, UNKNOWN, close_files, host_of, is_denied

ANYBODY: Final = -1  # stands for the hosts that have no line of their own

_LIST: Final = re.compile(rf"{PREFIX}denied-([0-9]+)")
_LINES: Final = re.compile(rb"(?:[0-9a-f]{2}(?::[0-9a-f]{2}){5},ignore\n)+")
_MAC: Final = re.compile(rb"^[0-9a-f]{2}(?::[0-9a-f]{2}){5}", re.MULTILINE)


class HostFiles:
    """Hosts are MACs as numbers, or ``ANYBODY``. All calls raise ``OSError``."""

    def __init__(self, directory: str) -> None:
        self._directory = Path(directory)
        self._says: dict[int, bool | None] = {}  # of each single file: does it let pass? None: it has to be written
        self._lists: dict[str, SortedMacs] = {}
        self.listed = SortedMacs()  # all of them: those that a list denies
        self._looked_at = 0
        self.repeated = 0  # lines that dnsmasq has read in vain, for it reads what replaced them after them

    @property
    def single(self) -> KeysView[int]:
        """Those that have a file of their own."""
        return self._says.keys()

    def take_over(self) -> None:
        """Look at what is there, from whatever process."""
        self._says, self._lists, self.listed = {ANYBODY: None}, {}, SortedMacs()
        for path in list(self._directory.iterdir()):
            if path.name.startswith(f".{PREFIX}"):
                path.unlink(missing_ok=True)
            elif not path.is_file():
                continue
            elif _LIST.fullmatch(path.name):
                self._take_list(path)
            elif (host := host_of(path.name)) is not None:
                self._says[_number(path.name)] = False if _says_so(path, host) else None
        self._looked_at = 0

    def say(self, host: int, *, passes: bool) -> None:
        """Have the host's own file say this."""
        if self._says.get(host) is passes:
            return
        name = _name(host)
        self._put(name, f"{host_of(name)}\n" if passes else f"{host_of(name)},ignore\n")
        self.repeated += host in self._says
        self._says[host] = passes

    def deny(self, macs: Sequence[int]) -> None:
        """Deny them by a list of their own."""
        listed = SortedMacs(macs)
        number = 1 + max((int(name.rpartition("-")[2]) for name in self._lists), default=0)
        name = f"{PREFIX}denied-{number}"
        self._put(name, _text(listed))
        self._keep(name, listed)

    def restore(self) -> bool:
        """Write the lists that somebody took away; whether single files are gone, too, which ``say`` then writes."""
        changed = self._directory.stat().st_mtime_ns
        if changed == self._looked_at:
            return False
        there = {path.name for path in self._directory.iterdir()}
        gone = [host for host in self._says if _name(host) not in there]
        self._says.update(dict.fromkeys(gone))
        for name, listed in self._lists.items():
            if name not in there:
                self._put(name, _text(listed))
                self.repeated += len(listed)
        self._looked_at = changed
        return bool(gone)

    def doubt(self) -> None:
        """Somebody may have closed what lets pass."""
        self._says = {host: None if said else said for host, said in self._says.items()}

    def close_in_place(self) -> None:
        """Deny without any room on the disk; what is missing stays so."""
        self._directory.stat()  # what is gone cannot be closed
        close_files(str(self._directory))
        self._says = {host: False if said else said for host, said in self._says.items()}

    def forget(self) -> None:
        """Remove all but the one for unknown hosts."""
        for name in [*map(_name, self._says.keys() - {ANYBODY}), *self._lists]:
            (self._directory / name).unlink(missing_ok=True)
        self._says, self._lists, self.listed = {ANYBODY: self._says[ANYBODY]}, {}, SortedMacs()
        self.repeated = 0

    def remove(self) -> None:
        """Remove all of them."""
        self.take_over()
        self.forget()
        (self._directory / UNKNOWN).unlink(missing_ok=True)
        self._says = {}

    def _take_list(self, path: Path) -> None:
        """Keep a list that is as it was written; deny who is on another one by single files, which go before it."""
        text = b""
        with contextlib.suppress(OSError):
            text = path.read_bytes()
        macs = [int(mac.replace(b":", b""), 16) for mac in _MAC.findall(text)]
        if not _LINES.fullmatch(text):
            path.unlink(missing_ok=True)
            self._says.update(dict.fromkeys(macs))
            return
        if path.stat().st_mode & READABLE != READABLE:
            self._put(path.name, text.decode())
        self._keep(path.name, SortedMacs(macs))

    def _keep(self, name: str, listed: SortedMacs) -> None:
        self._lists[name] = listed
        self.listed = SortedMacs(chain(self.listed, listed))

    def _put(self, name: str, text: str) -> None:
        beside = self._directory / f".{name}"
        with beside.open("w", encoding="ascii") as file:
            os.fchmod(file.fileno(), READABLE)
            file.write(text)
        beside.replace(self._directory / name)


def _says_so(path: Path, host: str) -> bool:
    try:
        return is_denied(path, host)
    except OSError:
        return False


def _text(macs: Iterable[int]) -> str:
    return "".join(f"{spelled(mac)},ignore\n" for mac in macs)


def _name(host: int) -> str:
    return UNKNOWN if host == ANYBODY else f"{PREFIX}{host:012x}"


def _number(name: str) -> int:
    return ANYBODY if name == UNKNOWN else int(name.removeprefix(PREFIX), 16)
