"""Files that are followed while somebody replaces them."""

from __future__ import annotations

import os
from pathlib import Path

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
