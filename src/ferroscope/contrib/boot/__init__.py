"""What runs on a boot host: its PXE filter, what its dnsmasq and web server serve, its set-up and its checks.

The commands ``pxe-filter``, ``pxe`` and ``setup``. It needs the database, and neither the API nor a worker.
"""

from __future__ import annotations

from typing import Final

from ferroscope_client.installed import Command

_COMMANDS: Final = "ferroscope.contrib.boot.pxe_command"

PXE_FILTER: Final = Command(
    f"{_COMMANDS}:run_pxe_filter", "Run the PXE filter of this host.", after="worker", is_service=True
)
PXE: Final = Command(f"{_COMMANDS}:pxe", "Generate the boot configuration; manage the PXE filter.", after="pxe-filter")
SETUP: Final = Command(
    "ferroscope.contrib.boot.setup.setup_command:setup",
    "Ask five questions and write the configuration.",
    after=None,
)
