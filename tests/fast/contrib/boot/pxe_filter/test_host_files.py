"""The filter of host files without a dnsmasq: what is written, and what is not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ferroscope.contrib.boot.pxe_filter import PxeFilterError
from ferroscope.contrib.boot.pxe_filter.backends.dnsmasq import DnsmasqFilter
from ferroscope.core.boot_macs import SetChange

IDLE, BUSY = 0x525400BB0001, 0x525400BB0002
MANY = range(0x525401000000, 0x525401000000 + 30_000)


def filter_of(directory: Path, *, unknown: bool = True) -> DnsmasqFilter:
    pxe_filter = DnsmasqFilter(str(directory), unknown=unknown)
    pxe_filter.install()
    return pxe_filter


def state(directory: Path) -> dict[str, tuple[int, int]]:
    """Return what changes wherever anything is written, whatever it says."""
    return {path.name: (path.stat().st_mtime_ns, path.stat().st_ino) for path in [directory, *directory.iterdir()]}


def texts(directory: Path) -> dict[str, str]:
    return {path.name.removeprefix("ferroscope-"): path.read_text() for path in directory.iterdir()}


def test_a_pxe_filter_that_stays_closed_writes_nothing(tmp_path: Path) -> None:
    pxe_filter = filter_of(tmp_path)
    pxe_filter.apply(SetChange(allow=[BUSY], deny=[IDLE]), fresh=True)
    pxe_filter.close()
    before = state(tmp_path)
    for _ in range(100):
        pxe_filter.close()
    assert state(tmp_path) == before


def test_a_list_that_was_cut_off_lets_nobody_pass(tmp_path: Path) -> None:
    (tmp_path / "ferroscope-denied-7").write_text("52:54:00:bb:00:01,ignore\n52:54:00:bb:00:02\n52:54")
    filter_of(tmp_path)
    closed = "tag:!ferroscope,52:54:00:bb:00:0"
    assert texts(tmp_path) == {
        "525400bb0001": f"{closed}1,ignore\n", "525400bb0002": f"{closed}2,ignore\n", "unknown": "*:*:*:*:*:*,ignore\n"
    }  # fmt: skip


def test_files_are_readable_whatever_the_umask(tmp_path: Path) -> None:
    mask = os.umask(0o077)
    try:
        (tmp_path / "ferroscope-unknown").write_text("*:*:*:*:*:*,ignore\n")
        (tmp_path / "ferroscope-denied-1").write_text("52:54:00:bb:00:01,ignore\n")
        (tmp_path / "ferroscope-525400bb0003").write_text("52:54:00:bb:00:03\n")
        (tmp_path / "ferroscope-525400bb0004").write_text("tag:!ferroscope,52:54:00:bb:00:04,ignore\n")
        pxe_filter = filter_of(tmp_path)
        pxe_filter.apply(SetChange(deny=MANY), fresh=True)
    finally:
        os.umask(mask)
    assert len(texts(tmp_path)) == 8
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o644}


def test_a_directory_that_is_gone_is_no_closed_pxe_filter(tmp_path: Path) -> None:
    directory = tmp_path / "hosts"
    directory.mkdir()
    pxe_filter = filter_of(directory)
    (directory / "ferroscope-unknown").unlink()
    directory.rmdir()
    with pytest.raises(PxeFilterError, match="No such file"):
        pxe_filter.close()
