"""Our ramdisk for machines that really boot, built once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.ramdisk import cached


@pytest.fixture(scope="session")
def ramdisk() -> Path:
    """Return the directory of the smallest one, whose kernel knows neither SATA nor USB nor the second NIC."""
    return cached()


@pytest.fixture(scope="session")
def generic_ramdisk() -> Path:
    """Return the directory of one with the drivers of all hardware, and the image for virtual media."""
    return cached("--no-firmware")
