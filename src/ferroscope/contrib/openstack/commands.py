"""The commands of this part."""

from __future__ import annotations

from typing import Final

from ferroscope.contracts.commands import Command

IMPORT: Final = Command(
    "ferroscope.contrib.openstack.import_command:imports", "Import the data of other services.", after="db"
)
