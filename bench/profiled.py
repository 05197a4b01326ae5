"""Runs a role of the service under a profiler: ``python -P profiled.py DIRECTORY ROLE ARGUMENT...``.

Every thread but the main one is profiled, by its own CPU time, so that waiting costs nothing. Each SIGUSR1 writes all
that so far to the next file in DIRECTORY: two of them bound what is looked at.
"""

from __future__ import annotations

import cProfile
import itertools
import marshal
import signal
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

# (file, line, function) -> calls, own seconds, seconds with what it calls.
Functions = dict[tuple[str, int, str], tuple[float, float, float]]


class Profiler:
    """The profiles of all threads that start from now on."""

    def __init__(self, directory: Path) -> None:
        self._paths = (directory / f"{number}.profile" for number in itertools.count(1))
        self._profiles: list[cProfile.Profile] = []

    def enter(self, *_: object) -> None:
        profile = cProfile.Profile(time.thread_time)
        self._profiles.append(profile)
        profile.enable()

    def write(self, *_: object) -> None:
        """Write the sums of all that has ended so far; the file appears when it is whole."""
        functions: dict[Any, tuple[float, float, float]] = defaultdict(lambda: (0, 0.0, 0.0))
        for profile in list(self._profiles):
            profile.snapshot_stats()
            stats: dict[Any, Any] = vars(profile)["stats"]
            for where, (_, calls, own, whole, _) in stats.items():
                had = functions[where]
                functions[where] = (had[0] + calls, had[1] + own, had[2] + whole)
        path = next(self._paths)
        part = path.with_suffix(".part")
        part.write_bytes(marshal.dumps(dict(functions)))
        part.rename(path)


def main(directory: Path, arguments: list[str]) -> None:
    profiler = Profiler(directory)
    threading.setprofile(profiler.enter)
    signal.signal(signal.SIGUSR1, profiler.write)
    from ferroscope_client.cli.main import main as ferroscope

    ferroscope(arguments, prog_name="ferroscope")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
