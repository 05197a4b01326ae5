"""One thread carries out what several want: all of it, once, and each gets its own result or error."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from ferroscope.contracts.errors import StoreUnavailableError
from ferroscope.db import sqlite_writers
from ferroscope.db.sqlite_writers import Turns, Unit
from tests.support.processes import PATIENCE, until


class Desk:
    """Calls each unit of a group; the first group waits until the desk is ``open``."""

    def __init__(self) -> None:
        self.groups: list[int] = []
        self.open, self.busy = threading.Event(), threading.Event()
        self.fails: BaseException | None = None
        self.turns: Turns[Callable[[], Any], Any] = Turns(self._run_alone, self._run_group, self, PATIENCE)  # type: ignore[arg-type]
        self.number_of_turns = 0

    def acquire(self) -> bool:
        self.number_of_turns += 1
        return True

    def release(self) -> None: ...

    def _run_alone(self, call: Callable[[], Any]) -> Any:
        self._begin(1)
        return call()

    def _run_group(self, units: Sequence[Unit[Callable[[], Any], Any]]) -> None:
        self._begin(len(units))
        for unit in units:
            unit.run(lambda call: call())

    def _begin(self, size: int) -> None:
        self.groups.append(size)
        self.busy.set()
        assert self.open.wait(PATIENCE)
        if self.fails is not None:
            raise self.fails


@contextmanager
def crowd(desk: Desk, calls: Sequence[Callable[[], Any]], timeout: float = PATIENCE) -> Iterator[list[Future[Any]]]:
    """One thread is at work; those of ``calls`` line up behind it, in this order."""
    desk.turns._timeout = timeout
    with ThreadPoolExecutor(len(calls) + 1) as pool:
        try:
            futures = [pool.submit(desk.turns.write, lambda: "first")]
            assert desk.busy.wait(PATIENCE)
            for number, call in enumerate(calls, 1):
                futures.append(pool.submit(desk.turns.write, call))
                assert until(lambda number=number: len(desk.turns._waiting) == number)  # type: ignore[misc]
            yield futures
        finally:
            desk.open.set()


def test_who_comes_meanwhile_is_carried_out_at_once_and_in_order() -> None:
    desk, order = Desk(), list[int]()
    with crowd(desk, [lambda number=number: order.append(number) or number for number in range(5)]) as futures:  # type: ignore[misc]
        desk.open.set()
        assert [future.result(PATIENCE) for future in futures] == ["first", 0, 1, 2, 3, 4]
    assert desk.groups == [1, 5]
    assert order == [0, 1, 2, 3, 4]
    assert desk.number_of_turns == 2


def test_an_error_is_that_of_its_caller_alone() -> None:
    def fail() -> None:
        raise ValueError("mine")

    desk = Desk()
    with crowd(desk, [lambda: 1, fail, lambda: 3]) as futures:
        desk.open.set()
        assert [futures[number].result(PATIENCE) for number in (0, 1, 3)] == ["first", 1, 3]
        with pytest.raises(ValueError, match="mine"):
            futures[2].result(PATIENCE)


def test_what_stops_the_group_is_the_error_of_all_and_the_next_go_on() -> None:
    desk = Desk()
    with crowd(desk, [lambda: 1, lambda: 2]) as futures:
        desk.fails = OSError("no room")
        desk.open.set()
        for future in futures:
            with pytest.raises(OSError, match="no room"):
                future.result(PATIENCE)
    desk.fails = None
    assert desk.turns.write(lambda: "again") == "again"


def test_many_are_several_groups() -> None:
    desk = Desk()
    with crowd(desk, [lambda number=number: number for number in range(40)]) as futures:  # type: ignore[misc]
        desk.open.set()
        assert [future.result(PATIENCE) for future in futures[1:]] == list(range(40))
    assert desk.groups == [1, 16, 16, 8]


def test_who_has_waited_for_too_long_is_not_carried_out() -> None:
    desk, done = Desk(), list[str]()
    with crowd(desk, [lambda: done.append("late")], timeout=0.01) as futures:
        with pytest.raises(StoreUnavailableError):
            futures[1].result(PATIENCE)
        desk.open.set()
        assert futures[0].result(PATIENCE) == "first"
    assert desk.turns.write(lambda: "after") == "after"
    assert done == []


def test_nobody_is_lost_or_done_twice_in_a_crowd() -> None:
    desk, counts = Desk(), [0] * 2000
    desk.open.set()

    def count(number: int) -> int:
        counts[number] += 1
        return number

    with ThreadPoolExecutor(32) as pool:
        assert list(pool.map(lambda number: desk.turns.write(lambda: count(number)), range(2000))) == list(range(2000))
    assert counts == [1] * 2000
    assert sum(desk.groups) == 2000


class _Lock:
    """A lock whose ``acquire`` is interrupted once it has succeeded."""

    def __init__(self) -> None:
        self.interrupts = False
        lock = threading.Lock()
        self.release = lock.release
        self._acquire = lock.acquire

    def acquire(self, timeout: float = -1) -> bool:
        acquired = self._acquire(timeout=timeout)
        if self.interrupts:
            raise KeyboardInterrupt
        return acquired


def test_who_is_interrupted_when_it_is_to_lead_keeps_nobody_from_going_on(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk()
    monkeypatch.setattr(sqlite_writers, "threading", SimpleNamespace(Lock=_Lock))
    with crowd(desk, [lambda: "interrupted", lambda: "second"]) as futures:
        waiting: Any = desk.turns._waiting[0].woken
        waiting.interrupts = True
        desk.open.set()
        with pytest.raises(KeyboardInterrupt):
            futures[1].result(PATIENCE)
        assert futures[2].result(PATIENCE) == "second"
    assert desk.turns.write(lambda: "after") == "after"
