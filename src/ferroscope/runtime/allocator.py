"""How much freed memory the C library may keep: little, whatever callers send and however many threads there are.

glibc has an arena for nearly each thread and, once a large block has been freed, takes all up to its size from
these, where what is small and lives on keeps what was large from going back to the kernel: an api that had got
some bodies of megabytes held far more than it used, and more with each. This does nothing without glibc, or where
whoever starts the process has set glibc's variables. Source: mallopt(3).
"""

from __future__ import annotations

import ctypes
import os
from typing import Final

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8

_LARGE: Final = 256 * 1024  # bytes from which a block is the kernel's own, and goes back to it when it is freed
_LIMITS: Final = ((_M_ARENA_MAX, 2), (_M_MMAP_THRESHOLD, _LARGE), (_M_TRIM_THRESHOLD, _LARGE))


def restrain() -> bool:
    """Set the limits, before there are threads; return whether they are set now."""
    if _is_configured():
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return all(mallopt(name, value) == 1 for name, value in _LIMITS)


def _is_configured() -> bool:
    tunables = os.environ.get("GLIBC_TUNABLES", "")
    return "glibc.malloc" in tunables or any(name.startswith("MALLOC_") for name in os.environ)
