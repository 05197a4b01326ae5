"""The forms that Nautobot gives to identifiers, statuses and cables. Source: the REST API of Nautobot 3.2."""

from __future__ import annotations

from typing import Any, Final

LOCATIONS: Final = "dcim/locations"
ROLES: Final = "extras/roles"
BY_LOCATION: Final = "location"
BY_DEVICE: Final = "device"


def status(name: str) -> dict[str, Any]:
    """Return how a status is written."""
    return {"status": {"name": name}}


def cable(one: str, other: str) -> dict[str, Any]:
    """Return the body of a cable between two interfaces."""
    ends = {
        "termination_a_type": "dcim.interface",
        "termination_a_id": one,
        "termination_b_type": "dcim.interface",
        "termination_b_id": other,
    }
    return ends | status("Connected")
