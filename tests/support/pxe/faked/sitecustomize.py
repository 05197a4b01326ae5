"""Runs first in every Python under libfaketime, of which it mends one thing: sleeps.

Python sleeps until a moment of CLOCK_MONOTONIC, and libfaketime 0.9.10 makes that an invalid argument.
"""

import select
import time

time.sleep = lambda seconds: select.select([], [], [], seconds) and None
