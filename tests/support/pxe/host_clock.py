"""The wall clock of a boot host, which tests can step: libfaketime under the filter's process and the programs it runs.

The kernel has one wall clock for all namespaces, so stepping that would affect the whole machine. libfaketime replaces
it in the C library instead, and so for Python, libpq and its TLS, and nft. CLOCK_MONOTONIC and CLOCK_BOOTTIME, and with
them every timeout in the kernel, are unaffected, as on a host whose clock is stepped. It is set up by environment
variables, so it survives ``exec``.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

_LIBRARIES: Final = "*/faketime/libfaketimeMT.so.1"
_SITE: Final = Path(__file__).parent / "faked"
_SHARED: Final = Path("/dev/shm")  # libfaketime's semaphores and segments, named by pid
_LEFT: Final = re.compile(r"^(?:sem\.)?faketime_(?:sem|shm)_(\d+)$")


class HostClock:
    """``prefix`` goes before the command of a program that is to see this clock."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / "clock"
        if not self._file.exists():
            self.step(0)

    def step(self, seconds: int) -> None:
        """Set it this many seconds ahead of the real clock, at once, for all programs that run under it."""
        fresh = self._file.with_suffix(".new")
        fresh.write_text(f"{seconds:+d}")
        fresh.replace(self._file)

    @property
    def prefix(self) -> list[str]:
        """Return ``env`` and the variables that it sets."""
        paths = [str(_SITE), *filter(None, [os.environ.get("PYTHONPATH")])]
        return [
            "env",
            f"LD_PRELOAD={_library()}",
            f"FAKETIME_TIMESTAMP_FILE={self._file}",
            "FAKETIME_NO_CACHE=1",
            "FAKETIME_DONT_FAKE_MONOTONIC=1",
            "NO_FAKE_STAT=1",
            f"PYTHONPATH={os.pathsep.join(paths)}",
        ]


def sweep() -> None:
    """Remove the shared memory that libfaketime leaves behind when a process is killed."""
    for path in _SHARED.iterdir():
        owner = _LEFT.match(path.name)
        if owner and not Path(f"/proc/{owner[1]}").exists():
            path.unlink(missing_ok=True)


def _library() -> Path:
    found = next(Path("/usr/lib").glob(_LIBRARIES), None)
    if found is None:
        raise RuntimeError("libfaketime not found: install the Debian package faketime")
    return found
