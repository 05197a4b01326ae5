"""The archives of a ramdisk: a cpio (format newc) for the kernel, and the tar of what we add to Debian's files.

The same content always gives the same bytes: entries are sorted, and owner, time and numbers do not depend on the host.
Source: the kernel's Documentation/driver-api/early-userspace/buffer-format.rst.
"""

from __future__ import annotations

import io
import stat
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from typing import IO, Final

import msgspec

_MAGIC: Final = b"070701"
_CHUNK_BYTES: Final = 1 << 20
_LAST: Final = "TRAILER!!!"


class File(msgspec.Struct, frozen=True):
    """A file to add; ``mode``: permissions."""

    content: bytes
    mode: int = 0o644


def cpio(out: IO[bytes], files: Mapping[str, File], large: tuple[str, IO[bytes], int], time: int) -> None:
    """Write the archive with ``files``, their directories, and one large file (name, content, size) at the end.

    ``time``: that of all entries. Names have no leading slash.
    """
    entries: list[tuple[str, int, bytes]] = [(name, stat.S_IFDIR | 0o755, b"") for name in _directories(files)]
    entries += [(name, stat.S_IFREG | file.mode, file.content) for name, file in files.items()]
    number = 0
    for number, (name, mode, content) in enumerate(sorted(entries), start=1):
        out.write(_header(number, mode, time, len(content), name))
        out.write(content + bytes(-len(content) % 4))
    name, stream, size = large
    out.write(_header(number + 1, stat.S_IFREG | 0o644, time, size, name))
    while chunk := stream.read(_CHUNK_BYTES):
        out.write(chunk)
    out.write(bytes(-size % 4))
    out.write(_header(0, 0, 0, 0, _LAST))


def _directories(files: Iterable[str]) -> list[str]:
    directories = {"dev"}
    for name in files:
        parts = name.split("/")[:-1]
        directories |= {"/".join(parts[:count]) for count in range(1, len(parts) + 1)}
    return sorted(directories)


def _header(number: int, mode: int, time: int, size: int, name: str) -> bytes:
    encoded = name.encode() + b"\0"
    links = 2 if stat.S_ISDIR(mode) else 1
    fields = (number, mode, 0, 0, links, time, size, 0, 0, 0, 0, len(encoded), 0)
    header = _MAGIC + b"".join(b"%08X" % field for field in fields) + encoded
    return header + bytes(-len(header) % 4)


def tar(files: Mapping[str, File], time: int) -> bytes:
    """Return the tar of ``files``, which root owns, and of the directories that only they need."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, file in sorted(files.items()):
            entry = tarfile.TarInfo(f"./{name}")
            entry.size, entry.mode, entry.mtime = len(file.content), file.mode, time
            archive.addfile(entry, io.BytesIO(file.content))
    return out.getvalue()


def members(archive: IO[bytes]) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of each regular file of a tar; names begin without ``./``."""
    with tarfile.open(fileobj=archive, mode="r|") as opened:
        for entry in opened:
            stream = opened.extractfile(entry) if entry.isfile() else None
            if stream is not None:
                yield entry.name.removeprefix("./").lstrip("/"), stream.read()
