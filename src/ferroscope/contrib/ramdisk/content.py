"""The files that we add to Debian's: those of ``root/``, the agent, and the operator's."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final

from ferroscope.contrib.ramdisk.archive import File
from ferroscope.contrib.ramdisk.manifest import RamdiskError
from ferroscope.contrib.ramdisk.plan import BuildPlan

HERE: Final = Path(__file__).parent
STORE: Final = ".ferroscope"

# The directory in which Debian's Python looks for other packages.
_PACKAGES: Final = "usr/local/lib/python3.11/dist-packages"
_PROGRAMS: Final = ("usr/lib/ferroscope/", "usr/local/bin/")

# What pip writes for itself. A RECORD contains the path of the interpreter that ran pip.
_OF_PIP: Final = frozenset({"RECORD", "INSTALLER", "REQUESTED", "direct_url.json"})
# The agent's packages ask for it, but only their builds use it.
_UNUSED: Final = frozenset({"setuptools", "pkg_resources", "_distutils_hack", "bin", "__pycache__"})


def step(name: str) -> str:
    """Return the text of a step that runs beside the new root."""
    return (HERE / "steps" / f"{name}.sh").read_text(encoding="utf-8")


def early_init() -> bytes:
    """Return the first program of the ramdisk."""
    return (HERE / "early" / "init").read_bytes()


def own_files() -> dict[str, File]:
    """Return the files of ``root/``."""
    files = {}
    for path, content in _walk(HERE / "root"):
        files[path] = File(content, 0o755 if path.startswith(_PROGRAMS) else 0o644)
    return files


def agent_files(target: Path) -> dict[str, File]:
    """Return the files that pip installed into ``target``, without those that the ramdisk does not need."""
    files = {}
    for path, content in _walk(target):
        parts = PurePosixPath(path).parts
        if parts[0] in _UNUSED or parts[0].startswith("setuptools-") or path.endswith((".pth", ".pyi", ".pyc")):
            continue
        if "tests" in parts[:-1] or (parts[0].endswith(".dist-info") and parts[-1] in _OF_PIP):
            continue
        files[f"{_PACKAGES}/{path}"] = File(content)
    return files


def operators_files(plan: BuildPlan) -> dict[str, File]:
    """Return the files for the options of a plan."""
    files = {f"usr/local/share/ca-certificates/{PurePosixPath(certificate.name).stem}.crt": File(certificate.content)
             for certificate in plan.certificates}  # fmt: skip
    if plan.ssh_keys:
        keys = b"".join(key.content.rstrip() + b"\n" for key in plan.ssh_keys)
        files["root/.ssh/authorized_keys"] = File(keys, 0o600)
    files.update({f"{STORE}/hooks/{hook.name}": File(hook.content, 0o755) for hook in plan.hooks})
    return files


def digest(content: bytes) -> str:
    """Return the SHA-256 in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def _walk(top: Path) -> Iterator[tuple[str, bytes]]:
    if not top.is_dir():
        raise RamdiskError(f"{top} does not exist", "this installation of Ferroscope is incomplete; install it again")
    for directory, subdirectories, names in os.walk(top):
        subdirectories.sort()
        for name in sorted(names):
            path = Path(directory, name)
            yield path.relative_to(top).as_posix(), path.read_bytes()
