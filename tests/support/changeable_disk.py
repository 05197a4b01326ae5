"""A file system that turns read-only under the processes that have files open on it, and writable again.

The kernel refuses to remount a file system read-only while somebody writes to it. It becomes so by itself: ext4 after
an error (``errors=remount-ro``), or a server whose export has changed. So this one is our own, by FUSE: a flat
directory in front of another one. A user namespace is enough, root is not needed. The layouts are those of
``linux/fuse.h``, 7.31.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from tests import ROOT
from tests.support.processes import die_with_parent

_REQUEST: Final = struct.Struct("=IIQQIIIHH")
_ATTRIBUTES: Final = struct.Struct("=6Q10I")
_ROOT: Final = 1
_KEEP_CACHE: Final = 2
_WRITEBACK: Final = 1  # of pages of a mapped file: the kernel's own, which it would lose if it were refused
_SIZE: Final = 8
_BUFFER: Final = 1 << 18


class Disk:
    """A mounted one. ``place``: where processes started with ``within`` see it, and nobody else does."""

    def __init__(self, place: Path, switch: Path, pid: int) -> None:
        self.place = place
        self._switch = switch
        self.pid = pid
        self.within = ("nsenter", f"--target={pid}", "--user", "--mount", "--preserve-credentials")

    def turn_read_only(self) -> None:
        self._switch.touch()

    def turn_writable(self) -> None:
        self._switch.unlink()


@contextlib.contextmanager
def mounted(directory: Path) -> Iterator[Disk]:
    """Give a disk below this directory, whose files are in ``directory/files``."""
    place, files = directory / "disk", directory / "files"
    place.mkdir()
    files.mkdir()
    switch = directory / "read-only"
    server = subprocess.Popen(
        ["unshare", "--user", "--map-root-user", "--mount", sys.executable, "-m", __name__, place, files, switch],
        cwd=ROOT, stdout=subprocess.PIPE, preexec_fn=die_with_parent,
    )  # fmt: skip
    assert server.stdout is not None
    try:
        assert server.stdout.readline() == b"mounted\n"
        yield Disk(place, switch, server.pid)
    finally:
        server.kill()
        server.wait()
        server.stdout.close()


class _Server:
    """Answers the kernel, one request after the other. A node is a name; a handle is a file descriptor."""

    def __init__(self, files: Path, switch: Path) -> None:
        self._files = files
        self._switch = switch
        self._names = {_ROOT: ""}
        self._answers: dict[int, Callable[[int, bytes], bytes]] = {
            1: lambda _, data: self._entry(_text(data)),  # LOOKUP
            3: lambda node, _: self._attributes(node),  # GETATTR
            4: self._set_attributes,
            10: lambda _, data: self._unlink(_text(data)),
            14: self._open,
            15: _read,
            16: self._write,
            17: lambda _, __: struct.pack("=5Q4I24x", 1 << 20, 1 << 19, 1 << 19, 999, 99, 4096, 255, 4096, 0),  # STATFS
            18: _release,
            20: _synchronize,
            25: lambda _, __: b"",  # FLUSH
            26: lambda _, __: struct.pack("=4I2H2I2H8I", 7, 31, 1 << 16, 0, 12, 9, 1 << 17, 1, 32, 0, *[0] * 8),  # INIT
            27: lambda _, __: struct.pack("=QII", 0, 0, 0),  # OPENDIR
            29: lambda _, __: b"",  # RELEASEDIR
            35: self._create,
        }

    def answer(self, request: bytes) -> bytes | None:
        length, code, unique, node = _REQUEST.unpack_from(request)[:4]
        if code in (2, 42):  # FORGET, which nobody waits for
            return None
        answer, error = b"", 0
        try:
            answer = self._answers[code](node, request[_REQUEST.size : length])
        except KeyError:
            error = errno.ENOSYS
        except OSError as exc:
            error = exc.errno or errno.EIO
        return struct.pack("=IiQ", 16 + len(answer), -error, unique) + answer

    def _path(self, node: int) -> Path:
        return self._files / self._names[node]

    def _check_writable(self) -> None:
        if self._switch.exists():
            raise OSError(errno.EROFS, "turned read-only")

    def _attributes(self, node: int) -> bytes:
        return struct.pack("=QII", 0, 0, 0) + _attributes(self._path(node))

    def _entry(self, name: str) -> bytes:
        attributes = _attributes(self._files / name)
        node = int.from_bytes(attributes[:8], sys.byteorder)
        self._names[node] = name
        return struct.pack("=4Q2I", node, 0, 0, 0, 0, 0) + attributes

    def _set_attributes(self, node: int, data: bytes) -> bytes:
        self._check_writable()
        valid, size = struct.unpack_from("=I12xQ", data)
        if valid & _SIZE:
            os.truncate(self._path(node), size)
        return self._attributes(node)

    def _unlink(self, name: str) -> bytes:
        self._check_writable()
        (self._files / name).unlink()
        return b""

    def _open(self, node: int, data: bytes) -> bytes:
        flags = struct.unpack_from("=I", data)[0]
        if flags & os.O_ACCMODE != os.O_RDONLY:
            self._check_writable()
        return struct.pack("=QII", os.open(self._path(node), os.O_RDWR), _KEEP_CACHE, 0)

    def _create(self, _node: int, data: bytes) -> bytes:
        self._check_writable()
        name, mode = _text(data[16:]), struct.unpack_from("=I", data, 4)[0]
        file = os.open(self._files / name, os.O_RDWR | os.O_CREAT, mode)
        return self._entry(name) + struct.pack("=QII", file, _KEEP_CACHE, 0)

    def _write(self, _node: int, data: bytes) -> bytes:
        file, offset, size, flags = struct.unpack_from("=QQII", data)
        if not flags & _WRITEBACK:
            self._check_writable()
        return struct.pack("=II", os.pwrite(file, data[40 : 40 + size], offset), 0)


def _read(_node: int, data: bytes) -> bytes:
    file, offset, size = struct.unpack_from("=QQI", data)
    return os.pread(file, size, offset)


def _release(_node: int, data: bytes) -> bytes:
    os.close(struct.unpack_from("=Q", data)[0])
    return b""


def _synchronize(_node: int, _data: bytes) -> bytes:
    return b""


def _text(data: bytes) -> str:
    return data.split(b"\0", 1)[0].decode()


def _attributes(path: Path) -> bytes:
    found = path.stat()
    ino = _ROOT if path.is_dir() else found.st_ino
    times = int(found.st_atime), int(found.st_mtime), int(found.st_ctime)
    return _ATTRIBUTES.pack(
        ino, found.st_size, found.st_blocks, *times, 0, 0, 0, found.st_mode, found.st_nlink, 0, 0, 0, 4096, 0
    )


def _serve(place: str, files: str, switch: str) -> None:
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0".encode()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"changeable", place.encode(), b"fuse", 0, options):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), place)
    print("mounted", flush=True)
    server = _Server(Path(files), Path(switch))
    while True:
        answer = server.answer(os.read(device, _BUFFER))
        if answer is not None:
            os.write(device, answer)


if __name__ == "__main__":
    _serve(*sys.argv[1:])
