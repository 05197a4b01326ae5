"""Deadlines of calls: their connections end in time, and one thread sees to it for all of them."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from ferroscope.remote.calls import Deadline, DeadlineError
from tests.support.processes import PATIENCE, until


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair()
    with one, other:
        yield one, other


def watchdogs() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "deadlines"]


def test_a_wait_ends_when_the_time_of_its_call_is_over(pair: tuple[socket.socket, socket.socket]) -> None:
    with Deadline(0.1) as deadline:
        deadline.watch(pair[0])
        assert pair[0].recv(1) == b""
        with pytest.raises(DeadlineError):
            deadline.seconds_left()


def test_what_is_watched_too_late_ends_at_once(pair: tuple[socket.socket, socket.socket]) -> None:
    with Deadline(0.0) as deadline:
        deadline.watch(pair[0])
        assert pair[0].recv(1) == b""


def test_a_call_that_is_over_leaves_its_connection_alone(pair: tuple[socket.socket, socket.socket]) -> None:
    with Deadline(0.2) as deadline:
        deadline.watch(pair[0])
    assert until(lambda: deadline.has_expired and not watchdogs())
    pair[1].send(b"x")
    assert pair[0].recv(1) == b"x"


def test_a_shorter_call_ends_first_although_it_began_later(pair: tuple[socket.socket, socket.socket]) -> None:
    ended = threading.Event()
    with Deadline(10 * PATIENCE) as longer:

        def short() -> None:
            with Deadline(0.1) as deadline:
                deadline.watch(pair[0])
                pair[0].recv(1)
                ended.set()

        threading.Thread(target=short, daemon=True).start()
        assert ended.wait(PATIENCE)
        assert not longer.has_expired


def test_progress_extends_a_call_up_to_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read again is no progress, unless a command was answered since; nothing brings back what is over."""
    now = [0.0]
    monkeypatch.setattr("ferroscope.remote.calls.time", SimpleNamespace(monotonic=lambda: now[0]))
    deadline, ends = Deadline(10.0, 25.0), []
    for at, read in ((4, "a"), (5, "a"), (8, ""), (9, "a"), (18, "b"), (24.9, ""), (25.1, "c")):
        now[0] = at
        deadline.progress(read)
        ends.append(deadline.end)
    assert ends == [14, 14, 18, 19, 25, 25, 25]
    ended, unbound = Deadline(10.0, 60.0), Deadline(10.0)
    ended.expire()
    for one in (ended, unbound):
        now[0] += 1
        one.progress("a")
    assert (ended.has_expired, unbound.end - unbound.began) == (True, 10)


def test_all_calls_have_one_thread_in_common() -> None:
    with Deadline(1.0), Deadline(2.0), Deadline(3.0):
        assert len(watchdogs()) == 1
