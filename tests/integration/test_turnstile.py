"""Processes that take turns at SQLite's write lock: in a row, never two, and a dead one's turn is free."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ferroscope.adapters.sql.turnstile import Turnstile
from ferroscope.ports.errors import StoreUnavailableError
from tests.support.processes import until

_HOLDER = """
import sys, time
from ferroscope.adapters.sql.turnstile import Turnstile
with Turnstile(sys.argv[1], 5.0).turn():
    print("holds", flush=True)
    time.sleep(100)
"""


def test_another_processes_turn_is_waited_for_until_the_time_is_over(tmp_path: Path) -> None:
    path = str(tmp_path / "db-turn")
    with subprocess.Popen([sys.executable, "-c", _HOLDER, path], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"holds\n"
        with pytest.raises(StoreUnavailableError), Turnstile(path, 0.05).turn():
            pytest.fail("two had the turn")
        holder.send_signal(signal.SIGKILL)
        holder.wait(10)
        with Turnstile(path, 5.0).turn():
            assert Path(path).exists()


def test_a_file_that_cannot_be_made_is_done_without(tmp_path: Path) -> None:
    entered = []
    with Turnstile(str(tmp_path / "nowhere" / "db-turn"), 0.05).turn():
        entered.append(True)
    assert entered == [True]


def test_the_file_is_closed_with_its_turnstile(tmp_path: Path) -> None:
    path = tmp_path / "db-turn"

    def holds() -> bool:
        open_files = (entry for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink())
        return any(str(entry.readlink()) == str(path) for entry in open_files)

    turnstile = Turnstile(str(path), 1.0)
    with turnstile.turn():
        assert holds()
    del turnstile
    assert until(lambda: not holds(), seconds=5)
