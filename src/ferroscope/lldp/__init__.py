"""LLDP as recorded by the ramdisk: what the switch at the other end of a cable reports about itself.

Pure and bounded: ``frame`` extracts TLVs from untrusted JSON, ``values`` returns them as named values, ``link`` returns
the switch and port. A malformed TLV is skipped and reported; nothing here raises for data from the network. Source:
IEEE 802.1AB, with the organizational TLVs of IEEE 802.1Q (annex D) and IEEE 802.3 (clause 79).
"""

from ferroscope.lldp.frames import MAX_TLVS, MAX_VALUE, Tlv, frame
from ferroscope.lldp.tlvs import Link, link, values

__all__ = ["MAX_TLVS", "MAX_VALUE", "Link", "Tlv", "frame", "link", "values"]
