"""A throttle that lets two machines power on at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ferroscope.worker import start
from tests.simulation.bugs.registry import bug


@bug("throttle-released-early", "the throttle's lease is released before the sleep", rule="I3", seeds=20)
def _() -> Iterator[Any]:
    @contextmanager
    def permit(self: Any, attempt: Any) -> Iterator[Any]:
        if self._quantum:
            leadership = self._election.campaign()
            if leadership is None:
                raise start.ThrottledError(self._quantum)
            leadership.resign()
            attempt.pause(self._quantum)
        yield start._UNTHROTTLED

    yield start.RebootThrottle, "permit", permit


@bug(
    "throttle-unfenced",
    "whoever slept under the throttle powers on without asking whether the lease is still theirs",
    rule="I3",
    seeds=60,
    faults=("pause under throttle", "crash"),
    mean_between_faults=4.0,
    worker={"reboot_throttle": 4.0},
    drivers={"command_timeout": 1.0, "inventory_timeout": 1.0},
    nodes=6,
    rounds=3,
)
def _() -> Iterator[Any]:
    permit = start.RebootThrottle.permit

    @contextmanager
    def unfenced(self: Any, attempt: Any) -> Iterator[Any]:
        with permit(self, attempt):
            yield start._UNTHROTTLED

    yield start.RebootThrottle, "_confirm", lambda _self, _leadership: None
    yield start.RebootThrottle, "permit", unfenced


@bug(
    "throttle-outlived",
    "a slow BMC powers a machine on after the throttle's lease is over (found by this simulation)",
    rule="throttle",
    seeds=60,
    slow_bmc=0.2,
    worker={"reboot_throttle": 4.0},
)
def _() -> Iterator[Any]:
    begin = start.RebootThrottle.__init__

    def short(self: Any, quantum: float, **options: Any) -> None:
        begin(self, quantum, **{**options, "command": 0.0})

    yield start.RebootThrottle, "__init__", short
