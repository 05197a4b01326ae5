"""What a host needs to build a ramdisk: programs, rights, space and, for another architecture, an emulator.

All of it is checked before the work begins; each failure names the command that fixes it.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from ferroscope.contrib.ramdisk.manifest import Arch, Kernel, RamdiskError
from ferroscope.contrib.ramdisk.plan import BuildPlan

# program -> Debian package
PROGRAMS: Final = {
    "mmdebstrap": "mmdebstrap",
    "apt-get": "apt",
    "mksquashfs": "squashfs-tools",
    "mformat": "mtools",
    "xorriso": "xorriso",
}
# python3-pip, without the compilers that it recommends.
PIP: Final = {"pip": "python3-pip-whl"}
_WHEELS: Final = Path("/usr/share/python-wheels")
_PATH: Final = "/usr/sbin:/sbin:/usr/local/sbin"
_GIB_BYTES: Final = 1 << 30
# Of a build, with everything that it deletes in the end.
_SPACE: Final[dict[Kernel, int]] = {"cloud": 2 * _GIB_BYTES, "generic": 4 * _GIB_BYTES}
_BINFMT: Final = Path("/proc/sys/fs/binfmt_misc")
_EMULATORS: Final = {"arm64": "qemu-aarch64", "amd64": "qemu-x86_64"}
_COMMAND_SECONDS: Final = 20.0
# The second one is for containers that may not mount /proc.
_ALONE: Final = (
    ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"),
    ("unshare", "--mount"),
)


def search_path() -> str:
    """Return ``PATH`` with the directories of administrators."""
    return f"{os.environ.get('PATH', os.defpath)}:{_PATH}"


def check(plan: BuildPlan, directory: Path, *, signs: bool) -> None:
    """Refuse a build that is impossible on this host; ``RamdiskError``."""
    programs = PROGRAMS | ({"ssh-keygen": "openssh-client"} if signs else {})
    missing(programs, others={} if _pip() else PIP)
    check_rights()
    check_architecture(plan.arch)
    check_space(directory, plan.kernel)


def missing(programs: Mapping[str, str], *, others: Mapping[str, str] = MappingProxyType({})) -> None:
    """Refuse to continue without one of the programs; ``others`` are also missing."""
    absent = {name: package for name, package in programs.items() if shutil.which(name, path=search_path()) is None}
    absent |= others
    if absent:
        packages = " ".join(dict.fromkeys(absent.values()))
        raise RamdiskError(f"not installed: {', '.join(absent)}", f"on Debian: apt-get install {packages}")


def pip() -> list[str]:
    """Return how to call pip; the host was checked."""
    if not (command := _pip()):
        missing({}, others=PIP)
    return command


def _pip() -> list[str]:
    """Return how to call pip: that of this environment, or Debian's, also from its wheel; nothing if there is none."""
    debian = "/usr/bin/python3"
    wheels = [[debian, str(wheel / "pip")] for wheel in sorted(_WHEELS.glob("pip-*.whl"))]
    for command in ([sys.executable, "-m", "pip"], [debian, "-m", "pip"], *wheels):
        try:
            done = subprocess.run(  # noqa: S603
                [*command, "--version"], capture_output=True, timeout=_COMMAND_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            return command  # it is there, and slow
        except OSError:
            continue
        if done.returncode == 0:
            return command
    return []


def check_rights(euid: int | None = None) -> None:
    """Refuse to continue if this user is not root and cannot become root in a user namespace."""
    if (os.geteuid() if euid is None else euid) == 0:
        return
    user = _user()
    if not _has_subordinate_ids(Path("/etc/subuid"), user) or not _has_subordinate_ids(Path("/etc/subgid"), user):
        raise RamdiskError(
            f"{user} is not root, and has no subordinate users for a user namespace (/etc/subuid, /etc/subgid)",
            f"run it with sudo, or: sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {user}",
        )
    if shutil.which("newuidmap") is None:
        raise RamdiskError("not installed: newuidmap", "on Debian: apt-get install uidmap; or run this with sudo")
    done = subprocess.run(["unshare", "--user", "true"], capture_output=True, check=False)  # noqa: S607
    if done.returncode:
        raise RamdiskError(
            f"{user} is not root, and this host allows it no user namespaces",
            "run it with sudo, or allow them: sysctl kernel.unprivileged_userns_clone=1 user.max_user_namespaces=10000",
        )


def _user() -> str:
    """Return the name of this user; the environment may have another one's."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def alone() -> list[str]:
    """Return the prefix of a command whose mounts and processes end with it, and are invisible to others.

    As root, mmdebstrap mounts /dev, /proc and /sys in the new root; killed, it would leave them there, and whoever
    deletes that directory would delete in them. What a package or a hook has started would go on there. In a container
    that may not mount, mmdebstrap does without, and so does this.
    """
    if os.geteuid():
        return []  # it is in namespaces of its own
    for command in _ALONE:
        if not subprocess.run([*command, "true"], capture_output=True, check=False).returncode:  # noqa: S603
            return list(command)
    return []


def _has_subordinate_ids(path: Path, user: str) -> bool:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return False
    return any(line.split(":")[0] in (user, str(os.getuid())) for line in lines)


def architecture() -> str:
    """Return this host's architecture, in Debian's words."""
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)


def check_architecture(arch: Arch, own: str | None = None, emulators: Iterable[Path] | None = None) -> None:
    """Refuse to go on if this host cannot run the programs of that architecture."""
    own = own or architecture()
    if arch == own:
        return
    paths = list(emulators) if emulators is not None else [_BINFMT / _EMULATORS[arch]]
    if not any(path.is_file() and path.read_text(encoding="utf-8").startswith("enabled") for path in paths):
        raise RamdiskError(
            f"this host ({own}) cannot run programs of {arch}: no emulator is registered with the kernel",
            f"on Debian: apt-get install qemu-user-static binfmt-support; or build it on a host with {arch}",
        )


def check_space(directory: Path, kernel: Kernel) -> None:
    """Refuse to go on with too little space in the directory or, if it does not exist, where it will be."""
    place = next(parent for parent in (directory, *directory.absolute().parents) if parent.exists())
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        raise RamdiskError(f"cannot write to {place}", "choose another --directory, or run this with sudo")
    free, needed = shutil.disk_usage(place).free, _SPACE[kernel]
    if free < needed:
        raise RamdiskError(
            f"{place} has {free / _GIB_BYTES:.1f} GiB free, but a build needs {needed / _GIB_BYTES:.0f} GiB for a "
            "while",
            "make room, or choose another --directory",
        )
