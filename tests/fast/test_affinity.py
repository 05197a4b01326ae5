"""A busy process keeps to one processor, an idle one does not; and the programs that it starts may use all."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ferroscope import affinity
from ferroscope.affinity import Keeper, Use, choose_processor, unconfine
from tests.support.processes import until
from tests.support.rows import each

IDLE, BUSY = 0.01, 0.8
ALLOWED = frozenset(os.sched_getaffinity(0))
_ROOT = Path(__file__).parents[2]


@pytest.fixture
def free() -> Iterator[None]:
    """Let all threads of this process run anywhere again, whatever the test has done."""
    yield
    Keeper.allowed = None
    affinity._allow_all(ALLOWED)


@pytest.fixture
def several() -> None:
    if len(ALLOWED) < 2:
        pytest.skip("with one processor there is nothing to choose")


@contextmanager
def running(keeper: Keeper, stop: threading.Event) -> Iterator[None]:
    """Let it look until the end of the block."""
    thread = threading.Thread(target=keeper.run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that waits is taken for busy, and looked at often."""
    monkeypatch.setattr(affinity, "_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(affinity, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(affinity, "_LAST_PASS_SECONDS", 0.01)
    monkeypatch.setattr(affinity, "_MAX_PAUSES", 3)
    monkeypatch.setattr(affinity, "_BUSY_SHARE", 0.0)
    monkeypatch.setattr(affinity, "_IDLE_SHARE", 0.0)
    monkeypatch.setattr(affinity, "_FULL_SHARE", -100.0)
    monkeypatch.setattr(affinity, "_FULL_LOOKS", 10**9)
    monkeypatch.setattr(affinity, "_MAX_OTHERS_SHARE", 2.0)
    monkeypatch.setattr(affinity, "_PARALLEL_SHARE", 100.0)


@each(
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
        (Use(1.0, 1.0, {0: 1.0, 1: 1.0}), None, 0),  # others leave as much as one
        (Use(1.0, 1.0, dict.fromkeys(range(4), 1.0)), None, 0),
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
    assert choose_processor(use, present) == expected


@each("numbers", [(0, 1), (0, 2, 4, 6), (0, 8, 16, 24, 32, 40, 48, 56), (1, 2, 5, 12)])
def test_of_equal_ones_each_process_prefers_another(numbers: tuple[int, ...]) -> None:
    use = Use(BUSY, BUSY, dict.fromkeys(numbers, 0.02) | {99: 0.9})
    assert {choose_processor(use, None, prefers) for prefers in range(1000, 1000 + len(numbers) + 1)} == {*numbers}


def test_of_equal_ones_one_is_taken_whose_core_is_idle() -> None:
    siblings = {0: {0, 2}, 1: {1, 3}, 2: {0, 2}, 3: {1, 3}}
    use = Use(BUSY, BUSY, {0: 0.9, 1: 0.0, 2: 0.0, 3: 0.0})
    assert {choose_processor(use, None, prefers, siblings) for prefers in range(8)} == {1, 3}
    assert choose_processor(Use(BUSY, BUSY, {0: 0.9, 2: 0.1}), None, 0, siblings) == 2  # better than none


@pytest.mark.parametrize("stat", ["cpu0 1 2\n", "cpu0 one two three four five\n", "cpu4000 0 0 0 500 0 0\n"])
def test_what_hides_its_processors_is_no_error(
    free: None, hasty: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stat: str
) -> None:
    """As in containers whose /proc/stat is another one's, or has other numbers than the kernel's."""
    file, looks, stop = tmp_path / "stat", threading.Semaphore(0), threading.Event()
    file.write_text(stat)
    read = affinity._read_times

    def looked(*given: Any) -> Any:
        looks.release()
        return read(*given)

    monkeypatch.setattr(affinity, "_read_times", looked)
    monkeypatch.setattr(affinity, "_STAT", file)
    monkeypatch.setattr(os, "sched_setaffinity", lambda *_given: pytest.fail("it was set"))
    with running(Keeper(stop), stop):
        assert looks.acquire(timeout=30)
        assert looks.acquire(timeout=30)  # it goes on


def test_a_service_that_may_not_choose_goes_on(free: None, hasty: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a unit or a container forbids the call; ipmitool is started nevertheless."""

    def refused(_thread: int, _processors: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "sched_setaffinity", refused)
    Keeper(threading.Event()).run()  # it ends by itself
    assert Keeper.allowed is None
    Keeper.allowed = ALLOWED
    unconfine()


@each("role", ["all", "api", "worker"])
def test_the_units_permit_it(role: str) -> None:
    lines = (_ROOT / f"deploy/systemd/ferroscope-{role}.service").read_text().splitlines()
    filters = [line.partition("=")[2] for line in lines if line.startswith("SystemCallFilter=")]
    assert filters[0] == "@system-service"  # an allow-list: what comes later takes away (~) or adds
    assert filters.index("sched_setaffinity") > filters.index("~@privileged @resources")  # @resources has it
    assert not any(line.startswith("ProcSubset=") for line in lines)  # /proc/stat


@pytest.mark.usefixtures("several")
def test_without_file_descriptors_it_is_freed_and_looks_again(
    free: None, hasty: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = threading.Event()
    keeper, stat, threads = Keeper(stop), affinity._STAT, affinity._THREADS
    with running(keeper, stop):
        assert until(lambda: os.sched_getaffinity(0) == {keeper.present})
        monkeypatch.setattr(affinity, "_THREADS", str(tmp_path / "none"))
        monkeypatch.setattr(affinity, "_STAT", tmp_path)  # a directory: reading fails as an open() without descriptors
        assert until(lambda: os.sched_getaffinity(0) == ALLOWED)
        monkeypatch.setattr(affinity, "_THREADS", threads)
        assert until(lambda: Keeper.allowed is None)  # once it has seen all threads
        monkeypatch.setattr(affinity, "_STAT", stat)
        assert until(lambda: os.sched_getaffinity(0) == {keeper.present})
    assert os.sched_getaffinity(0) == ALLOWED


@pytest.mark.usefixtures("several")
def test_threads_that_are_started_meanwhile_are_freed_too(free: None) -> None:
    ends, spawned, keeper = threading.Event(), threading.Event(), Keeper(threading.Event())
    threads = list[threading.Thread]()

    def spawn() -> None:
        for _ in range(100):
            one = threading.Thread(target=ends.wait)
            one.start()
            threads.append(one)
            spawned.wait(0.0005)
        ends.wait()

    spawners = [threading.Thread(target=spawn) for _ in range(3)]
    for one in spawners:
        one.start()
    for number in sorted(ALLOWED)[:2] * 20:
        keeper._keep_to(number)
        keeper._keep_to(None)
    keeper._keep_to(None)  # the next look
    left = {one.native_id: os.sched_getaffinity(one.native_id or 0) for one in (*threads, *spawners)}
    ends.set()
    for one in (*spawners, *threads):
        one.join()
    assert Keeper.allowed is None
    assert {native for native, mask in left.items() if mask != ALLOWED} == set()


@pytest.mark.usefixtures("several")
def test_looks_become_rare_where_others_need_all_again_and_again(
    free: None, hasty: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others use half of each: best of them, it is not to be kept, and not to be tried each second."""
    monkeypatch.setattr(affinity, "_MAX_OTHERS_SHARE", 0.3)
    looks, stop = list[int | None](), threading.Event()
    keeper = Keeper(stop)

    def between(*_given: object) -> Use:
        looks.append(keeper.present)
        return Use(0.4, 0.4, dict.fromkeys(ALLOWED, 0.5 if keeper.present is None else 0.9))

    pauses = iter(range(400))  # of which each look takes two
    monkeypatch.setattr(affinity, "_measure_use", between)
    monkeypatch.setattr(affinity, "_vary", lambda _seconds: 0.0)
    monkeypatch.setattr(stop, "wait", lambda _seconds: next(pauses, None) is None)
    keeper.run()
    assert len(looks) < 70, "without a rest there would be 200"
    assert keeper._given_up <= affinity._MAX_GIVE_UPS
    looks.clear()
    pauses = iter(range(2000))
    monkeypatch.setattr(affinity, "_measure_use", lambda *_given: Use(0.4, 0.4, dict.fromkeys(ALLOWED, 0.4)))
    keeper.run()
    assert keeper._given_up == 0.0


def filling(monkeypatch: pytest.MonkeyPatch, tried: int, uses: Callable[[int | None], Use]) -> list[bool]:
    """Return whether a process that fills its processor was confined, at each look; ``uses`` is what it uses where."""
    monkeypatch.setattr(affinity, "_FULL_SHARE", 0.9)
    monkeypatch.setattr(affinity, "_FULL_LOOKS", tried)
    monkeypatch.setattr(affinity, "_PARALLEL_SHARE", 1.3)
    confined, stop = list[bool](), threading.Event()
    keeper = Keeper(stop)
    keeper._keep_to(min(ALLOWED))

    def between(*_given: object) -> Use:
        confined.append(keeper.present is not None)
        return uses(keeper.present)

    pauses = iter(range(100))
    monkeypatch.setattr(affinity, "_measure_use", between)
    monkeypatch.setattr(stop, "wait", lambda _seconds: next(pauses, None) is None)
    keeper.run()
    return confined


@pytest.mark.usefixtures("several")
@pytest.mark.parametrize("processes", [1, 2])
def test_one_that_fills_its_processor_comes_back_to_it_after_the_trial(
    free: None, hasty: None, monkeypatch: pytest.MonkeyPatch, processes: int
) -> None:
    """Also if others fill theirs: nothing would be better for any of them."""
    busy = {number: float(processes == 2 or number == min(ALLOWED)) for number in ALLOWED}
    confined = filling(monkeypatch, 3, lambda _present: Use(1.0, 1.0, busy))
    assert confined[:9] == [True, True, True, False, True, True, True, False, True]


def test_times_are_those_of_the_processors_that_are_allowed() -> None:
    lines = (
        "cpu  9 9 9 9 9 9",
        "cpu0 100 0 50 900 20 0 5 100 0 0",
        "cpu1 1 1 1 1 1 1",
        "cpu12 0 0 0 500 0 0",
        "cpus 1",
    )
    before = affinity._read_times("\n".join(lines), 100, {0, 12})
    assert before.idle == {0: 10.2, 12: 5.0}
    after = affinity._Times(before.at + 2.0, before.own + 1.0, {0: 10.7, 12: 7.0, 13: 1.0})
    use = affinity._measure_use(before, after, 0.3)
    assert (use.own, use.lately) == pytest.approx((0.5, 0.3))
    assert use.busy == pytest.approx({0: 0.75, 12: 0.0})


@pytest.mark.usefixtures("several")
def test_a_busy_process_keeps_all_its_threads_to_one_processor(free: None, hasty: None) -> None:
    stop, waits = threading.Event(), threading.Event()
    other, keeper = threading.Thread(target=waits.wait), Keeper(stop)
    other.start()
    native, inherited = other.native_id or 0, list[set[int]]()
    try:
        with running(keeper, stop):
            assert until(lambda: os.sched_getaffinity(native) == os.sched_getaffinity(0) == {keeper.present})
            late = threading.Thread(target=lambda: inherited.append(os.sched_getaffinity(0)))
            late.start()
            late.join()
        assert len(inherited[0]) == 1
        assert os.sched_getaffinity(native) == os.sched_getaffinity(0) == ALLOWED
    finally:
        waits.set()
        other.join()


@pytest.mark.usefixtures("several")
@pytest.mark.parametrize("could_use", [1.0, 1.8])
def test_one_that_fills_its_processor_is_let_show_whether_it_could_use_more(
    free: None, hasty: None, monkeypatch: pytest.MonkeyPatch, could_use: float
) -> None:
    """Searches of SQLite do not hold the interpreter's lock, so several need several processors."""

    def uses(present: int | None) -> Use:
        full = {number: 0.95 if number == present else 0.6 for number in ALLOWED}
        return Use(could_use if present is None else 0.8, 1.0, full)

    confined = filling(monkeypatch, 5, uses)
    assert confined.index(False) == 5
    assert all(confined[6:10]) if could_use < 1.3 else not any(confined[5:])


@pytest.mark.usefixtures("several")
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


def test_a_processor_that_is_gone_is_no_error(free: None) -> None:
    """The kernel refuses it: the threads may use those that are left, among which the next look chooses."""
    keeper = Keeper(threading.Event())
    keeper._keep_to(4000)
    assert os.sched_getaffinity(0) == ALLOWED
    assert keeper.present is None
    assert Keeper.allowed is None


def test_a_process_that_is_not_confined_has_no_mask_of_its_own(free: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the kernel would not add what an administrator adds to its cpuset."""
    monkeypatch.setattr(os, "sched_setaffinity", lambda *_given: pytest.fail("it was set"))
    unconfine()
    Keeper(threading.Event())._keep_to(None)
