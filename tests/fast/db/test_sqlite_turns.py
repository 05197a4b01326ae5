"""One thread carries out what several want: all of it, once, and each gets its own result or error."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any

import pytest

from ferroscope.db import sqlite_writers
from ferroscope.db.sqlite_writers import Together, Unit
from tests.support.processes import PATIENCE, until

_CALLER: ContextVar[str] = ContextVar("caller", default="nobody")


class Desk:
    """Calls each unit of a group; the first group waits until the desk is ``open``."""

    def __init__(self) -> None:
        self.groups: list[int] = []
        self.open, self.busy = threading.Event(), threading.Event()
        self.fails: BaseException | None = None
        self.together: Together[Callable[[], Any], Any] = Together(self._carry_out, self._turn)
        self.turns = 0

    def run(self, call: Callable[[], Any], timeout: float = PATIENCE) -> Any:
        return self.together.run(call, timeout)

    @contextmanager
    def _turn(self) -> Iterator[None]:
        self.turns += 1
        yield

    def _carry_out(self, units: Sequence[Unit[Callable[[], Any], Any]]) -> None:
        self.groups.append(len(units))
        self.busy.set()
        assert self.open.wait(PATIENCE)
        if self.fails is not None:
            raise self.fails
        for unit in units:
            unit.run(lambda call: call())


@contextmanager
def crowd(desk: Desk, calls: Sequence[Callable[[], Any]], timeout: float = PATIENCE) -> Iterator[list[Future[Any]]]:
    """One thread is at work; those of ``calls`` line up behind it, in this order."""
    with ThreadPoolExecutor(len(calls) + 1) as pool:
        try:
            futures = [pool.submit(desk.run, lambda: "first")]
            assert desk.busy.wait(PATIENCE)
            for number, call in enumerate(calls, 1):
                futures.append(pool.submit(desk.run, call, timeout))
                assert until(lambda number=number: len(desk.together._waiting) == number)  # type: ignore[misc]
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
    assert desk.turns == 2


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
    assert desk.run(lambda: "again") == "again"


def test_many_are_several_groups() -> None:
    desk = Desk()
    with crowd(desk, [lambda number=number: number for number in range(40)]) as futures:  # type: ignore[misc]
        desk.open.set()
        assert [future.result(PATIENCE) for future in futures[1:]] == list(range(40))
    assert desk.groups == [1, 16, 16, 8]


def test_who_has_waited_for_too_long_is_not_carried_out() -> None:
    desk, done = Desk(), list[str]()
    with crowd(desk, [lambda: done.append("late")], timeout=0.01) as futures:
        with pytest.raises(TimeoutError):
            futures[1].result(PATIENCE)
        desk.open.set()
        assert futures[0].result(PATIENCE) == "first"
    assert desk.run(lambda: "after") == "after"
    assert done == []


def test_each_sees_the_context_of_its_own_thread() -> None:
    desk = Desk()

    def asking(name: str) -> Any:
        _CALLER.set(name)
        return desk.run(_CALLER.get)

    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(asking, "a")]
        assert desk.busy.wait(PATIENCE)
        futures += [pool.submit(asking, name) for name in "bcd"]
        assert until(lambda: len(desk.together._waiting) == 3)
        desk.open.set()
        assert [future.result(PATIENCE) for future in futures] == ["a", "b", "c", "d"]
    assert desk.groups == [1, 3]


def test_nobody_is_lost_or_done_twice_in_a_crowd() -> None:
    desk, counts = Desk(), [0] * 2000
    desk.open.set()

    def count(number: int) -> int:
        counts[number] += 1
        return number

    with ThreadPoolExecutor(32) as pool:
        assert list(pool.map(lambda number: desk.run(lambda: count(number)), range(2000))) == list(range(2000))
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
        waiting: Any = desk.together._waiting[0].woken
        waiting.interrupts = True
        desk.open.set()
        with pytest.raises(KeyboardInterrupt):
            futures[1].result(PATIENCE)
        assert futures[2].result(PATIENCE) == "second"
    assert desk.run(lambda: "after") == "after"
