"""The texts in a ramdisk's log: a tar archive from an untrusted sender, read within bounds and never unpacked.

A small archive may expand to any number of bytes, so the decompressed size is limited. ``tarfile`` is not used: it has
looped endlessly over crafted archives. Source of the format: POSIX, pax.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from typing import Any, Final

_MAX_UNPACKED_BYTES: Final = 32 * 1024 * 1024
_MAX_MEMBERS: Final = 40
_MAX_SHOWN_BYTES: Final = 60_000
_GZIP_WINDOW_BITS: Final = 31
_BLOCK_BYTES: Final = 512
_FILES: Final = (b"0", b"\0", b"7")
_SIZE: Final = re.compile(rb"[0-7]{1,11}")
_UNREADABLE: Final = "The log is not an archive of texts; download it to look at it."
_PART: Final = "Only a part of the log is shown; download it to see all of it."


def read_log(archive: bytes) -> dict[str, Any]:
    """Return the ends of the texts in the archive, and why they are incomplete, "" if they are not."""
    plain, is_whole = _unpack(archive)
    texts: list[dict[str, Any]] = []
    for name, content in _files(plain):
        if len(texts) == _MAX_MEMBERS:
            is_whole = False
            break
        text = content[-_MAX_SHOWN_BYTES:].decode("utf-8", "replace")
        texts.append({"name": name, "text": text, "cut": len(content) > _MAX_SHOWN_BYTES})
    if not texts:
        return {"texts": [], "problem": _UNREADABLE}
    return {"texts": texts, "problem": "" if is_whole else _PART}


def _unpack(archive: bytes) -> tuple[bytes, bool]:
    """Return the archive without its compression, and whether that is all of it."""
    if not archive.startswith(b"\x1f\x8b"):
        return archive[:_MAX_UNPACKED_BYTES], len(archive) <= _MAX_UNPACKED_BYTES
    unpacker = zlib.decompressobj(_GZIP_WINDOW_BITS)
    try:
        return unpacker.decompress(archive, _MAX_UNPACKED_BYTES), unpacker.eof
    except zlib.error:
        return b"", False


def _files(plain: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of each regular file, up to the end or to an invalid header."""
    at = 0
    while len(header := plain[at : at + _BLOCK_BYTES]) == _BLOCK_BYTES:
        size = _SIZE.match(header[124:136].strip(b" \0"))
        if size is None or not header.strip(b"\0"):
            return
        at += _BLOCK_BYTES
        length = int(size[0], 8)
        if header[156:157] in _FILES:
            yield header[:100].rstrip(b"\0").decode("utf-8", "replace"), plain[at : at + length]
        at += -(-length // _BLOCK_BYTES) * _BLOCK_BYTES
