"""The commands of this part."""

from __future__ import annotations

from typing import Final

from ferroscope.contracts.commands import Command

RAMDISK: Final = Command(
    "ferroscope.contrib.ramdisk.ramdisk_command:ramdisk",
    "Build the ramdisk that machines boot, and check it.",
    after="pxe",
)
