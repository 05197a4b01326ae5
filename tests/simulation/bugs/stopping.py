"""Processes that continue although they were asked to stop."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from ferroscope.contracts.errors import StoreError
from ferroscope.db import queue
from ferroscope.worker import pool
from tests.simulation.bugs.registry import bug


@bug(
    "takes-on",
    "a worker that was asked to stop continues to take requests",
    rule="I8",
    seeds=5,
    faults=("terminate", "crash", "partition", "pause", "broken connections"),
    mean_between_faults=3.0,
    nodes=5,
    rounds=3,
)
def _() -> Iterator[Any]:
    get, run = queue.Queue.get_with, pool.Dispatcher.run

    def go_on(self: Any) -> None:
        run(self)
        while True:
            with contextlib.suppress(StoreError):
                self.step()

    yield (
        queue.Queue,
        "get_with",
        lambda self, holder, timeout, stop, *what: get(self, holder, timeout, type(stop)(stop._kernel), *what),
    )
    yield pool.Dispatcher, "run", go_on
