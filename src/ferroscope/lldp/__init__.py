"""LLDP as the ramdisk records it: what the switch at the other end of a cable says of itself.

Pure and bounded: ``frame`` takes TLVs out of untrusted JSON, ``values`` names what they say,
``link`` finds who is plugged where. A bad TLV is left out and told of; nothing here raises for
what a switch, or who pretends to be one, has sent. Source: IEEE 802.1AB, with the organizational
TLVs of IEEE 802.1Q (annex D) and IEEE 802.3 (clause 79).
"""

from ferroscope.lldp.frames import MAX_TLVS, MAX_VALUE, Tlv, frame
from ferroscope.lldp.tlvs import Link, link, values

__all__ = ["MAX_TLVS", "MAX_VALUE", "Link", "Tlv", "frame", "link", "values"]
