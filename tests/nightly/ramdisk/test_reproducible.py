"""The same sources and options give the same ramdisk, byte for byte, whoever builds it, where and in which settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from ferroscope.boot_config.ramdisk import manifest
from tests.support import ramdisk

pytestmark = pytest.mark.timeout(3600)

_OTHERS = {
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONHASHSEED": "5",
    "SOURCE_DATE_EPOCH": "1",
    "TZ": "Asia/Kolkata",
    "LANG": "de_DE.UTF-8",
    "LC_ALL": "tr_TR.UTF-8",
    "COLUMNS": "40",
}


@pytest.mark.parametrize("options", [("--kernel", "cloud"), ("--kernel", "generic")], ids=lambda one: one[-1])
def test_two_builds_are_equal(tmp_path: Path, options: tuple[str, ...]) -> None:
    home = tmp_path / "home of somebody else"
    home.mkdir()
    others = _OTHERS | {"HOME": str(home), "TMPDIR": str(home)}
    ways = {"one": {}, "in/another directory/than that": {"environment": others, "umask": 0o077}}
    found = []
    for name, way in ways.items():
        done = ramdisk.build(tmp_path / name, *options, **way)
        assert done.returncode == 0, done.stderr
        found.append(manifest.read(tmp_path / name / "ipa.manifest.json"))
    one, other = found
    assert one.sources_time == other.sources_time, "Debian published something meanwhile; run it again"
    assert one.files == other.files
    assert manifest.write(one) == manifest.write(other)


def test_sizes_are_as_documented(tmp_path: Path) -> None:
    made = manifest.read(ramdisk.cached("--kernel", "generic", "--no-firmware") / "ipa.manifest.json")
    assert made.files["ipa.initramfs"].size + made.files["ipa.kernel"].size <= 150_000_000
