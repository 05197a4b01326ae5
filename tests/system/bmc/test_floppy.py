"""The disk with the ramdisk's parameters, as the tools that know FAT see it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ferroscope.api.baremetal import floppy


@pytest.mark.parametrize("parameters", ["", "a=b", "ipa-inspection-callback-url=http://192.0.2.1:6385 " * 300])
def test_the_parameters_are_read_back(tmp_path: Path, parameters: str) -> None:
    image = tmp_path / "disk.img"
    image.write_bytes(floppy.build(parameters))
    done = subprocess.run(["mtype", "-i", str(image), f"::{floppy.FILE}"], capture_output=True, text=True, check=True)
    assert done.stdout == parameters + "\n"


def test_the_agent_knows_it_by_its_label(tmp_path: Path) -> None:
    image = tmp_path / "disk.img"
    image.write_bytes(floppy.build("a=b"))
    done = subprocess.run(["mlabel", "-s", "-i", str(image), "::"], capture_output=True, text=True, check=True)
    assert "IR-VFD-DEV" in done.stdout


def test_it_is_a_floppy_disk_whatever_is_on_it() -> None:
    assert len(floppy.build("")) == len(floppy.build("x" * 60000)) == 1440 * 1024


def test_what_would_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="65536"):
        floppy.build("x" * 65536)
