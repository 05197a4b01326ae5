"""The commands that make the system of a ramdisk: mmdebstrap with our steps, and the compression of what it makes."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ferroscope.contrib.ramdisk import content, packages
from ferroscope.contrib.ramdisk.mirrors import Mirrors
from ferroscope.contrib.ramdisk.plan import SUITE, BuildPlan

# Small blocks: of small files that share one, each read decompresses all of it.
_COMPRESSION: Final = ("-comp", "zstd", "-Xcompression-level", "15", "-b", "256K")


def mmdebstrap(
    plan: BuildPlan, mirrors: Mirrors, work: Path, apt_settings: Path, passwords: Sequence[Path] = ()
) -> list[str]:
    """Return the command that makes the root; its hooks run beside the root, which is their first argument.

    ``passwords``: files with those of mirrors, for apt.
    """

    def step(name: str, *arguments: str) -> str:
        words = ["sh", "-euc", content.step(name), name]
        return f'--customize-hook={shlex.join(words)} "$1" {shlex.join(arguments)}'

    kernel = [packages.kernel(plan), " ".join(packages.UNNEEDED_MODULES), *packages.boot(plan.arch)]
    inside = f"/{content.STORE}/hooks"
    hooks = [f'--customize-hook=chroot "$1" {shlex.quote(f"{inside}/{hook.name}")}' for hook in plan.hooks]
    place = "/etc/apt/auth.conf.d"
    password_options = [
        f'--setup-hook=mkdir -p "$1{place}"',
        f"--setup-hook=copy-in {shlex.join(map(str, passwords))} {place}",
    ]
    return [
        "mmdebstrap",
        f"--mode={'root' if os.geteuid() == 0 else 'unshare'}",
        "--variant=essential",
        "--format=tar",
        f"--architectures={plan.arch}",
        f"--aptopt={apt_settings}",
        *(password_options if passwords else []),
        "--dpkgopt=path-exclude=/usr/share/man/*",
        "--dpkgopt=path-exclude=/usr/share/locale/*",
        f"--include={','.join(packages.installed_packages(plan))}",
        "--skip=cleanup/apt",
        f"--customize-hook=tar-in {shlex.quote(str(work / 'overlay.tar'))} /",
        step("fetch", *kernel),
        step("prepare"),
        *hooks,
        step("finish"),
        f"--customize-hook=tar-out /{content.STORE} {shlex.quote(str(work / 'store.tar'))}",
        f'--customize-hook=rm -rf "$1/{content.STORE}"',
        SUITE,
        str(work / "root.tar"),
        *packages.sources(plan, mirrors, SUITE),
    ]


def mksquashfs(epoch: int, target: Path) -> list[str]:
    """Return the command that compresses a tar from standard input. It takes no time from the environment.

    For a tar, it ignores -root-uid, and so gives the topmost directory to whoever runs it.
    """
    times = ["-all-time", str(epoch), "-mkfs-time", str(epoch), "-root-mode", "755"]
    without = ["env", "--unset=SOURCE_DATE_EPOCH"]
    as_root = [] if os.geteuid() == 0 else ["unshare", "--map-root-user"]
    return [
        *as_root,
        *without,
        "mksquashfs",
        "-",
        str(target),
        "-tar",
        "-noappend",
        "-no-progress",
        *_COMPRESSION,
        *times,
    ]
