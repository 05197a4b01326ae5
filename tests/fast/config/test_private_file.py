"""Files with names or secrets: only their owner reads a new one, and nobody changes the mode of an old one."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from ferroscope_client.core.private_file import open_private


@pytest.fixture(params=[0o000, 0o022, 0o077])
def _umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


@pytest.mark.usefixtures("_umask")
@pytest.mark.parametrize("mode", ["a", "ab", "w", "wb", "x", "xb"])
def test_a_new_file_is_its_owners(tmp_path: Path, mode: Literal["a", "ab", "w", "wb", "x", "xb"]) -> None:
    path = tmp_path / "file"
    with open_private(path, mode) as file:
        file.write("ä" if "b" not in mode else b"x")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_an_old_file_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    path.chmod(0o640)
    for number in range(2):
        with open_private(path, "a") as file:
            file.write(f"{number}\n")
    assert (stat.S_IMODE(path.stat().st_mode), path.read_text()) == (0o640, "0\n1\n")
