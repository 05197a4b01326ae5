"""Our ramdisk for machines that really boot, built once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.boot.checks import FANS
from tests.support.ramdisk import cache, cached, make_key, publish


@pytest.fixture(scope="session")
def ramdisk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of the smallest one, whose kernel knows neither SATA nor USB nor the second NIC.

    It knows the key of an operator, whose signed list of collectors is there, too.
    """
    key, directory = cache() / "operator-key", tmp_path_factory.mktemp("ramdisk")
    if not key.exists():
        make_key(key)
    for file in cached("--kernel", "cloud", "--ssh-key", f"{key}.pub").iterdir():
        (directory / file.name).symlink_to(file)
    publish(directory, key, **FANS)
    return directory


@pytest.fixture(scope="session")
def generic_ramdisk() -> Path:
    """Return the directory of one with the drivers of all hardware, and the image for virtual media."""
    return cached("--no-firmware")
