"""Files that only their owner may read, because they hold names, serial numbers or secrets.

People sometimes type a password as a name. The mode of an existing file does not change: whoever rotates or shares the
file has chosen it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO, Any, Final, Literal

_FILE_MODE: Final = 0o600


def open_private(path: Path, mode: Literal["a", "ab", "w", "wb", "x", "xb"]) -> IO[Any]:
    """Open the file for writing; a new one is the owner's only, whatever the umask. ``OSError``."""
    return open(path, mode, encoding=None if "b" in mode else "utf-8", opener=_open)


def _open(name: str, flags: int) -> int:
    return os.open(name, flags, _FILE_MODE)
