"""Facts about this host: missing programs and files, and running units."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final

from ferroscope.contrib.boot.interfaces import PATH

SYSTEMD: Final = Path("/run/systemd/system")
# Program -> Debian package. The package dnsmasq has the service; dnsmasq-base has the program only.
_PROGRAMS: Final = {"dnsmasq": "dnsmasq", "nft": "nftables", "nginx": "nginx-light", "ip": "iproute2"}
LOADERS: Final = Path("/usr/lib/ipxe")
_COMMAND_SECONDS: Final = 10
_UNITS: Final = tuple(
    Path(directory) for directory in ("/etc/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system")
)


def missing_packages() -> list[str]:
    """Return the missing Debian packages of a boot host."""
    lacking = [package for program, package in _PROGRAMS.items() if shutil.which(program, path=PATH) is None]
    if "dnsmasq" not in lacking and SYSTEMD.is_dir() and unit("dnsmasq.service") is None:
        lacking.append("dnsmasq")
    if not (LOADERS / "undionly.kpxe").exists():
        lacking.append("ipxe")
    return sorted(lacking)


def unit(name: str) -> Path | None:
    """Return the file of an installed unit."""
    return next((place / name for place in _UNITS if (place / name).exists()), None)


def is_active(name: str) -> bool:
    """Whether systemd runs a unit."""
    try:
        done = subprocess.run(  # noqa: S603  # systemctl(1)
            [shutil.which("systemctl") or "systemctl", "is-active", "--quiet", name],
            capture_output=True, timeout=_COMMAND_SECONDS, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
