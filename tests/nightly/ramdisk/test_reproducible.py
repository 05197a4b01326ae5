"""The same sources and options give the same ramdisk, byte for byte; another user's build does, too."""

from __future__ import annotations

from pathlib import Path

import pytest

from ferroscope.boot_config.ramdisk import manifest
from tests.support import ramdisk


@pytest.mark.parametrize("options", [("--kernel", "cloud"), ("--kernel", "generic")], ids=lambda one: one[-1])
def test_two_builds_are_equal(tmp_path: Path, options: tuple[str, ...]) -> None:
    found = []
    for name in ("one", "other"):
        done = ramdisk.build(tmp_path / name, *options)
        assert done.returncode == 0, done.stderr
        found.append(manifest.read(tmp_path / name / "ipa.manifest.json"))
    one, other = found
    assert one.sources_time == other.sources_time, "Debian published something meanwhile; run it again"
    assert one.files == other.files
    assert manifest.write(one) == manifest.write(other)


def test_sizes_are_as_documented(tmp_path: Path) -> None:
    made = manifest.read(ramdisk.cached("--kernel", "generic", "--no-firmware") / "ipa.manifest.json")
    assert made.files["ipa.initramfs"].size + made.files["ipa.kernel"].size <= 150_000_000
