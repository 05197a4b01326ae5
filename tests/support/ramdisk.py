"""Ramdisks that ``ferroscope ramdisk build`` has made, kept in the cache until what they are made by changes.

A build takes a minute of processor time. Debian's newer packages are no reason to build again.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests import ROOT

_SOURCES: Final = ROOT / "src" / "ferroscope" / "contrib" / "ramdisk"
_SMALL: Final = ("--kernel", "cloud")


def cache() -> Path:
    """Return the directory of what the tests keep."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ferroscope"


def build(
    directory: Path, *options: str, environment: Mapping[str, str] | None = None, umask: int = -1
) -> subprocess.CompletedProcess[str]:
    """Build a ramdisk as an operator does; ``environment``: changes to ours."""
    command = [sys.executable, "-m", "ferroscope", "ramdisk", "build", "--directory", str(directory), *options]
    return subprocess.run(
        command, capture_output=True, text=True, env=os.environ | (environment or {}), umask=umask, check=False
    )


def cached(*options: str) -> Path:
    """Return a directory with a ramdisk of these options, by default the smallest; it must not be changed."""
    options = options or _SMALL
    target = cache() / f"ramdisk-{_recipe(options)}"
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / "ramdisk.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            new = target.with_suffix(".new")
            shutil.rmtree(new, ignore_errors=True)
            done = build(new, *options)
            assert done.returncode == 0, done.stdout + done.stderr
            new.rename(target)
    return target


def _recipe(options: tuple[str, ...]) -> str:
    digest = hashlib.sha256("\0".join(options).encode())
    for path in sorted(one for one in _SOURCES.rglob("*") if one.is_file() and "__pycache__" not in one.parts):
        digest.update(f"{path.relative_to(_SOURCES)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:12]
