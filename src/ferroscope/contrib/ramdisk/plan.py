"""What to build: the options of a build, and the names of the files that it makes."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Final
from urllib.parse import urlsplit

import msgspec

from ferroscope.contrib.ramdisk.installed import OLDEST_AGENT
from ferroscope.contrib.ramdisk.manifest import Arch, Kernel, RamdiskError
from ferroscope_client.core.host_spelling import refusal_of_urls
from ferroscope_client.core.values import without_secrets

SUITE: Final = "bookworm"

# The agent whose packages ``agent-constraints.txt`` pins.
AGENT: Final = "13.0.0"


class Extra(msgspec.Struct, frozen=True):
    """The content of a file that the operator adds; ``name``: without a directory."""

    name: str
    content: bytes


class BuildPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that decides what a ramdisk contains, apart from what the mirrors have.

    ``mirror``, ``security_mirror``: "" for those of this host's apt.
    """

    kernel: Kernel = "generic"
    arch: Arch = "amd64"
    firmware: bool = True
    agent: str = AGENT
    mirror: str = ""
    security_mirror: str = ""
    extra_packages: tuple[str, ...] = ()
    ssh_keys: tuple[Extra, ...] = ()
    certificates: tuple[Extra, ...] = ()
    hooks: tuple[Extra, ...] = ()
    callback_url: str = ""
    kernel_params: str = ""


class Names(msgspec.Struct, frozen=True):
    """Names of the files of a ramdisk, in the order in which they are put into place: the manifest is the last."""

    kernel: str
    initramfs: str
    iso: str
    script: str
    shim: str
    grub: str
    grub_config: str
    manifest: str

    @property
    def signature(self) -> str:
        return f"{self.manifest}.sig"

    @property
    def files(self) -> tuple[str, ...]:
        """What the manifest lists."""
        return (self.kernel, self.initramfs, self.iso, self.script, self.shim, self.grub, self.grub_config)


_EFI: Final = {"amd64": "x64", "arm64": "aa64"}
# Where Debian's GRUB looks before it looks for grub/grub.cfg, which all architectures would have in common.
_GRUB: Final = {"amd64": "x86_64-efi", "arm64": "arm64-efi"}


def names(kernel: str, ramdisk: str, arch: Arch) -> Names:
    """Return the names: those of ``[boot] kernel`` and ``ramdisk``, and others like them.

    The default names of another architecture than the default have that in them, so that both fit in one directory.
    """
    kernel, ramdisk = (PurePosixPath(path).name for path in (kernel, ramdisk))
    stem = PurePosixPath(ramdisk).stem
    if arch != "amd64":
        kernel, ramdisk, stem = (_of(arch, name) for name in (kernel, ramdisk, stem))
    efi = _EFI[arch]
    return Names(
        kernel=kernel,
        initramfs=ramdisk,
        iso=f"{stem}.iso",
        script=f"{stem}.ipxe",
        shim=f"shim{efi}.efi",
        grub=f"grub{efi}.efi",
        grub_config=f"grub/{_GRUB[arch]}/grub.cfg",
        manifest=f"{stem}.manifest.json",
    )


def _of(arch: str, name: str) -> str:
    stem, dot, rest = name.partition(".")
    return name if arch in name else f"{stem}-{arch}{dot}{rest}"


_VERSION: Final = re.compile(r"[0-9]+(\.[0-9]+)+")
_PACKAGE: Final = re.compile(r"[a-z0-9][a-z0-9+.-]+(=[A-Za-z0-9.+:~-]+)?")


def check(plan: BuildPlan) -> None:
    """Refuse a plan that cannot be built; ``RamdiskError``."""
    if not _VERSION.fullmatch(plan.agent):
        raise RamdiskError(f"{plan.agent!r} is not a release of ironic-python-agent", f"for example: --agent {AGENT}")
    if tuple(map(int, plan.agent.split("."))) < OLDEST_AGENT:
        oldest = ".".join(map(str, OLDEST_AGENT))
        raise RamdiskError(
            f"ironic-python-agent {plan.agent} is older than {oldest}, the oldest supported release",
            f"choose a newer one, or none for the default: --agent {AGENT}",
        )
    for name in plan.extra_packages:
        if not _PACKAGE.fullmatch(name):
            raise RamdiskError(f"--extra-package {name!r}: not the name of a Debian package", "name one, such as: fio")
    if why := refusal_of_urls([plan.callback_url, plan.mirror, plan.security_mirror]):
        raise RamdiskError(why, "write the address as other programs read it")
    for option, url in (("--mirror", plan.mirror), ("--security-mirror", plan.security_mirror)):
        if url:
            check_mirror(url, option)


_EXAMPLE: Final = "https://mirror.example.org/debian"


def check_mirror(url: str, subject: str) -> None:
    """Refuse a URL from which nothing can be installed, or that has a password; ``subject``: how to call it."""
    if not re.fullmatch(r"(https?|file|copy)://[^\s\[\]\"']+|(file|copy):/[^\s\[\]\"']+", url):
        raise RamdiskError(
            f"{subject} {url.rpartition('@')[2]!r}: not the URL of a mirror", f"for example: --mirror {_EXAMPLE}"
        )
    scheme, place = urlsplit(url)[:2]
    if "@" in place:
        # It would be in the list of processes, in what they print, and in the manifest.
        raise RamdiskError(
            f"{subject} {without_secrets(url)}: a URL with a password can be seen by everybody on this host",
            "put it in /etc/apt/auth.conf.d/mirror.conf: "
            f"machine {scheme}://{place.rpartition('@')[2]} login USER password PASSWORD",
        )
