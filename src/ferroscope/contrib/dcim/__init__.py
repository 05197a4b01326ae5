"""Devices of a DCIM, Nautobot or NetBox, kept in step with machines.

``sync.py`` is one run for both; ``dialects.py`` has the differences between them, ``machines.py`` the data that they
should have for a machine, and ``rest.py`` a client of their REST APIs. Machines come from the caller: these modules do
not call our API. ``exporters/`` writes the fleet in other forms, and ``bmc_scan/`` finds unknown machines.
"""

from __future__ import annotations

from typing import Final

from ferroscope_client.installed import Command

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
