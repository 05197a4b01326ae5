"""The same sources and options give the same ramdisk, byte for byte, whoever builds it, where and in which settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ferroscope.contrib.ramdisk import manifest
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


def test_two_builds_are_equal(tmp_path: Path) -> None:
    home = tmp_path / "home of somebody else"
    home.mkdir()
    others = _OTHERS | {"HOME": str(home), "TMPDIR": str(home)}
    _build(tmp_path / "one", "generic")
    _build(tmp_path / "in/another directory/than that", "generic", environment=others, umask=0o077)
    _equal(tmp_path / "one", tmp_path / "in/another directory/than that")


def test_an_ordinary_user_builds_the_same_as_root(tmp_path: Path) -> None:
    _build(tmp_path / "of root", "cloud")
    with ramdisk.ordinary_user() as (home, as_user):
        others = _OTHERS | {"HOME": str(home), "TMPDIR": str(home), "LOGNAME": "root"}
        _build(home / "ramdisk", "cloud", environment=others, umask=0o077, before=as_user)
        _equal(tmp_path / "of root", home / "ramdisk")
        assert all(path.stat().st_uid for path in (home / "ramdisk").iterdir())


def _build(directory: Path, kernel: str, **way: Any) -> None:
    done = ramdisk.build(directory, "--kernel", kernel, **way)
    assert done.returncode == 0, done.stderr
    print(done.stderr)  # how long each part took


def _equal(*directories: Path) -> None:
    one, other = (manifest.read(directory / "ipa.manifest.json") for directory in directories)
    assert one.sources_time == other.sources_time, "Debian published something meanwhile; run it again"
    assert one.files == other.files
    assert manifest.write(one) == manifest.write(other)


def test_sizes_are_as_documented(tmp_path: Path) -> None:
    made = manifest.read(ramdisk.cached("--kernel", "generic", "--no-firmware") / "ipa.manifest.json")
    assert made.files["ipa.initramfs"].size + made.files["ipa.kernel"].size <= 150_000_000
