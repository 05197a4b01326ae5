"""The threads that run the application."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial

import pytest

from ferroscope.http_server.wsgi import CallThreads
from tests.support.processes import PATIENCE, until


@pytest.fixture
def threads() -> Iterator[CallThreads]:
    made = CallThreads(3, "tested")
    yield made
    made.close()


def _ours() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name.startswith("tested_")]


def test_calls_run_at_the_same_time_up_to_the_limit_and_the_others_after_them(threads: CallThreads) -> None:
    go_on, begun, ended = threading.Event(), list[int](), list[int]()

    def call(number: int) -> None:
        begun.append(number)
        assert go_on.wait(PATIENCE)
        ended.append(number)

    for number in range(5):
        threads.submit(lambda number=number: call(number), "")  # type: ignore[misc]
    assert until(lambda: len(begun) == 3)
    assert len(_ours()) == 3
    go_on.set()
    assert until(lambda: len(ended) == 5)


def test_a_thread_that_is_free_takes_the_next_call(threads: CallThreads) -> None:
    ran = list[str]()
    for number in range(20):
        threads.submit(lambda: ran.append(threading.current_thread().name), "")
        assert until(lambda number=number: len(ran) == number + 1 and len(threads._idle) == 1)  # type: ignore[misc]
    assert len(_ours()) == len(set(ran)) == 1


def test_sources_take_turns(threads: CallThreads) -> None:
    go_on, ran, busy = threading.Event(), list[str](), list[None]()

    def wait() -> None:
        busy.append(None)
        assert go_on.wait(PATIENCE)

    for _ in range(3):
        threads.submit(wait, "greedy")
    assert until(lambda: len(busy) == 3)
    for number in range(100):
        threads.submit(lambda number=number: ran.append(f"greedy {number}"), "greedy")  # type: ignore[misc]
    for source in ("first", "second"):
        threads.submit(lambda source=source: ran.append(source), source)  # type: ignore[misc]
    go_on.set()
    assert until(lambda: len(ran) == 102)
    assert {"first", "second"} < set(ran[:12])  # three threads append at the same time


def test_long_calls_leave_threads_to_the_others_and_all_of_them_run(threads: CallThreads) -> None:
    go_on, ran, running = threading.Event(), list[str](), list[str]()

    def decode(source: str) -> None:
        running.append(source)
        assert go_on.wait(PATIENCE)
        ran.append(source)

    for number in range(20):
        threads.submit(partial(decode, f"long {number}"), f"source {number % 7}", is_long=True)
        threads.submit(partial(ran.append, f"short {number}"), f"other {number}")
    assert until(lambda: len(ran) == 20)
    assert all(name.startswith("short") for name in ran)
    assert len(running) == 1  # of three threads
    go_on.set()
    assert until(lambda: len(ran) == 40)
    assert until(lambda: len(threads._idle) >= 3)
    threads.submit(partial(ran.append, "the last"), "")
    assert until(lambda: len(ran) == 41)


def test_a_call_that_fails_ends_no_thread(threads: CallThreads) -> None:
    ran = threading.Event()

    def fails() -> None:
        raise LookupError("a fault of the server")

    for _ in range(6):
        threads.submit(fails, "")
    threads.submit(ran.set, "")
    assert ran.wait(PATIENCE)


def test_at_the_end_what_has_not_begun_is_forgotten_and_the_threads_end() -> None:
    threads, go_on, ran = CallThreads(1, "tested"), threading.Event(), list[str]()
    begun = threading.Event()

    def first() -> None:
        begun.set()
        assert go_on.wait(PATIENCE)
        ran.append("first")

    threads.submit(first, "")
    assert begun.wait(PATIENCE)
    threads.submit(lambda: ran.append("second"), "")
    threads.close()
    go_on.set()
    assert until(lambda: not _ours())
    assert ran == ["first"]
