"""A build that is killed leaves nothing mounted, so that deleting what it has left deletes nothing of the host."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from ferroscope.contrib.ramdisk.workspace import work_directory
from tests.support.processes import spawn, until

pytestmark = pytest.mark.timeout(3600)
_SECONDS = 1800.0


def _in_which(place: Path) -> list[str]:
    """The processes that have something mounted below a directory."""
    found = []
    for mounts in Path("/proc").glob("[0-9]*/mounts"):
        try:
            if f"{place}/" in mounts.read_text(errors="replace"):
                found.append(mounts.parent.name)
        except OSError:
            continue  # it has ended
    return found


def _killed(place: Path) -> bool:
    """Kill what works there, and tell whether all of it has ended."""
    for pid in _in_which(place):
        with suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
    return not _in_which(place)


def test_nothing_stays_mounted_and_the_next_build_removes_the_rest(tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = [sys.executable, "-m", "ferroscope", "ramdisk", "build", "--kernel", "cloud", "--directory", str(out)]
    build = spawn(command, user=None, directory=tmp_path, log=tmp_path / "log")
    assert until(lambda: _in_which(out) or build.poll() is not None, seconds=_SECONDS)
    assert build.poll() is None, (tmp_path / "log").read_text()
    assert str(os.getpid()) not in _in_which(out)
    os.killpg(build.pid, signal.SIGKILL)
    build.wait()
    assert until(lambda: _killed(out))
    assert list(out.glob(".ramdisk-build-*"))
    with work_directory(out) as work:
        assert list(out.iterdir()) == [work]
