"""Units of work that one thread carries out for several: the writes of a process to SQLite, which has one writer.

A thread that finds nobody at work leads: it takes what has arrived meanwhile, carries all of it out, and hands the lead
to the first of those that came later. So threads do not pass a lock to each other, of which each handover costs two
switches between threads, during which nobody writes.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from contextvars import Context, copy_context
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")
D = TypeVar("D")

# How many are carried out at once; those who wait for the first one wait for the last one, too.
_MOST: Final = 16


class AbandonedError(Exception):
    """The thread that carried out the unit was ended, as by an interrupt; what became of the unit is not known."""


class Unit(Generic[T, D]):
    """Something to carry out, and what came of it. It sees the context variables of the thread that asked for it."""

    __slots__ = ("context", "done", "error", "leads", "result", "what", "woken")

    def __init__(self, what: T, context: Context | None) -> None:
        self.what = what
        self.context = context
        self.woken = threading.Lock()
        self.woken.acquire()
        self.leads = self.done = False
        self.result: D = None  # type: ignore[assignment]  # until it is done
        self.error: BaseException | None = None

    def run(self, call: Callable[[T], D]) -> None:
        """Keep what ``call`` returns or raises."""
        self.error = None
        try:
            self.result = call(self.what) if self.context is None else self.context.run(call, self.what)
        except Exception as exc:  # noqa: BLE001  # raised again in the thread that asked for it
            self.error = exc


class Together(Generic[T, D]):
    """``carry_out`` gives each unit a result or an error; what it raises is the error of all of them.

    ``turn`` is entered before a group is formed: whoever comes while it waits is part of the group.
    """

    def __init__(
        self, carry_out: Callable[[Sequence[Unit[T, D]]], None], turn: Callable[[], AbstractContextManager[Any]]
    ) -> None:
        self._carry_out = carry_out
        self._turn = turn
        self._lock = threading.Lock()
        self._waiting: deque[Unit[T, D]] = deque()
        self._is_led = False

    def run(self, what: T, timeout: float) -> D:
        """Return what came of it, or raise its error; ``TimeoutError`` if it was not begun within so many seconds."""
        with self._lock:
            leads, self._is_led = not self._is_led, True
            unit: Unit[T, D] = Unit(what, None if leads else copy_context())
            self._waiting.append(unit)
        if not leads:
            self._await(unit, timeout)
        if not unit.done:
            self._lead(unit)
        if unit.error is not None:
            raise unit.error
        return unit.result

    def _await(self, unit: Unit[T, D], timeout: float) -> None:
        """Wait until the unit is done, or leads."""
        try:
            woken = unit.woken.acquire(timeout=timeout)
            if not woken and not self._withdrawn(unit):
                woken = unit.woken.acquire()  # it has been begun
        except BaseException:
            self._leave(unit)
            raise
        if not woken:
            raise TimeoutError

    def _withdrawn(self, unit: Unit[T, D]) -> bool:
        """Take back a unit that has not been begun, and is not to lead; return whether it could be."""
        with self._lock:
            if unit not in self._waiting or unit.leads:
                return False
            self._waiting.remove(unit)
            return True

    def _leave(self, unit: Unit[T, D]) -> None:
        """Nobody waits for the unit any more, which may have been told to lead."""
        with self._lock:
            if unit in self._waiting:
                self._waiting.remove(unit)
        if unit.leads and not unit.done:
            self._hand_over(())

    def _lead(self, own: Unit[T, D]) -> None:
        """Carry out what waits, of which ``own`` is the first."""
        group: list[Unit[T, D]] = []
        try:
            with self._turn():
                with self._lock:
                    group = [self._waiting.popleft() for _ in range(min(len(self._waiting), _MOST))]
                self._carry_out(group)
        except BaseException as exc:
            if not group:
                with self._lock:
                    self._waiting.remove(own)
                group = [own]
            for unit in group:
                unit.error = exc if isinstance(exc, Exception) else AbandonedError(type(exc).__name__)
            if not isinstance(exc, Exception):
                raise
        finally:
            self._hand_over(group)

    def _hand_over(self, group: Sequence[Unit[T, D]]) -> None:
        with self._lock:
            successor = self._waiting[0] if self._waiting else None
            self._is_led = successor is not None
            if successor is not None:
                successor.leads = True
        if successor is not None:
            successor.woken.release()
        for unit in group:
            unit.done = True
            unit.woken.release()
