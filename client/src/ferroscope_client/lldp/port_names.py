"""The name of the port at the other end of a cable, from the named values of ``tlvs`` or of another service. Pure.

Most switches send the name as the identifier. Juniper and ArubaOS send an SNMP index instead, and Brocade, Avaya and
SONiC may send a MAC address. Their name of the port is in the description. But the description is often a person's note
about the cable, so it counts only if it reads as a name and the identifier does not.
Sources: netbox-community/netbox#11196 and #5818, dainok/netdoc#116, Uninett/nav#840, sonic-net/SONiC#116.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from ferroscope_client.core.json_safety import clean_text
from ferroscope_client.core.mac_addresses import normalized_mac
from ferroscope_client.core.values import normalized_ip

# An index, or bytes in hexadecimal.
_NO_NAME: Final = re.compile(r"[0-9]+|[0-9a-f]{8,}")
# ge-0/0/11.0, 10GigabitEthernet1/3/5, 1/E8, GigabitEthernet 0/48; and numbers after one of the usual words.
_PORT_NAME: Final = re.compile(
    r"(?:[0-9]*[a-z][a-z-]*[ :]?)?[0-9]+(?:/[a-z]?[0-9]+)+(?:[.:][0-9]+)*"
    r"|(?:port|eth|ethernet|ethernet interface|interface|swp|[tfgx]e|gi|lan)[ :-]?\(?[0-9]+\)?(?:[.:][0-9]+)*",
    re.IGNORECASE,
)
_MAX_DESCRIPTION_CHARACTERS: Final = 64


def port_name(named_values: Mapping[str, Any]) -> str | None:
    """Return the name of the switch's port; its MAC address or index if it sends no name."""
    ident, description = (_text(named_values.get(f"switch_port_{end}")) for end in ("id", "description"))
    if not ident or not _is_name(ident):
        described = (
            description if len(description) <= _MAX_DESCRIPTION_CHARACTERS and _PORT_NAME.fullmatch(description) else ""
        )
        return described or ident or description or None
    return ident


def _is_name(ident: str) -> bool:
    return not (_NO_NAME.fullmatch(ident) or normalized_mac(ident) or normalized_ip(ident))


def _text(value: object) -> str:
    return clean_text(value).strip() if isinstance(value, str) else ""
