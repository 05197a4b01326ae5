"""Whether QEMU may use KVM here: it has to run a kernel, for a host may have /dev/kvm and run nothing in it."""

from __future__ import annotations

import functools
import os
import subprocess
from pathlib import Path
from typing import Final

from tests import ROOT
from tests.support.speed import slowness

_KERNEL: Final = ROOT / ".boot-kernel" / "vmlinuz"
_SECONDS: Final = 10.0
# Emulation takes about so many times as long as KVM.
_EMULATED: Final = 6.0


@functools.cache
def kind() -> str:
    """Return libvirt's name of the domains that run here: ``kvm`` or ``qemu``."""
    return "kvm" if os.access("/dev/kvm", os.R_OK | os.W_OK) and _runs_a_kernel() else "qemu"


def patience() -> float:
    """Return the seconds after which a machine has booted, or never will; ``until`` multiplies it by the slowness."""
    return 300.0 * (_EMULATED if kind() == "qemu" else 1.0)


def _runs_a_kernel() -> bool:
    """Tell whether a kernel without a root file system says so, and ends, under KVM."""
    if not _KERNEL.exists():
        raise RuntimeError(f"{Path(_KERNEL)} is missing; run: tools/setup.sh pxe")
    command = [
        "qemu-system-x86_64", "-accel", "kvm", "-cpu", "host", "-m", "256", "-nodefaults", "-no-user-config",
        "-display", "none", "-serial", "stdio", "-no-reboot", "-kernel", str(_KERNEL),
        "-append", "console=ttyS0 panic=-1",
    ]  # fmt: skip
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS * slowness(), check=False
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0 and b"Kernel panic" in done.stdout
