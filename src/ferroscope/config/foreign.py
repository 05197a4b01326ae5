"""Whether somebody else can change what a path means, before root writes there.

Who may rename or link in a directory decides where a write below it ends, and whose permissions a chmod changes. The
service's user owns the service's directory, so root neither reads, writes nor builds below it: with the service, its
user would be root. Checked from the top: nobody else can change what was found in a directory that is root's.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

# As the kernel: longer chains of symbolic links are loops.
_MAX_LINKS: Final = 40
_UID_MAP: Final = Path("/proc/self/uid_map")
# In no user namespace: all users mean themselves.
_ALL: Final = ["0", "0", "4294967295"]
# The user that others than those of a namespace look like in it.
_OVERFLOW: Final = Path("/proc/sys/kernel/overflowuid")


def changeable(directory: Path, user: int) -> Path | None:
    """Return the first part of the path that others than root and ``user`` can change; None if there is none.

    What does not exist yet is nobody's. In a directory such as /tmp (sticky), others cannot replace what is ours; where
    they can be there first, the part that is theirs is returned, or see ``is_others``. ``OSError``.
    """
    path = Path(os.path.abspath(directory))  # noqa: PTH100  # not resolve(): each link is looked at
    return _changeable(path, {user} | _read_trusted_users(), _MAX_LINKS)


def _read_trusted_users() -> set[int]:
    """Return whom root trusts: itself, who has called sudo, and who is outside of a user namespace."""
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
    """Return whether this process is root's, and the file exists and is somebody else's."""
    try:
        return os.geteuid() == 0 and file.lstat().st_uid not in _read_trusted_users()
    except FileNotFoundError:
        return False
