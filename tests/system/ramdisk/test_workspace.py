"""The directory of a build is removed, and nothing that was mounted in it is."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from ferroscope.contrib.ramdisk.workspace import work_directory


@pytest.fixture
def of_this_system(tmp_path: Path) -> Path:
    """Return a directory like /dev/shm, which mmdebstrap mounts where it works."""
    made = tmp_path / "shm"
    made.mkdir()
    (made / "of a database").write_text("kept")
    return made


@pytest.fixture
def mount(of_this_system: Path) -> Iterator[Callable[[Path], None]]:
    """Give a function that mounts it at a place, as a program does that is then killed."""
    with ExitStack() as stack:

        def mounted(place: Path) -> None:
            place.mkdir(parents=True)
            subprocess.run(["mount", "--bind", of_this_system, place], check=True)
            command = ["umount", "--lazy", place]
            stack.callback(subprocess.run, command, check=False, stderr=subprocess.DEVNULL)

        yield mounted


def test_what_a_killed_program_has_left_mounted_is_not_emptied(
    tmp_path: Path, of_this_system: Path, mount: Callable[[Path], None]
) -> None:
    with work_directory(tmp_path / "result of it") as work:
        mount(work / "root/dev/shm")
        mount(work / "root/dev/shm of/another")
    assert (of_this_system / "of a database").read_text() == "kept"
    assert not work.exists()


def test_neither_is_what_a_killed_build_has_left_mounted(
    tmp_path: Path, of_this_system: Path, mount: Callable[[Path], None]
) -> None:
    left = tmp_path / "result/.ramdisk-build-killed"
    mount(left / "root/dev/shm")
    with work_directory(tmp_path / "result"):
        assert not left.exists()
    assert (of_this_system / "of a database").read_text() == "kept"
