"""MAC addresses that many machines have, so they identify none: ``[inspector] ignored_macs``. Pure.

They stay in the inventory, but never become ports and never identify, or contradict, a machine.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from ferroscope.core.values import identifying_mac

KNOWN: Final = "known"
"""The word that stands for ``KNOWN_MACS`` in a list of patterns."""

KNOWN_MACS: Final[dict[str, str]] = {
    # Hosts of unrelated sites show it with the address 169.254.3.1, such as Supermicro X11 to H13 and ARS ("Insyde
    # RNDIS/Ethernet Gadget"); it is also in the NIC example of stmcginnis/gofish (redfish/networkinterface_test.go).
    "be:3a:f2:b6:05:9f": "USB NIC of BMCs with Insyde or AMI firmware, such as Supermicro's",
    # The examples of HPE's iLO documentation show "Manager Virtual Network Interface" with 0A:CA:FE:F0:0D:04 for iLO 5
    # and 6; HPE's OpenBMC gives the same to its own end, and the other one to the host's.
    "0a:ca:fe:f0:0d": "virtual NIC of HPE iLO",
    "fa:4b:7f:fc:bc:02": "virtual NIC of HPE's OpenBMC",
    # Linux, drivers/platform/mellanox/mlxbf-tmfifo.c, and Mellanox/rshim-user-space: defaults of both ends.
    "00:1a:ca:ff:ff": "NIC between a host and its NVIDIA BlueField (tmfifo_net0)",
}
"""Addresses that firmware or drivers give to all machines, as in the public sources named here.

BMCs of Dell and Lenovo give each machine its own: they tell machines apart. metal3-io/metal3-docs#595 and
bb-Ricardo/netbox-sync#280 describe what happens where they do not.
"""

PATTERN: Final = r"(?i)^(known|[0-9a-f?]{2}([:-][0-9a-f?]{2}){0,5})\Z"
"""A MAC or its beginning, with ``?`` for any digit; or ``known``."""


class IgnoredMacs:
    """A set of MACs, given by patterns."""

    def __init__(self, patterns: Iterable[str]) -> None:
        """``ValueError`` if a pattern is invalid, or matches all machines."""
        given = [one for item in patterns for one in (KNOWN_MACS if item.lower() == KNOWN else (item,))]
        self._match = re.compile("|".join(map(_expression, given)) or r"(?!)").match

    def __contains__(self, mac: object) -> bool:
        return isinstance(mac, str) and self._match(mac) is not None

    def identifying(self, value: object) -> str | None:
        """Return the normalized MAC if it may identify a machine; otherwise None."""
        mac = identifying_mac(value)
        return None if mac is None or mac in self else mac


def _expression(pattern: str) -> str:
    text = pattern.lower().replace("-", ":")
    if not re.match(PATTERN, text):
        raise ValueError(f"{pattern!r} is not a MAC address or its beginning, such as 02:00:5e or 0a:ca:fe:f0:0d:0?")
    if not set(text) - set("?:"):
        raise ValueError(f"{pattern!r} matches every MAC address, so that no machine could be identified")
    return re.escape(text).replace(r"\?", "[0-9a-f]")
