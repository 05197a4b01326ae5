"""Files that are followed while somebody replaces them."""

from __future__ import annotations

import os
from pathlib import Path

import structlog.testing

from ferroscope.config.followed import Followed


def test_a_file_that_was_given_to_the_service_after_it_was_replaced_is_read(tmp_path: Path) -> None:
    """As root replaces a certificate: as root's own first, then given to the user of the service."""
    file = tmp_path / "certificate"
    file.write_text("old")
    readable = True

    def read() -> str:
        if not readable:
            raise PermissionError(13, "Permission denied")
        return file.read_text()

    certificate = Followed("certificates", [file], read, interval=0.0)
    readable = False
    new = tmp_path / "new"
    new.write_text("new")
    new.replace(file)
    assert certificate.value == "old"
    readable = True
    replaced_at = file.stat().st_ctime_ns
    while file.stat().st_ctime_ns == replaced_at:  # file systems count in milliseconds
        os.chown(file, -1, os.getegid())
    assert certificate.value == "new"


def test_what_could_not_be_read_is_tried_again_although_the_file_is_the_same_and_said_once(tmp_path: Path) -> None:
    """As with too many open files, or a certificate that is not valid yet."""
    file = tmp_path / "certificate"
    file.write_text("old")
    now, trouble = 1000.0, ""

    def read() -> str:
        if trouble:
            raise OSError(24, trouble)
        return file.read_text()

    certificate = Followed("certificates", [file], read, clock=lambda: now)
    file.write_text("renewed")
    trouble = "Too many open files"
    with structlog.testing.capture_logs() as lines:
        for _ in range(200):
            now += 1.0
            assert certificate.value == "old"
        trouble = ""
        now += 60.0
        assert certificate.value == "renewed"
    assert [line["log_level"] for line in lines] == ["error", "info"]
