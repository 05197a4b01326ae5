"""A build that is killed leaves nothing running and nothing mounted, so that deleting the rest deletes nothing else."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from ferroscope.contrib.ramdisk.workspace import work_directory
from tests.support import ramdisk
from tests.support.processes import spawn, until

pytestmark = pytest.mark.timeout(3600)
_SECONDS = 1800.0


def _working_in(place: Path, what: str) -> list[str]:
    """The processes in which a file of /proc has something below a directory."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"{place}/" in (process / what).read_text(errors="replace"):
                found.append(process.name)
        except OSError:
            continue  # it has ended
    return found


def _killed_while_it_installs(out: Path, log: Path, before: Sequence[str] = ()) -> None:
    """Kill a build, and nothing else, when its programs have something mounted; wait until all of them have ended."""
    command = [sys.executable, "-m", "ferroscope", "ramdisk", "build", "--kernel", "cloud", "--directory", str(out)]
    build = spawn([*before, *command], user=None, directory=log.parent, log=log)
    assert until(lambda: bool(_working_in(out, "mounts")) or build.poll() is not None, seconds=_SECONDS)
    assert build.poll() is None, log.read_text()
    assert str(os.getpid()) not in _working_in(out, "mounts")
    build.send_signal(signal.SIGKILL)
    build.wait()
    assert until(lambda: not _working_in(out, "mounts") and not _working_in(out, "cmdline"))
    assert list(out.glob(".ramdisk-build-*"))


def test_nothing_goes_on_and_the_next_build_removes_the_rest(tmp_path: Path) -> None:
    out = tmp_path / "out"
    _killed_while_it_installs(out, tmp_path / "log")
    with work_directory(out) as work:
        assert list(out.iterdir()) == [work]


def test_neither_does_anything_in_the_namespaces_of_an_ordinary_user() -> None:
    with ramdisk.ordinary_user() as (home, as_user):
        _killed_while_it_installs(home / "ramdisk", home / "log", as_user)
