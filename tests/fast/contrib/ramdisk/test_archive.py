"""The archives of a ramdisk: what is in them, and that the same content gives the same bytes."""

from __future__ import annotations

import io
import stat
import tarfile

from ferroscope.contrib.ramdisk import archive
from ferroscope.contrib.ramdisk.archive import File
from tests.support.rows import each

_FILES = {"init": File(b"#!/bin/sh\n", 0o755), "modules/10-loop.ko": File(b"\x7fELF"), "bin/busybox": File(b"b", 0o755)}


def _cpio(files: dict[str, File], large: bytes = b"squash") -> bytes:
    out = io.BytesIO()
    archive.cpio(out, files, ("root.squashfs", io.BytesIO(large), len(large)), 1_700_000_000)
    return out.getvalue()


def _entries(data: bytes) -> list[tuple[str, int, int, bytes]]:
    """Return name, mode, time and content of each entry, as the kernel's documentation says."""
    found, at = [], 0
    while True:
        assert data[at : at + 6] == b"070701"
        fields = [int(data[at + 6 + 8 * n : at + 14 + 8 * n], 16) for n in range(13)]
        mode, time, size, length = fields[1], fields[5], fields[6], fields[11]
        start = at + 110
        name = data[start : start + length - 1].decode()
        begin = (start + length + 3) & ~3
        if name == "TRAILER!!!":
            return found
        found.append((name, mode, time, data[begin : begin + size]))
        at = (begin + size + 3) & ~3


def test_the_kernel_finds_every_file_with_its_mode_and_content() -> None:
    found = {name: (mode, content) for name, mode, _, content in _entries(_cpio(_FILES))}
    assert found["init"] == (stat.S_IFREG | 0o755, b"#!/bin/sh\n")
    assert found["modules/10-loop.ko"] == (stat.S_IFREG | 0o644, b"\x7fELF")
    assert found["root.squashfs"] == (stat.S_IFREG | 0o644, b"squash")


def test_directories_come_before_what_is_in_them() -> None:
    names = [name for name, *_ in _entries(_cpio(_FILES))]
    assert names.index("modules") < names.index("modules/10-loop.ko")
    assert names.index("bin") < names.index("bin/busybox")


@each("size", [0, 1, 2, 3, 4, 5])
def test_contents_of_any_length_are_padded(size: int) -> None:
    entries = _entries(_cpio({"a": File(b"x" * size), "b": File(b"y")}, b"z" * size))
    assert [content for name, _, _, content in entries if name in "ab" or "." in name] == [
        b"x" * size, b"y", b"z" * size,
    ]  # fmt: skip


def test_the_order_in_which_files_are_given_does_not_matter() -> None:
    assert _cpio(_FILES) == _cpio(dict(reversed(_FILES.items())))
    assert archive.tar(_FILES, 1) == archive.tar(dict(reversed(_FILES.items())), 1)


def test_the_time_is_that_of_the_sources_everywhere() -> None:
    assert {time for _, _, time, _ in _entries(_cpio(_FILES))} == {1_700_000_000}


def test_what_is_added_belongs_to_root() -> None:
    with tarfile.open(fileobj=io.BytesIO(archive.tar(_FILES, 5))) as opened:
        assert {(one.uid, one.gid, one.uname, one.mtime) for one in opened} == {(0, 0, "", 5)}
        assert {one.name for one in opened} == {f"./{name}" for name in _FILES}


def test_members_are_read_without_the_directory_in_front() -> None:
    data = archive.tar(_FILES, 5)
    assert dict(archive.members(io.BytesIO(data))) == {name: file.content for name, file in _FILES.items()}
