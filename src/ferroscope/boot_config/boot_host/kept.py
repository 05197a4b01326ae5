"""Keeps a file that is about to be replaced: as it was, and never in place of another one that was kept before."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path


def place(wanted: Path, content: bytes) -> Path:
    """Return where to keep this content: ``wanted``, or the first numbered name that is free or has it already."""
    names = (wanted if number == 0 else wanted.with_name(f"{wanted.name}.{number}") for number in itertools.count())
    return next(one for one in names if not one.exists() or one.read_bytes() == content)


def keep(path: Path, where: Path) -> None:
    """Copy the file; nobody else can read the copy before it has the original's permissions."""
    where.touch(mode=0o600)
    shutil.copy2(path, where)
