"""``ferroscope ramdisk``: makes the ramdisk from Debian's packages and ironic-python-agent, and looks after it.

``root/`` has the files that we add to Debian's, ``steps/`` what runs in the new root. Every file is pure except
``programs.py``, ``host.py``, ``sources.py`` and ``build.py``, which run programs, and ``checks.py``, the checks of
``ferroscope doctor``.
"""

from __future__ import annotations

from typing import Final

from ferroscope_client.installed import Command

RAMDISK: Final = Command(
    "ferroscope.contrib.ramdisk.ramdisk_command:ramdisk",
    "Build the ramdisk that machines boot, and check it.",
    after="pxe",
)
