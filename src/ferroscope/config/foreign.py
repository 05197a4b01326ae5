"""Whether another user can change what a path means, before root writes there.

A user who may rename or link in a directory decides where a write below it ends, and whose permissions a chmod changes.
The service's user owns the service's directory, so root neither reads, writes nor builds below it: otherwise the
service's user would be as powerful as root. The check begins at the top: no other user can change a directory of root.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

# As in the kernel: longer chains of symbolic links are loops.
_MAX_LINKS: Final = 40
_UID_MAP: Final = Path("/proc/self/uid_map")
# Outside of a user namespace, all users mean themselves.
_ALL: Final = ["0", "0", "4294967295"]
# The user as which users outside of a namespace appear in it.
_OVERFLOW: Final = Path("/proc/sys/kernel/overflowuid")


def changeable(directory: Path, user: int) -> Path | None:
    """Return the first part of the path that users other than root and ``user`` can change; None if there is none.

    A missing part belongs to no user. In a sticky directory such as /tmp, others cannot replace our files. If they were
    there first, the part that is theirs is returned, or see ``is_others``. ``OSError``.
    """
    path = Path(os.path.abspath(directory))  # noqa: PTH100  # not resolve(): each link is looked at
    return _changeable(path, {user} | _read_trusted_users(), _MAX_LINKS)


def _read_trusted_users() -> set[int]:
    """Return the users that root trusts: itself, the caller of sudo, and users outside of a user namespace."""
    users = {0}
    if (caller := os.environ.get("SUDO_UID", "")).isdecimal():
        users.add(int(caller))
    with suppress(FileNotFoundError):  # in a chroot without /proc
        if _UID_MAP.read_text(encoding="ascii").split() != _ALL:
            users.add(int(_OVERFLOW.read_text(encoding="ascii")))
    return users


def _changeable(path: Path, users: set[int], links: int) -> Path | None:
    if links == 0:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    for part in (*reversed(path.parents), path):
        try:
            status = part.lstat()
        except FileNotFoundError:
            return None
        if status.st_uid not in users:
            return part
        if stat.S_ISLNK(status.st_mode):
            if (through := _changeable(part.parent / part.readlink(), users, links - 1)) is not None:
                return through
        elif status.st_mode & 0o022 and not status.st_mode & stat.S_ISVTX:
            return part
    return None


def refuse(directory: Path) -> None:
    """Raise ``PermissionError`` if this process is root's and others can change the path; its text says what to do."""
    if os.geteuid() == 0 and (part := changeable(directory, 0)) is not None:
        raise PermissionError(
            errno.EPERM,
            f"others than root can change {part}, and so where root would write; choose a directory of root's, or give "
            f"it to root: chown root {part}; chmod go-w {part}",
            str(directory),
        )


def is_others(file: Path) -> bool:
    """Return whether this process runs as root, and the file exists and belongs to another user."""
    try:
        return os.geteuid() == 0 and file.lstat().st_uid not in _read_trusted_users()
    except FileNotFoundError:
        return False
