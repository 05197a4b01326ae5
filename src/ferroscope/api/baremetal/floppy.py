"""A floppy image with the ramdisk's parameters, in the form that ironic-python-agent reads.

When booted with ``boot_method=vmedia``, the agent reads ``parameters.txt`` on the disk labeled ``ir-vfd-dev``. The
image is a 1.44 MB FAT12 file system, built in memory; the same parameters always give the same image. Source:
Microsoft's FAT specification, 1.03.
"""

from __future__ import annotations

import struct
from typing import Final

LABEL: Final = b"IR-VFD-DEV "
FILE: Final = "parameters.txt"

_SECTOR_BYTES: Final = 512
_MAX_SECTORS: Final = 2880
SIZE: Final = _MAX_SECTORS * _SECTOR_BYTES
_FAT_SECTORS: Final = 9
_ROOT_ENTRIES: Final = 224
_ALIAS: Final = b"PARAME~1TXT"
_FIRST_CLUSTER: Final = 2
_MAX_PARAMETER_BYTES: Final = 64 * 1024


def build(parameters: str) -> bytes:
    """Return the image; ``ValueError`` for parameters of more than 64 KiB."""
    content = parameters.encode() + b"\n"
    if len(content) > _MAX_PARAMETER_BYTES:
        raise ValueError(f"the parameters have {len(content)} bytes; the maximum is {_MAX_PARAMETER_BYTES}")
    clusters = -(-len(content) // _SECTOR_BYTES)
    fat = _fat(clusters)
    root = (_label() + _long_names() + _entry(len(content))).ljust(_ROOT_ENTRIES * 32, b"\0")
    image = _boot_sector() + fat + fat + root + content
    return image.ljust(SIZE, b"\0")


def _boot_sector() -> bytes:
    sector = struct.pack(
        "<3s8sHBHBHHBHHHIIBBBI11s8s",
        b"\xeb\x3c\x90",
        b"FERROSCO",
        _SECTOR_BYTES,
        1,  # sectors per cluster
        1,  # reserved sectors: the boot sector
        2,  # number of FATs
        _ROOT_ENTRIES,
        _MAX_SECTORS,
        0xF0,  # removable, 1.44 MB
        _FAT_SECTORS,
        18,  # sectors per track
        2,  # heads
        0,
        0,
        0,
        0,
        0x29,
        0x46455252,
        LABEL,
        b"FAT12   ",
    )
    return sector.ljust(_SECTOR_BYTES - 2, b"\0") + b"\x55\xaa"


def _fat(clusters: int) -> bytes:
    """Return one FAT with a single chain, starting at the first cluster."""
    last = _FIRST_CLUSTER + clusters - 1
    entries = [0xFF0, 0xFFF, *range(_FIRST_CLUSTER + 1, last + 1), 0xFFF]
    entries += [0] * (len(entries) % 2)
    packed = bytearray()
    for low, high in zip(entries[::2], entries[1::2], strict=True):
        packed += (low | high << 12).to_bytes(3, "little")
    return bytes(packed).ljust(_FAT_SECTORS * _SECTOR_BYTES, b"\0")


def _label() -> bytes:
    return LABEL + b"\x08" + bytes(20)


def _long_names() -> bytes:
    """Return the directory entries of the long file name, the last part first."""
    name = FILE + "\0"
    parts = [name[start : start + 13] for start in range(0, len(name), 13)]
    checksum = 0
    for byte in _ALIAS:
        checksum = ((checksum >> 1) + ((checksum & 1) << 7) + byte) & 0xFF
    entries = []
    for number, part in enumerate(parts, start=1):
        text = part.encode("utf-16-le").ljust(26, b"\xff")
        order = number | (0x40 if number == len(parts) else 0)
        entries.append(struct.pack("<B10sBBB12sH4s", order, text[:10], 0x0F, 0, checksum, text[10:22], 0, text[22:26]))
    return b"".join(reversed(entries))


def _entry(size: int) -> bytes:
    return struct.pack("<11sB14xHI", _ALIAS, 0x01, _FIRST_CLUSTER, size)
