"""The manifest of a ramdisk: its files and their sources, without time and place of the build."""

from __future__ import annotations

import datetime
import hashlib
from pathlib import Path
from typing import Final, Literal

import msgspec

from ferroscope_client.core import json_safety

Kernel = Literal["generic", "cloud"]
Arch = Literal["amd64", "arm64"]

FORMAT_VERSION: Final = 1


class RamdiskError(Exception):
    """A build or a check that cannot continue; ``advice`` says what to do."""

    def __init__(self, summary: str, advice: str = "") -> None:
        super().__init__(summary)
        self.summary = summary
        self.advice = advice


class Digest(msgspec.Struct, frozen=True):
    """SHA-256 and size of a file."""

    sha256: str
    size: int


class BuildOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the build. Of keys and hooks, the SHA-256; certificates are public.

    ``mirror``, ``security_mirror``: "" if the build used those of its host, which do not matter.
    """

    kernel: Kernel
    arch: Arch
    firmware: bool
    agent: str
    mirror: str = ""
    security_mirror: str = ""
    extra_packages: list[str] = []
    ssh_keys: dict[str, str] = {}
    certificates: dict[str, str] = {}
    hooks: dict[str, str] = {}
    callback_url: str = ""
    kernel_params: str = ""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """``sources_time``: when the newest of Debian's sources was published, in UTC; all files have this time."""

    format: int = FORMAT_VERSION
    ferroscope: str
    agent: str
    kernel: str
    sources_time: datetime.datetime
    options: BuildOptions
    files: dict[str, Digest]
    packages: dict[str, str]
    agent_packages: dict[str, str]


def write(manifest: Manifest) -> bytes:
    """Return the file."""
    return msgspec.json.format(msgspec.json.encode(manifest, order="sorted"), indent=2) + b"\n"


def read(path: Path) -> Manifest:
    """Return the manifest in a file; ``RamdiskError``."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        advice = f"build a ramdisk: ferroscope ramdisk build --directory {path.parent}"
        raise RamdiskError(f"{path} does not exist: no ramdisk of Ferroscope is there", advice) from None
    except OSError as exc:
        raise RamdiskError(f"cannot read {path}: {exc.strerror}", "make it readable, or run this as root") from exc
    try:
        return json_safety.decode_own(content, Manifest)
    except json_safety.JsonError as exc:
        raise RamdiskError(f"{path} is not a manifest of a ramdisk: {exc}", "build the ramdisk again") from exc


def digest(path: Path) -> Digest:
    """Return the digest of a file; ``OSError``."""
    with path.open("rb") as file:
        return Digest(hashlib.file_digest(file, "sha256").hexdigest(), path.stat().st_size)


def packages(text: str) -> dict[str, str]:
    """Return name and version from the lines of dpkg: name, version, architecture."""
    rows = (line.split("\t") for line in text.splitlines())
    return {row[0]: row[1] for row in rows if len(row) == 3}
