"""A busy process keeps to one processor, an idle one does not; and the programs that it starts may use all."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ferroscope import affinity
from ferroscope.affinity import ALLOWED, Keeper, Use, chosen, unconfine
from tests.support.processes import until

IDLE, BUSY = 0.01, 0.8


@pytest.fixture
def free() -> Iterator[None]:
    """Let all threads of this process run anywhere again, whatever the test has done."""
    yield
    for thread in Path("/proc/self/task").iterdir():
        os.sched_setaffinity(int(thread.name), ALLOWED)


@pytest.mark.parametrize(
    ("use", "present", "expected"),
    [
        (Use(IDLE, IDLE, {0: 0.0, 1: 0.0}), None, None),  # idle: anywhere
        (Use(0.39, 0.39, {0: 0.9, 1: 0.1}), None, None),
        (Use(BUSY, BUSY, {0: 0.9, 1: 0.3}), None, 1),  # busy: where others do least
        (Use(BUSY, BUSY, {0: 0.4, 1: 0.4}), None, 0),
        (Use(BUSY, BUSY, {0: 0.85, 1: 0.6}), 0, 0),  # what it does itself is not a reason to leave
        (Use(0.5, 0.5, {0: 1.0, 1: 0.1}), 0, 1),  # another one is there: the other processor is free
        (Use(0.75, 0.75, {0: 1.0, 1: 0.1}), 0, 0),  # little would be gained
        (Use(0.5, 0.5, {0: 1.0, 1: 1.0}), 0, None),  # others need all of them: it takes what is left of each
        (Use(0.5, 0.5, {0: 1.0, 1: 0.4}), 0, None),
        (Use(0.7, 0.7, {0: 1.0, 1: 0.95}), None, None),
        (Use(IDLE, 0.5, {0: 0.2, 1: 0.1}), 0, 0),  # between two requests it stays
        (Use(IDLE, IDLE, {0: 0.1, 1: 0.1}), 0, None),  # for long without work: anywhere
        (Use(BUSY, BUSY, {1: 0.8}), 0, 1),  # its processor was switched off
        (Use(BUSY, BUSY, {}), 0, None),  # nothing is known of any
        (Use(BUSY, BUSY, {}), None, None),
        (Use(1.8, 1.8, {0: 0.9, 1: 0.9, 2: 0.0, 3: 0.0}), None, None),  # it has work for more than one
        (Use(1.1, 1.1, {0: 0.6, 1: 0.5}), None, 1),  # that of the kernel for its threads may be a bit more
    ],
)
def test_what_is_chosen(use: Use, present: int | None, expected: int | None) -> None:
    assert chosen(use, present) == expected


def test_two_of_ours_on_one_processor_part() -> None:
    """The one that looks first moves; the other one then sees that it is alone."""
    assert chosen(Use(0.5, 0.5, {0: 1.0, 1: 0.2}), 0) == 1
    assert chosen(Use(0.5, 0.5, {0: 0.5, 1: 0.7}), 0) == 0


def test_of_equal_ones_each_process_prefers_another() -> None:
    use = Use(BUSY, BUSY, {0: 0.01, 1: 0.9, 2: 0.04, 5: 0.0})
    assert {chosen(use, None, process) for process in range(1000, 1004)} == {0, 2, 5}
    assert {chosen(Use(BUSY, BUSY, {0: 0.0, 1: 0.0}), None, process) for process in (7, 8)} == {0, 1}


@pytest.mark.parametrize("stat", ["cpu0 1 2\n", "cpu0 one two three four five\n", None])
def test_what_hides_its_processors_is_no_error(
    free: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stat: str | None
) -> None:
    file = tmp_path / "stat"
    if stat is not None:
        file.write_text(stat)
    monkeypatch.setattr(affinity, "_STAT", file)
    monkeypatch.setattr(affinity, "_PAUSE", 0.01)
    monkeypatch.setattr(affinity, "_BUSY", 0.0)
    stop = threading.Event()
    Keeper(stop)._run()  # it ends by itself
    assert os.sched_getaffinity(0) == ALLOWED


def test_times_are_those_of_the_processors_that_are_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(affinity, "ALLOWED", {0, 12})
    lines = ("cpu  9 9 9 9 9 9", "cpu0 100 0 50 1000 20 0 5 0 0 0", "cpu1 1 1 1 1 1 1", "cpu12 0 0 0 500 0 0", "cpus 1")
    before = affinity._times("\n".join(lines), 100)
    assert before.idle == {0: 10.2, 12: 5.0}
    after = affinity._Times(before.at + 2.0, before.own + 1.0, {0: 10.7, 12: 7.0, 13: 1.0})
    use = affinity._between(before, after, 0.3)
    assert (use.own, use.lately) == pytest.approx((0.5, 0.3))
    assert use.busy == pytest.approx({0: 0.75, 12: 0.0})


def test_a_busy_process_keeps_all_its_threads_to_one_processor(free: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(affinity, "_PAUSE", 0.05)
    monkeypatch.setattr(affinity, "_LOOK", 0.05)
    monkeypatch.setattr(affinity, "_BUSY", 0.0)  # it waits, and is taken for busy
    monkeypatch.setattr(affinity, "_IDLE", 0.0)
    stop, waits = threading.Event(), threading.Event()
    other = threading.Thread(target=waits.wait)
    other.start()
    keeper = Keeper(stop)
    keeper.start()
    try:
        if len(ALLOWED) < 2:
            assert keeper.present is None
            return
        until(lambda: os.sched_getaffinity(other.native_id or 0) == {keeper.present})
        until(lambda: os.sched_getaffinity(0) == {keeper.present})
        inherited = list[set[int]]()
        late = threading.Thread(target=lambda: inherited.append(os.sched_getaffinity(0)))
        late.start()
        late.join()
        assert len(inherited[0]) == 1
        stop.set()
        until(lambda: os.sched_getaffinity(other.native_id or 0) == ALLOWED)
        until(lambda: os.sched_getaffinity(0) == ALLOWED)
    finally:
        stop.set()
        waits.set()
        other.join()


@pytest.mark.parametrize("could_use", [1.0, 1.8])
def test_one_that_fills_its_processor_is_let_show_whether_it_could_use_more(
    free: None, monkeypatch: pytest.MonkeyPatch, could_use: float
) -> None:
    """Searches of SQLite do not hold the interpreter's lock, so several need several processors."""
    if len(ALLOWED) < 2:
        return
    monkeypatch.setattr(affinity, "_PAUSE", 0.01)
    monkeypatch.setattr(affinity, "_LOOK", 0.01)
    monkeypatch.setattr(affinity, "_BUSY", 0.0)
    monkeypatch.setattr(affinity, "_FULL", -1.0)  # each look finds it full
    stop, looks, confined = threading.Event(), threading.Semaphore(0), list[bool]()
    keeper = Keeper(stop)
    keeper._keep_to(min(ALLOWED))

    def between(*_given: object) -> Use:
        confined.append(keeper.present is not None)
        looks.release()
        return Use(1.0 if confined[-1] else could_use, 1.0, dict.fromkeys(ALLOWED, -2.0))

    monkeypatch.setattr(affinity, "_between", between)
    keeper.start()
    try:
        for _ in range(3 * (affinity._TRY + 1)):
            assert looks.acquire(timeout=30)
    finally:
        stop.set()
    first = confined.index(False)
    assert first == affinity._TRY
    assert all(confined[first + 1 : first + affinity._TRY]) if could_use < 1.5 else not any(confined[first:])


def test_a_thread_that_starts_a_program_is_confined_again_only_while_the_process_is(free: None) -> None:
    one, keeper = min(ALLOWED), Keeper(threading.Event())
    keeper._keep_to(one)
    unconfine()
    assert os.sched_getaffinity(0) == ALLOWED
    keeper._keep_to(one)  # the next look
    assert os.sched_getaffinity(0) == {one}
    keeper._keep_to(None)  # the process is freed while the program runs
    unconfine()
    keeper._keep_to(None)
    assert os.sched_getaffinity(0) == ALLOWED


def test_a_processor_that_is_gone_is_no_error(free: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel refuses it: the threads stay where they were, and the next look chooses among those that are left."""
    keeper = Keeper(threading.Event())
    keeper._keep_to(4000)
    assert os.sched_getaffinity(0) == ALLOWED
    monkeypatch.setattr(affinity, "ALLOWED", {4000})
    unconfine()
    assert os.sched_getaffinity(0) < {*range(4000)}
