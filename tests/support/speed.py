"""How slow this machine is: measured once in a test run, by the process that controls it, and told to all others.

Limits of waits are multiples of it, so that a slow or busy machine has the time that it needs. Standard library only.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from typing import Final

# The environment variable in which the processes of a test run find what the first of them has measured.
VARIABLE: Final = "FERROSCOPE_TESTS_SLOWNESS"
# Seconds that the work takes on an idle core of an ordinary server.
_REFERENCE: Final = 0.15
# A machine that is slower than that by more does not get more: something else is wrong with it.
_MOST: Final = 20.0


def slowness() -> float:
    """Return how many times as long as usual work takes here and now, at least 1."""
    if VARIABLE not in os.environ:
        os.environ[VARIABLE] = f"{factor(_measured()):.2f}"
    return float(os.environ[VARIABLE])


def factor(seconds: float) -> float:
    """Return by what the limits are multiplied where the work took so long."""
    return min(max(1.0, seconds / _REFERENCE), _MOST)


def _measured() -> float:
    """Return how long it took to start processes and to compute, in which other processes may have had their part."""
    began = time.monotonic()
    for _ in range(5):
        subprocess.run([sys.executable, "-I", "-S", "-c", "pass"], stdin=subprocess.DEVNULL, check=True)
    text = json.dumps([{"name": f"eth{number}", "mac": f"52:54:00:00:{number:04x}"} for number in range(1000)])
    for _ in range(50):
        hashlib.sha256(text.encode()).digest()
        json.loads(text)
    return time.monotonic() - began
