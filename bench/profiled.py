"""Runs a role of the service under a profiler: ``python -P profiled.py DIRECTORY CLOCK ROLE ARGUMENT...``.

Every thread but the main one is profiled. With the clock ``cpu`` time is that of the thread, so that
waiting costs nothing; with ``events`` it is the number of calls and returns, by which the profiler's own
cost can be taken off. Messages to the database are counted, each of which may be several statements. Each SIGUSR1
writes all that so far to the next file in DIRECTORY: two of them bound what is looked at.
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
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy import Engine, event

from ferroscope.db import unit_of_work
from ferroscope.db.executor import Send

Stats = dict[Any, tuple[int, int, float, float, dict[Any, Any]]]


class Profiler:
    """All threads' profiles, and the statements: text -> [count, seconds until the database answered]."""

    def __init__(self, clock: str) -> None:
        self._clock = clock
        self._profiles: list[cProfile.Profile] = []
        self._statements: dict[str, list[float]] = defaultdict(lambda: [0, 0.0])

    def install(self) -> None:
        """Profile the threads that start from now on."""
        threading.setprofile(self._enter)
        event.listen(Engine, "before_cursor_execute", self._before)
        event.listen(Engine, "after_cursor_execute", self._after)
        self._watch_constants()

    def snapshot(self) -> tuple[Stats, dict[str, list[float]]]:
        """Return the sums of all that has ended so far."""
        total: Stats = {}
        for profile in list(self._profiles):
            profile.snapshot_stats()
            for where, (primitive, calls, own, cumulative, _) in profile.stats.items():
                had = total.get(where, (0, 0, 0.0, 0.0, {}))
                total[where] = (had[0] + primitive, had[1] + calls, had[2] + own, had[3] + cumulative, {})
        return total, {text: list(numbers) for text, numbers in self._statements.items()}

    def _enter(self, *_: object) -> None:
        timer = time.thread_time if self._clock == "cpu" else map(float, itertools.count()).__next__
        profile = cProfile.Profile(timer)
        self._profiles.append(profile)
        profile.enable()

    def _watch_constants(self) -> None:
        """Count the messages that go to the driver without SQLAlchemy, which so has no event for them."""
        choose = unit_of_work.sender_for

        def watched(driver: str) -> Send:
            send = choose(driver)

            def counted(connection: Any, commands: Any) -> Any:
                began = time.perf_counter()
                try:
                    return send(connection, commands)
                finally:
                    text = "; ".join(one.text for one in commands if not one.text.startswith("NOTIFY"))
                    self._note(text, time.perf_counter() - began)

            return counted

        vars(unit_of_work)["sender_for"] = watched

    def _note(self, text: str, seconds: float) -> None:
        numbers = self._statements[text]
        numbers[0] += 1
        numbers[1] += seconds

    def _before(self, _c: Any, _cursor: Any, _text: str, _values: Any, context: Any, _many: bool) -> None:
        if context is not None:
            context.bench_began = time.perf_counter()

    def _after(self, _c: Any, _cursor: Any, text: str, _values: Any, context: Any, _many: bool) -> None:
        self._note(text, time.perf_counter() - context.bench_began)


def writer(profiler: Profiler, directory: Path) -> Callable[..., None]:
    """Return the signal handler that writes the next snapshot; the file appears when it is whole."""
    numbers = itertools.count(1)

    def write(*_: object) -> None:
        stats, statements = profiler.snapshot()
        path = directory / f"{next(numbers)}.profile"
        hidden = path.with_suffix(".part")
        hidden.write_bytes(marshal.dumps((stats, msgspec.json.encode(statements))))
        hidden.rename(path)

    return write


def main(directory: Path, clock: str, arguments: list[str]) -> None:
    profiler = Profiler(clock)
    profiler.install()
    signal.signal(signal.SIGUSR1, writer(profiler, directory))
    from ferroscope.cli.main import main as ferroscope

    ferroscope(arguments, prog_name="ferroscope")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
