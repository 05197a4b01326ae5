"""The directory of a build: beside the result, one at a time, and gone at the end, whatever that is.

What even SIGKILL leaves behind is removed by the next build.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ferroscope.config import foreign
from ferroscope.contrib.ramdisk.manifest import RamdiskError
from ferroscope.contrib.ramdisk.plan import Names

_PREFIX: Final = ".ramdisk-build-"
# Of a blank, among others, in the kernel's table of mounts.
_ESCAPE: Final = re.compile(r"\\([0-7]{3})")


@contextmanager
def work_directory(directory: Path) -> Iterator[Path]:
    """Create a directory beside the result, and remove it at the end; one build at a time."""
    _refuse_foreign(directory)
    created = [parent for parent in (directory, *directory.parents) if not parent.exists()]
    directory.mkdir(parents=True, exist_ok=True)
    _refuse_foreign(directory)
    lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RamdiskError(f"another build into {directory} is running", "wait for its end") from None
        for left in directory.glob(f"{_PREFIX}*"):
            _remove(left)
        work = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=directory))
        work.chmod(0o755)  # the user of a namespace is another one
        try:
            yield work
        finally:
            _remove(work)
    finally:
        os.close(lock)
        for parent in created:
            if not any(parent.iterdir()):
                parent.rmdir()


def _refuse_foreign(directory: Path) -> None:
    """Refuse to build as root where others could move the build away, and have its programs write elsewhere."""
    try:
        foreign.refuse(directory)
    except PermissionError as exc:
        raise RamdiskError(f"cannot build in {directory}: {exc.strerror}", "choose another: --directory") from exc


def _remove(directory: Path) -> None:
    """Remove it, and not what is mounted in it: mmdebstrap, if it was killed, leaves this host's /dev/shm there.

    So do builds that could have no namespace of mounts of their own (``host.alone``).
    """
    for place in reversed(_mount_points(directory)):
        subprocess.run(["umount", "--lazy", place], check=False, stderr=subprocess.DEVNULL)  # noqa: S603, S607
    if left := _mount_points(directory):
        raise RamdiskError(
            f"something is mounted in what a build has left: {left[0]}", f"umount it, then remove {directory}"
        )
    try:
        shutil.rmtree(directory)
    except OSError as exc:
        raise RamdiskError(
            f"cannot delete {directory}, which a build has left: {exc.strerror}",
            f"as root: rm -r {directory}; or: unshare --map-root-user --map-auto rm -r {directory}",
        ) from exc


def _mount_points(directory: Path) -> list[str]:
    """Return the places below the directory at which something is mounted."""
    start = f"{directory.resolve()}/"
    table = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    places = (_ESCAPE.sub(lambda match: chr(int(match[1], 8)), line.split(" ")[4]) for line in table.splitlines())
    return [place for place in places if place.startswith(start)]


def put_into_place(out: Path, names: Names, directory: Path) -> None:
    """Rename the files, the manifest last: until then, ``check`` says that they do not match the old one."""
    signed = names.signature if (out / names.signature).exists() else None
    if signed is None:
        (directory / names.signature).unlink(missing_ok=True)
    for name in [*names.files, *([signed] if signed else []), names.manifest]:
        target = directory / name
        target.parent.mkdir(parents=True, exist_ok=True)
        _refuse_foreign(target.parent)
        path = out / name
        path.chmod(0o644)
        os.utime(path)  # web servers and their caches tell files apart by their time
        path.replace(target)
