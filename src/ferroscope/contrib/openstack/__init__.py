"""OpenStack: an attached Ironic, imports from Ironic and ironic-inspector, and callbacks that are forwarded to one;
users of Keystone, inspection data in Swift, and notifications in the form of Ironic's.
"""

from __future__ import annotations

from typing import Final

from ferroscope_client.installed import Command

IMPORT: Final = Command(
    "ferroscope.contrib.openstack.import_command:imports", "Import the data of other services.", after="db"
)
