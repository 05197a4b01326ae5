"""ironic-python-agent: pip's command that fetches it for the ramdisk's Python, and the installed packages."""

from __future__ import annotations

import re
from collections.abc import Iterable
from email.parser import HeaderParser
from pathlib import Path
from typing import Final

from ferroscope.contrib.ramdisk.manifest import Arch
from ferroscope.contrib.ramdisk.plan import AGENT

_PINS: Final = Path(__file__).parent / "agent-constraints.txt"
# Debian 12 has Python 3.11 and glibc 2.36.
_PYTHON: Final = "3.11"
_GLIBC_MINOR: Final = 36
# Variables of the caller's environment that pip gets: its settings, and where its configuration and passwords are.
SETTINGS: Final = re.compile(r"PIP_.+|HOME|XDG_CONFIG_HOME|NETRC|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE")
_MACHINES: Final[dict[Arch, str]] = {"amd64": "x86_64", "arm64": "aarch64"}


def pip_arguments(version: str, arch: Arch, target: Path) -> list[str]:
    """Return pip's arguments. Only the default release has pins, with hashes; wheels need no compiler."""
    machine = _MACHINES[arch]
    names = [*(f"manylinux_2_{minor}_{machine}" for minor in range(_GLIBC_MINOR, 4, -1)), f"manylinux2014_{machine}"]
    wanted = ["--require-hashes", "-r", str(_PINS)]
    if version != AGENT:
        wanted = [f"ironic-python-agent=={version}", "hardware"]
    return [
        *("install", "-q", "--disable-pip-version-check", "--no-compile", "--only-binary=:all:"),
        *(f"--python-version={_PYTHON}", "--implementation=cp"),
        *(f"--platform={name}" for name in names),
        *("--target", str(target), *wanted),
    ]


def installed_versions(metadata: Iterable[str]) -> dict[str, str]:
    """Return name and version from the texts of METADATA files."""
    versions = {}
    for text in metadata:
        headers = HeaderParser().parsestr(text, headersonly=True)
        versions[str(headers["Name"]).lower()] = str(headers["Version"])
    return dict(sorted(versions.items()))


def metadata(target: Path) -> list[str]:
    """Return the texts of the METADATA files below ``target``."""
    return [path.read_text(encoding="utf-8") for path in sorted(target.glob("*.dist-info/METADATA"))]
