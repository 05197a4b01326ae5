"""Debian's mirrors: whether they answer, when their lists were published, and how this host's apt reaches them."""

from __future__ import annotations

import datetime
import os
import re
import subprocess
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Final

from ferroscope.contrib.ramdisk.host import search_path
from ferroscope.contrib.ramdisk.manifest import RamdiskError
from ferroscope.contrib.ramdisk.mirrors import Mirrors
from ferroscope.contrib.ramdisk.plan import SUITE, BuildPlan
from ferroscope.contrib.ramdisk.programs import ProgramRunner, fixed_environment

# Where this host's apt has passwords for mirrors. What is in the new root for a while does not stay there.
_PASSWORDS: Final = (Path("/etc/apt/auth.conf"), Path("/etc/apt/auth.conf.d"))
_HELPER: Final = "/usr/lib/apt/apt-helper"
# How long a mirror may be silent, and how long it may take for a list.
_TIMEOUT_SECONDS: Final = 30
_MOST_SECONDS: Final = 300.0
# Settings of this host's apt that say how mirrors are reached, not what is installed.
_PASSED_ON: Final = re.compile(
    r"^Acquire::((https?|ftp)::.+|Retries|Check-Valid-Until|Check-Date|ForceIPv[46]|Max-FutureTime) \"",
    re.IGNORECASE,
)


def release_files(mirrors: Mirrors) -> list[str]:
    """Return the URLs of the signed lists of all sources."""
    places = [
        (mirrors.packages, SUITE),
        (mirrors.packages, f"{SUITE}-updates"),
        (mirrors.security, f"{SUITE}-security"),
    ]
    return [f"{mirror}/dists/{suite}/InRelease" for mirror, suite in places]


def publication_time(text: str) -> datetime.datetime:
    """Return the time in a release file; ``ValueError``."""
    match = re.search(r"^Date: (.+)$", text, re.MULTILINE)
    if match is None:
        raise ValueError("no date")
    return parsedate_to_datetime(match[1].replace("UTC", "+0000")).astimezone(datetime.UTC)


def lacks(text: str, arch: str, component: str) -> str:
    """Return what a release file does not offer, "" if it has both."""
    for field, wanted in (("Architectures", arch), ("Components", component)):
        match = re.search(rf"^{field}: (.+)$", text, re.MULTILINE)
        offered = match[1].split() if match else []
        if wanted not in {name.rpartition("/")[2] for name in offered}:
            return wanted
    return ""


def ask(plan: BuildPlan, mirrors: Mirrors, runner: ProgramRunner, work: Path) -> datetime.datetime:
    """Return when the newest of the sources was published; ``RamdiskError`` if a mirror does not have it.

    apt's own helper asks, so proxy and certificates are those of this host's apt.
    """
    times = []
    for url in release_files(mirrors):
        path = work / "InRelease"
        settings = [f"-oAcquire::http::Timeout={_TIMEOUT_SECONDS}", f"-oAcquire::https::Timeout={_TIMEOUT_SECONDS}"]
        settings += ["-oAcquire::Retries=1", "-oAPT::Sandbox::User=root"]
        advice = "check the URL, and the proxy of this host's apt (apt-config dump | grep Proxy); or say --mirror URL"
        command = [_HELPER, *settings, "download-file", url, str(path)]
        runner.run(command, "asking the mirror", advice=advice, seconds=_MOST_SECONDS)
        text = path.read_text(encoding="utf-8", errors="replace")
        try:
            times.append(publication_time(text))
        except ValueError:
            raise RamdiskError(f"{url} is not a release file of Debian", advice) from None
        wanted = "non-free-firmware" if plan.firmware else "main"
        if missing := lacks(text, plan.arch, wanted):
            raise RamdiskError(
                f"{url}: the mirror has no {missing}", "say --mirror URL of another one, or choose other options"
            )
        path.unlink()
    return max(times)


def passwords() -> list[Path]:
    """Return the files in which this host's apt has passwords for mirrors, and that this user may read."""
    file, directory = _PASSWORDS
    return [path for path in (file, *sorted(directory.glob("*.conf"))) if os.access(path, os.R_OK)]


def apt_settings() -> str:
    """Return the settings of this host's apt that say how to reach mirrors, as a file of its configuration."""
    try:
        dump = subprocess.run(
            ["apt-config", "dump"],  # noqa: S607
            capture_output=True, text=True, env=fixed_environment({"PATH": search_path()}), check=True,
        ).stdout  # fmt: skip
    except (OSError, subprocess.CalledProcessError):
        return ""
    return "".join(f"{line}\n" for line in dump.splitlines() if _PASSED_ON.match(line))
