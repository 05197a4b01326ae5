"""The filter of host files with its watchdog, which is a process: what is written, and what is not."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from ferroscope.contrib.boot.pxe_filter.backends import watchdog
from ferroscope.core.boot_macs import SetChange
from ferroscope.runtime.system import SystemClock
from tests.fast.contrib.boot.pxe_filter.test_host_files import BUSY, IDLE, MANY, filter_of, state, texts
from tests.support.processes import PATIENCE


def soon() -> float:
    return SystemClock().monotonic() + 60


def test_an_open_pxe_filter_writes_nothing_while_it_is_held(tmp_path: Path) -> None:
    pxe_filter = filter_of(tmp_path)
    pxe_filter.apply(SetChange(allow=[BUSY], deny=[IDLE, *MANY]), fresh=True)
    pxe_filter.hold(soon())
    before = state(tmp_path)
    for _ in range(100):
        pxe_filter.hold(soon())
    pxe_filter.apply(SetChange(allow=[BUSY], deny=[IDLE, *MANY]), fresh=True)
    assert state(tmp_path) == before
    pxe_filter.remove()


def test_files_that_somebody_removed_are_written_again(tmp_path: Path) -> None:
    pxe_filter = filter_of(tmp_path)
    pxe_filter.apply(SetChange(allow=[BUSY], deny=[IDLE]), fresh=True)
    pxe_filter.apply(SetChange(deny=MANY), fresh=False)
    pxe_filter.hold(soon())
    before = texts(tmp_path)
    for path in tmp_path.iterdir():
        path.unlink()
    pxe_filter.hold(soon())
    assert texts(tmp_path) == before
    pxe_filter.close()
    closed = texts(tmp_path)
    (tmp_path / "ferroscope-unknown").unlink()
    pxe_filter.close()
    assert texts(tmp_path) == closed
    pxe_filter.remove()
    assert texts(tmp_path) == {}


def test_many_are_denied_by_lists_and_a_change_writes_one_line(tmp_path: Path) -> None:
    pxe_filter = filter_of(tmp_path)
    signs: list[int] = []
    pxe_filter.apply(SetChange(deny=MANY), fresh=True, progress=lambda: signs.append(1))
    assert sorted(texts(tmp_path)) == ["denied-1", "denied-2", "denied-3", "unknown"]
    assert len(signs) == 3
    before = state(tmp_path)
    pxe_filter.apply(SetChange(allow=[MANY[5]], no_longer_deny=[MANY[5]]), fresh=False)
    pxe_filter.hold(soon())
    after = state(tmp_path)
    changed = {name for name in after if after[name] != before.get(name)} - {tmp_path.name}
    assert changed == {"ferroscope-525401000005", "ferroscope-unknown"}
    assert texts(tmp_path)["525401000005"] == "tag:!ferroscope,52:54:01:00:00:05\n"
    pxe_filter.remove()


def test_lists_are_taken_over_and_what_is_not_on_them_any_more_is_as_unknown_hosts(tmp_path: Path) -> None:
    filter_of(tmp_path).apply(SetChange(deny=MANY), fresh=True)
    pxe_filter = filter_of(tmp_path)
    pxe_filter.apply(SetChange(deny=[*MANY[1:], IDLE]), fresh=True)
    assert sorted(texts(tmp_path)) == ["525400bb0001", "525401000000", "denied-1", "denied-2", "denied-3", "unknown"]
    pxe_filter.hold(soon())
    assert texts(tmp_path)["525401000000"] == "tag:!ferroscope,52:54:01:00:00:00\n"
    assert texts(tmp_path)["525400bb0001"] == "tag:!ferroscope,52:54:00:bb:00:01,ignore\n"
    pxe_filter.remove()


def test_where_unknown_hosts_are_denied_nobody_else_needs_a_line(tmp_path: Path) -> None:
    filter_of(tmp_path).apply(SetChange(deny=MANY), fresh=True)
    pxe_filter = filter_of(tmp_path, unknown=False)
    pxe_filter.apply(SetChange(allow=[BUSY], deny=[IDLE, *MANY[5000:]]), fresh=True)
    assert sorted(texts(tmp_path)) == ["525400bb0002", "denied-1", "denied-2", "denied-3", "unknown"]
    pxe_filter.hold(soon())
    assert texts(tmp_path)["unknown"] == "*:*:*:*:*:*,ignore\n"
    pxe_filter.remove()


def test_closing_in_place_tries_all_files_and_fails_if_one_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pxe_filter = filter_of(tmp_path)
    pxe_filter.apply(SetChange(allow=[IDLE, BUSY]), fresh=True)
    pxe_filter.hold(soon())
    deny = watchdog._deny

    def broken(path: Path, host: str) -> None:
        if path.name == "ferroscope-525400bb0001":
            raise OSError("broken")
        deny(path, host)

    monkeypatch.setattr(watchdog, "_deny", broken)
    (tmp_path / "ferroscope-525400bb0000").symlink_to("nothing")
    with pytest.raises(OSError, match="broken"):
        watchdog.close_files(str(tmp_path))
    assert all(
        (tmp_path / f"ferroscope-{name}").read_text().endswith(",ignore\n") for name in ("unknown", "525400bb0002")
    )
    pxe_filter.remove()


def test_holding_does_not_wait_for_a_long_change(tmp_path: Path) -> None:
    """All of them go from their lists to files of their own, with a turn for whoever holds in between."""
    pxe_filter = filter_of(tmp_path)
    pxe_filter.apply(SetChange(deny=MANY), fresh=True)
    pxe_filter.hold(soon())
    held = threading.Semaphore(0)
    ended = threading.Event()
    turns: list[int] = []

    def hold() -> None:
        while not ended.is_set():
            pxe_filter.hold(soon())
            held.release()

    def progress() -> None:
        turns.append(1)
        assert held.acquire(timeout=PATIENCE)

    thread = threading.Thread(target=hold)
    thread.start()
    pxe_filter.apply(SetChange(no_longer_deny=MANY[:2000]), fresh=False, progress=progress)
    ended.set()
    thread.join()
    assert len(turns) == 10
    assert texts(tmp_path)["525401000000"] == "tag:!ferroscope,52:54:01:00:00:00\n"
    pxe_filter.remove()
