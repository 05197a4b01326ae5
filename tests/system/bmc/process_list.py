"""What other users of the host see of ipmitool: its command line, and what is in its environment."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ferroscope.bmc.ipmi import ipmitool


@contextmanager
def watched(port: int, directory: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bytes]]:
    """Collect what is seen of each call of a BMC at this port meanwhile."""
    seen: list[bytes] = []
    stop = threading.Event()

    def look() -> None:
        while not stop.wait(0.01):
            for entry in Path("/proc").iterdir():
                if entry.name.isdigit() and int(entry.name) != os.getpid():
                    try:
                        line = (entry / "cmdline").read_bytes()
                        if b"ipmitool" in line and str(port).encode() in line:
                            seen.append(line + (entry / "environ").read_bytes())
                    except OSError:
                        continue

    # Slowed down, so that somebody who looks is sure to see it.
    slow = directory / "slow-ipmitool"
    slow.write_text('#!/bin/sh\nsleep 0.3\nexec ipmitool "$@"\n')
    slow.chmod(slow.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(ipmitool, "PROGRAM", str(slow))
    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield seen
    finally:
        stop.set()
        watcher.join()
