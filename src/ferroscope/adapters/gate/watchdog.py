"""Closes a gate that the kernel cannot close: a process of its own, which outlives the one it watches.

Run as a script with the standard library only: it has to be small, and to start at once. It reads
lines of JSON: first what to do to close, then ``{"until": TIME}`` whenever the gate is held; times
are of CLOCK_BOOTTIME. Once that time has passed, or nobody is there any more to tell, it closes the
gate and says so. It cannot help where it is killed or stopped itself.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from pathlib import Path
from typing import Any

_AGAIN = 0.2  # seconds after which closing is tried again where it failed
PREFIX = "ferroscope-"


def close_files(directory: str) -> None:
    """Deny whatever the host files in ``directory`` allow, in place: that needs no room on a full disk."""
    for path in Path(directory).glob(f"{PREFIX}*"):
        text = path.read_text()
        if ",ignore" not in text:
            with path.open("r+") as file:
                file.write(f"{text.split()[0]},ignore\n")


def _close(orders: dict[str, Any]) -> bool:
    done = True
    for argv, text in orders.get("commands", ()):
        try:
            done &= subprocess.run(argv, input=text.encode(), timeout=5, check=False).returncode == 0  # noqa: S603
        except (OSError, subprocess.SubprocessError):
            done = False
    if orders.get("directory"):
        try:
            close_files(orders["directory"])
        except OSError:
            done = False
    return done


def main() -> None:
    orders: dict[str, Any] = {}
    until, pending, alive = 0.0, b"", True
    while True:
        now = time.clock_gettime(time.CLOCK_BOOTTIME)
        if until and (now >= until or not alive):
            until = 0.0 if _close(orders) else now + _AGAIN
            if not until and alive:
                os.write(1, b"closed\n")
        if not alive and not until:
            return
        ready, _, _ = select.select([0] if alive else [], [], [], max(0.0, until - now) if until else None)
        if ready:
            chunk = os.read(0, 65536)
            alive = bool(chunk)
            *lines, pending = (pending + chunk).split(b"\n")
            for line in lines:
                said = json.loads(line)
                until = said.get("until", until)
                if "close" in said:
                    orders = said["close"]


if __name__ == "__main__":
    main()
