"""What a machine writes on its serial console, and when it came to each part of its boot.

The times are printed with the result of a test, for whoever wants to know what takes long; nothing depends on them.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

_COLORS: Final = re.compile(r"\x1b\[[0-9;?=]*[A-Za-z]")
# What is on the console when a part begins; of several with one name, the first that appears counts.
_MARKS: Final = (
    ("firmware tries to boot", r"Start PXE|Start HTTP|BdsDxe: loading|iPXE initiali|iPXE \(|Booting from|ISOLINUX"),
    ("iPXE runs", r"iPXE initialising|iPXE 1\."),
    ("script loaded", r"v1/boot\.ipxe\S* ?\.*\s*ok"),
    ("kernel loaded", r"ipa\.kernel\.\.\.[^\n]*ok"),
    ("ramdisk loaded", r"ipa\.initramfs\.\.\.[^\n]*ok"),
    ("kernel starts", r"Linux version|EFI stub"),
    ("ramdisk starts", r"Run /init as init"),
    ("agent starts", r"ironic-python-agent|ironic_python_agent"),
    ("agent collects", r"inspection is enabled"),
    ("agent calls back", r"Posting collected data"),
)


class Console:
    """``text`` is all that the machine has written so far."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.path = path
        self._clock = clock
        self._began = clock()
        self._seen: dict[str, float] = {}

    @property
    def text(self) -> str:
        return _COLORS.sub("", self.path.read_text(errors="replace")) if self.path.exists() else ""

    def begin(self) -> None:
        """Take the time from now on: the machine is powered on."""
        self._began, self._seen = self._clock(), {}

    def look(self) -> None:
        """Note what has come since the last look."""
        text = self.text
        for name, pattern in _MARKS:
            if name not in self._seen and re.search(pattern, text):
                self._seen[name] = self._clock() - self._began

    def note(self, name: str) -> None:
        """Note that something has come that is not on the console."""
        self._seen.setdefault(name, self._clock() - self._began)

    def times(self) -> str:
        """Return the seconds from power-on to each part."""
        ordered = sorted(self._seen.items(), key=lambda one: one[1])
        return ", ".join(f"{name} {seconds:.1f}" for name, seconds in ordered)
