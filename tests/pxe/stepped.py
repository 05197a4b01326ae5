"""A boot host whose clock of day is set: libfaketime, under its filter's process and all programs that this runs.

The kernel has one clock of day for all namespaces, and to step that would step it for everybody. So here the C library
lies: to Python, to libpq and its TLS, to nft. CLOCK_MONOTONIC and CLOCK_BOOTTIME, and with them every time-out in the
kernel, stay what they are, as on a host whose clock is stepped. Environment variables do it, so it outlives ``exec``.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

_LIBRARIES: Final = "*/faketime/libfaketimeMT.so.1"
_SITE: Final = Path(__file__).parent / "faked"
_SHARED: Final = Path("/dev/shm")  # what it leaves there when its process is killed, by pid
_LEFT: Final = re.compile(r"^(?:sem\.)?faketime_(?:sem|shm)_(\d+)$")


class HostClock:
    """``prefix`` is what a program runs under that shall see it."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / "clock"
        if not self._file.exists():
            self.step(0)

    def step(self, seconds: int) -> None:
        """Set it so many seconds ahead of the real one, at once, for whatever runs under it."""
        fresh = self._file.with_suffix(".new")
        fresh.write_text(f"{seconds:+d}")
        fresh.replace(self._file)

    @property
    def prefix(self) -> list[str]:
        """Return ``env`` and what it sets."""
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
    """Remove what libfaketime has left of processes that are gone."""
    for path in _SHARED.iterdir():
        owner = _LEFT.match(path.name)
        if owner and not Path(f"/proc/{owner[1]}").exists():
            path.unlink(missing_ok=True)


def _library() -> Path:
    found = next(Path("/usr/lib").glob(_LIBRARIES), None)
    if found is None:
        raise RuntimeError("clocks cannot be stepped without libfaketime; install the Debian package faketime")
    return found
