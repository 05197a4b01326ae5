"""Closes a PXE filter that the kernel cannot close: a process of its own, which outlives the one it watches.

Run as a script with the standard library only: it has to be small, and to start at once. It reads
lines of JSON: first what to do to close, then ``{"until": TIME}`` whenever the filter is held; times
are of CLOCK_BOOTTIME. Once that time has passed, or nobody is there any more to tell, it closes the
filter and says so. It cannot help where it is killed or stopped itself.
"""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import time
from pathlib import Path
from typing import Any

_AGAIN = 0.2  # seconds after which closing is tried again where it failed
PREFIX = "ferroscope-"
UNKNOWN = f"{PREFIX}unknown"
READABLE = 0o644  # by dnsmasq, which is not root and another user than we are
_OWN = re.compile(rf"{PREFIX}([0-9a-f]{{12}})")


def host_of(name: str) -> str | None:
    """Return how dnsmasq knows the host of the file so called; None where it is no host's file.

    Of lines for one MAC dnsmasq prefers those with a tag, here one that nothing ever sets.
    """
    if name == UNKNOWN:
        return "*:*:*:*:*:*"
    own = _OWN.fullmatch(name)
    return f"tag:!ferroscope,{':'.join(re.findall('..', own[1]))}" if own else None


def is_denied(path: Path, host: str) -> bool:
    """Whether the file says that its host is ignored, and dnsmasq can read that."""
    return path.read_bytes() == f"{host},ignore\n".encode() and path.stat().st_mode & READABLE == READABLE


def close_files(directory: str) -> None:
    """Deny whatever the host files in ``directory`` allow, in place: that needs no room on a full disk.

    What they say does not count, for it may be anything. All are tried before ``OSError``.
    """
    failed: OSError | None = None
    for path in sorted(Path(directory).glob(f"{PREFIX}*"), key=lambda path: path.name != UNKNOWN):
        host = host_of(path.name)
        try:
            if host is not None and path.is_file() and not is_denied(path, host):
                _deny(path, host)
        except FileNotFoundError:
            continue
        except OSError as exc:
            failed = exc
    if failed is not None:
        raise failed


def _deny(path: Path, host: str) -> None:
    with path.open("r+b") as file:
        os.fchmod(file.fileno(), READABLE)
        file.write(f"{host},ignore\n".encode())
        file.truncate()


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
