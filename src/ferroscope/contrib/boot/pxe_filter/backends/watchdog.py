"""Closes a PXE filter that the kernel cannot close: a separate process, which outlives the one it watches.

Runs as a script with only the standard library, so that it is small and starts quickly. It reads JSON lines: first
how to close, then ``{"until": TIME}`` whenever the filter is held open; times are CLOCK_BOOTTIME. When that time has
passed, or the pipe is closed, it closes the filter and reports it. It cannot act if it is killed or stopped itself.
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

_RETRY_SECONDS = 0.2  # seconds before closing is retried after an error
PREFIX = "ferroscope-"
UNKNOWN = f"{PREFIX}unknown"
READABLE_MODE = 0o644  # dnsmasq reads as another user, not as root
_OWN = re.compile(rf"{PREFIX}([0-9a-f]{{12}})")


def host_of(name: str) -> str | None:
    """Return how dnsmasq identifies the host of this file; None if it is not a host file.

    Of several lines for one MAC dnsmasq prefers one with a tag; this tag is never set, so ``!`` always matches.
    """
    if name == UNKNOWN:
        return "*:*:*:*:*:*"
    own = _OWN.fullmatch(name)
    return f"tag:!ferroscope,{':'.join(re.findall('..', own[1]))}" if own else None


def is_denied(path: Path, host: str) -> bool:
    """Whether the file denies its host, and dnsmasq can read it."""
    return path.read_bytes() == f"{host},ignore\n".encode() and path.stat().st_mode & READABLE_MODE == READABLE_MODE


def close_files(directory: str) -> None:
    """Deny in place all hosts that the files in ``directory`` allow; that uses no disk space.

    The content is not trusted: any file that does not deny is overwritten. All are tried before ``OSError`` is raised.
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
        os.fchmod(file.fileno(), READABLE_MODE)
        file.write(f"{host},ignore\n".encode())
        file.truncate()


def _close(instructions: dict[str, Any]) -> bool:
    is_closed = True
    for argv, text in instructions.get("commands", ()):
        try:
            is_closed &= subprocess.run(argv, input=text.encode(), timeout=5, check=False).returncode == 0  # noqa: S603
        except (OSError, subprocess.SubprocessError):
            is_closed = False
    if instructions.get("directory"):
        try:
            close_files(instructions["directory"])
        except OSError:
            is_closed = False
    return is_closed


def main() -> None:
    instructions: dict[str, Any] = {}
    until, pending, alive = 0.0, b"", True
    while True:
        now = time.clock_gettime(time.CLOCK_BOOTTIME)
        if until and (now >= until or not alive):
            until = 0.0 if _close(instructions) else now + _RETRY_SECONDS
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
                message = json.loads(line)
                until = message.get("until", until)
                if "close" in message:
                    instructions = message["close"]


if __name__ == "__main__":
    main()
