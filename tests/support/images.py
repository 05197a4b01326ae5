"""The smallest file that counts as a bootable ISO image: two sectors of ECMA-119 and El Torito."""

from __future__ import annotations

_SECTOR = 2048


def iso(content: bytes = b"", *, boots: bool = True) -> bytes:
    """Return one with this content after its descriptors."""
    record = b"\x00CD001\x01EL TORITO SPECIFICATION" if boots else b"\xffCD001\x01"
    sectors = (b"\x01CD001\x01", record)
    return bytes(16 * _SECTOR) + b"".join(one.ljust(_SECTOR, b"\0") for one in sectors) + content
