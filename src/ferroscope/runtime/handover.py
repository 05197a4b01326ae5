"""Goes on as another program that has the settings, but not what it took to read them.

Option parsing and the command line are a quarter of a small process's memory. The process stays
the same one (pid, signals, the service manager's view); settings pass through an anonymous file,
so that no credential shows in a process list or on a disk.
"""

from __future__ import annotations

import os
import sys
from typing import NoReturn

import msgspec

from ferroscope.config.options import Settings


def become(module: str, settings: Settings) -> NoReturn:
    """Replace this program by ``python -m module``, which finds its settings with ``inherited``."""
    descriptor = os.memfd_create("ferroscope-settings", 0)
    with open(descriptor, "wb", closefd=False) as file:  # it has no path
        file.write(msgspec.json.encode(settings))
    os.lseek(descriptor, 0, os.SEEK_SET)
    os.set_inheritable(descriptor, True)
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-P", "-m", module, str(descriptor)])  # noqa: S606


def inherited(descriptor: int) -> Settings:
    """Return the settings that ``become`` has left."""
    with open(descriptor, "rb") as file:  # it has no path
        return msgspec.json.decode(file.read(), type=Settings)
