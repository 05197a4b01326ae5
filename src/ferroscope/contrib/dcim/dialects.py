"""The differences between the REST APIs of NetBox and Nautobot, for one sync.

Sources: the REST APIs of Nautobot 3.2 and NetBox 4.7.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any, Final

import msgspec

DcimObject = dict[str, Any]
_V2: Final = "nbt_"  # how tokens of the second version begin


class DcimDialect(msgspec.Struct, frozen=True):
    """A DCIM, as the sync sees it; what it inherits is as in Nautobot.

    ``place``: the kind of object that devices are in, with its list ``places`` and the filter ``in_place`` of devices.
    ``of_device``: the filter of the parts of a device. ``macs``: the list of MAC addresses, if they are objects of
    their own, of which each interface has a primary one.
    """

    name: str = "Nautobot"
    version_key: str = "nautobot-version"
    oldest: tuple[int, int] = (2, 0)
    place: str = "location"
    places: str = "dcim/locations"
    in_place: str = "location"
    roles: str = "extras/roles"
    of_device: str = "device"  # also finds the parts of another device with the same name
    macs: str | None = None
    default_status: str = "Active"

    def authorization(self, token: str) -> str:
        """Return the value of the header."""
        return f"Token {token}"

    def key(self, name: str) -> str:
        """Return by what a manufacturer or a device type is found, where two names may be the same."""
        return " ".join(name.lower().split())

    def type_fields(self, name: str, field: str) -> DcimObject:
        """Return the fields of a new manufacturer or device type that follow from its name."""
        return {field: name}

    def status(self, status: str) -> DcimObject:
        """Return the status of a new device, interface or cable, as a field."""
        return {"status": {"name": status}}

    def interface_status(self) -> DcimObject:
        return self.status("Active")

    def cable(self, near: Any, far: Any) -> DcimObject:
        """Return a new cable between two interfaces."""
        ends = {"a": near, "b": far}
        fields = {f"termination_{end}_type": "dcim.interface" for end in ends}
        return fields | {f"termination_{end}_id": ident for end, ident in ends.items()} | self.status("Connected")


class _NetBox(DcimDialect, frozen=True):
    """NetBox wants a slug for each manufacturer and device type, and has no status of interfaces."""

    name: str = "NetBox"
    version_key: str = "netbox-version"
    oldest: tuple[int, int] = (4, 2)  # MAC addresses are objects since then
    place: str = "site"
    places: str = "dcim/sites"
    in_place: str = "site_id"
    roles: str = "dcim/device-roles"
    of_device: str = "device_id"
    macs: str | None = "dcim/mac-addresses"
    default_status: str = "active"

    def authorization(self, token: str) -> str:
        return f"{'Bearer' if token.startswith(_V2) else 'Token'} {token}"

    def key(self, name: str) -> str:
        return slug(name)

    def type_fields(self, name: str, field: str) -> DcimObject:
        return {field: name, "slug": slug(name)}

    def status(self, status: str) -> DcimObject:
        return {"status": status}

    def interface_status(self) -> DcimObject:
        return {}

    def cable(self, near: Any, far: Any) -> DcimObject:
        ends = {"a": near, "b": far}
        fields = {
            f"{end}_terminations": [{"object_type": "dcim.interface", "object_id": ident}]
            for end, ident in ends.items()
        }
        return fields | self.status("connected")


NAUTOBOT: Final = DcimDialect()
NETBOX: Final = _NetBox()
DIALECTS: Final = (NAUTOBOT, NETBOX)


def slug(name: str) -> str:
    """Return a name for URLs; names without a single Latin letter or digit differ by their digest."""
    latin = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:100]
    return latin or f"x-{hashlib.sha256(name.encode()).hexdigest()[:12]}"
