"""The files in dnsmasq's ``dhcp-hostsdir``: one for unknown hosts, some for single MACs, and lists of denied MACs.

dnsmasq reads a file as soon as it is renamed into the directory, and *adds* its lines to what it has read before. So
unchanged content is never written again, and the file of a single MAC stays: from then on it has the rule for that
MAC, and takes precedence over all lists, in whatever order dnsmasq reads them. Lists never change.

The files are world-readable, whatever the umask: dnsmasq has dropped root and its groups when it reads them. Nothing
is synced to disk: after a power failure files may be empty, so existing files are identified by name, and a list with
malformed lines is replaced.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, KeysView, Sequence
from itertools import chain
from pathlib import Path
from typing import Final

from ferroscope.contrib.boot.pxe_filter.backends.watchdog import (
    PREFIX,
    READABLE_MODE,
    UNKNOWN,
    close_files,
    host_of,
    is_denied,
)
from ferroscope.core.boot_macs import SortedMacs, spell_mac

UNKNOWN_HOSTS: Final = -1  # all hosts without their own line

_LIST: Final = re.compile(rf"{PREFIX}denied-([0-9]+)")
_LINES: Final = re.compile(rb"(?:[0-9a-f]{2}(?::[0-9a-f]{2}){5},ignore\n)+")
_MAC: Final = re.compile(rb"^[0-9a-f]{2}(?::[0-9a-f]{2}){5}", re.MULTILINE)


class HostFiles:
    """Hosts are MACs as numbers, or ``UNKNOWN_HOSTS``. All methods raise ``OSError``."""

    def __init__(self, directory: str) -> None:
        self._directory = Path(directory)
        self._allows: dict[int, bool | None] = {}  # single files: host -> may it boot? None: must be written
        self._lists: dict[str, SortedMacs] = {}
        self.listed = SortedMacs()  # the MACs in all lists
        self._checked_at = 0
        self.repeated = 0  # lines that dnsmasq holds although later ones superseded them

    @property
    def single(self) -> KeysView[int]:
        """The hosts with single files."""
        return self._allows.keys()

    def take_over(self) -> None:
        """Take over the existing files, whichever process wrote them."""
        self._allows, self._lists, self.listed = {UNKNOWN_HOSTS: None}, {}, SortedMacs()
        for path in list(self._directory.iterdir()):
            if path.name.startswith(f".{PREFIX}"):
                path.unlink(missing_ok=True)
            elif not path.is_file():
                continue
            elif _LIST.fullmatch(path.name):
                self._take_list(path)
            elif (host := host_of(path.name)) is not None:
                self._allows[_number(path.name)] = False if _denies(path, host) else None
        self._checked_at = 0

    def write(self, host: int, *, passes: bool) -> None:
        """Write the host's single file, unless it is up to date."""
        if self._allows.get(host) is passes:
            return
        name = _name(host)
        self._put(name, f"{host_of(name)}\n" if passes else f"{host_of(name)},ignore\n")
        self.repeated += host in self._allows
        self._allows[host] = passes

    def deny(self, macs: Sequence[int]) -> None:
        """Deny them by a new list."""
        denied = SortedMacs(macs)
        number = 1 + max((int(name.rpartition("-")[2]) for name in self._lists), default=0)
        name = f"{PREFIX}denied-{number}"
        self._put(name, _text(denied))
        self._keep(name, denied)

    def restore(self) -> bool:
        """Write deleted lists again; return whether single files are missing too, which ``write`` then writes."""
        changed = self._directory.stat().st_mtime_ns
        if changed == self._checked_at:
            return False
        present = {path.name for path in self._directory.iterdir()}
        missing = [host for host in self._allows if _name(host) not in present]
        self._allows.update(dict.fromkeys(missing))
        for name, denied in self._lists.items():
            if name not in present:
                self._put(name, _text(denied))
                self.repeated += len(denied)
        self._checked_at = changed
        return bool(missing)

    def doubt(self) -> None:
        """Note that the watchdog may have closed the open files."""
        self._allows = {host: None if allowed else allowed for host, allowed in self._allows.items()}

    def close_in_place(self) -> None:
        """Deny in place, without using disk space; missing files stay missing."""
        self._directory.stat()  # raises if the directory does not exist
        close_files(str(self._directory))
        self._allows = {host: False if allowed else allowed for host, allowed in self._allows.items()}

    def forget(self) -> None:
        """Delete all files but the one for unknown hosts."""
        for name in [*map(_name, self._allows.keys() - {UNKNOWN_HOSTS}), *self._lists]:
            (self._directory / name).unlink(missing_ok=True)
        self._allows, self._lists, self.listed = {UNKNOWN_HOSTS: self._allows[UNKNOWN_HOSTS]}, {}, SortedMacs()
        self.repeated = 0

    def remove(self) -> None:
        """Delete all files."""
        self.take_over()
        self.forget()
        (self._directory / UNKNOWN).unlink(missing_ok=True)
        self._allows = {}

    def _take_list(self, path: Path) -> None:
        """Keep a well-formed list; replace a damaged one by single files, which take precedence over it."""
        text = b""
        with contextlib.suppress(OSError):
            text = path.read_bytes()
        macs = [int(mac.replace(b":", b""), 16) for mac in _MAC.findall(text)]
        if not _LINES.fullmatch(text):
            path.unlink(missing_ok=True)
            self._allows.update(dict.fromkeys(macs))
            return
        if path.stat().st_mode & READABLE_MODE != READABLE_MODE:
            self._put(path.name, text.decode())
        self._keep(path.name, SortedMacs(macs))

    def _keep(self, name: str, denied: SortedMacs) -> None:
        self._lists[name] = denied
        self.listed = SortedMacs(chain(self.listed, denied))

    def _put(self, name: str, text: str) -> None:
        temporary = self._directory / f".{name}"
        with temporary.open("w", encoding="ascii") as file:
            os.fchmod(file.fileno(), READABLE_MODE)
            file.write(text)
        temporary.replace(self._directory / name)


def _denies(path: Path, host: str) -> bool:
    try:
        return is_denied(path, host)
    except OSError:
        return False


def _text(macs: Iterable[int]) -> str:
    return "".join(f"{spell_mac(mac)},ignore\n" for mac in macs)


def _name(host: int) -> str:
    return UNKNOWN if host == UNKNOWN_HOSTS else f"{PREFIX}{host:012x}"


def _number(name: str) -> int:
    return UNKNOWN_HOSTS if name == UNKNOWN else int(name.removeprefix(PREFIX), 16)
