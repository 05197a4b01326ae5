"""Our ramdisk for machines that really boot, built once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.boot.checks import FANS
from tests.support.ramdisk import build, cached, make_key, publish


@pytest.fixture(scope="session")
def ramdisk() -> Path:
    """Return the directory of the smallest one, whose kernel knows neither SATA nor USB nor the second NIC."""
    return cached()


@pytest.fixture(scope="session")
def collecting_ramdisk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a smallest one, with the signed list of the operator's collectors, which it runs."""
    key = tmp_path_factory.mktemp("key") / "key"
    make_key(key)
    directory = tmp_path_factory.mktemp("ramdisk")
    done = build(directory, "--kernel", "cloud", "--ssh-key", f"{key}.pub")
    assert done.returncode == 0, done.stderr
    publish(directory, key, **FANS)
    return directory


@pytest.fixture(scope="session")
def generic_ramdisk() -> Path:
    """Return the directory of one with the drivers of all hardware, and the image for virtual media."""
    return cached("--no-firmware")
