"""LLDP as recorded by the ramdisk: what the switch at the other end of a cable reports about itself.

Pure and bounded: ``frame`` extracts TLVs from untrusted JSON, ``values`` returns them as named values, ``link`` returns
the switch and port. Malformed data is skipped and reported, and the rest is kept; nothing here raises for data from
the network. Source: IEEE 802.1AB, and the organizational TLVs of IEEE 802.1Q (annex D) and 802.3 (clause 79).
"""

from ferroscope_client.lldp.tlvs import (
    MAX_TLVS,
    MAX_VALUE_BYTES,
    SwitchLink,
    Tlv,
    frame,
    link,
    neighbour,
    neighbours,
    port_name,
    values,
)

__all__ = [
    "MAX_TLVS",
    "MAX_VALUE_BYTES",
    "SwitchLink",
    "Tlv",
    "frame",
    "link",
    "neighbour",
    "neighbours",
    "port_name",
    "values",
]
