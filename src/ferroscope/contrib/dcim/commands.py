"""The commands of this part."""

from __future__ import annotations

from typing import Final

from ferroscope.contracts.commands import Command

EXPORT: Final = Command(
    "ferroscope.contrib.dcim.export_command:export",
    "Write the fleet as a table, or for Ansible or Prometheus.",
    after="firmware",
)
SYNC: Final = Command(
    "ferroscope.contrib.dcim.sync_command:sync",
    "Keep the devices of NetBox or Nautobot up to date.",
    after="firmware",
)
