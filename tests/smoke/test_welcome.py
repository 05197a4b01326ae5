"""``ferroscope all`` on a terminal says where everything is, once it is ready; a service says it in its log."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.processes import PATIENCE, free_port


@pytest.mark.parametrize("terminal", [True, False])
def test_it_says_where_the_page_and_the_data_are(tmp_path: Path, terminal: bool) -> None:
    ours, theirs = os.openpty() if terminal else os.pipe()
    port = free_port()
    environment = {"OS_API__BARE_METAL_PORT": str(port), "OS_API__INTROSPECTION_PORT": "0"}
    process = subprocess.Popen(
        [sys.executable, "-m", "ferroscope", "all", "--simulator", "--database", f"sqlite:///{tmp_path}/f.db"],
        stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, env={**os.environ, **environment},
    )  # fmt: skip
    os.close(theirs)
    try:
        said = _read(ours, b"ferroscope sim" if terminal else b"ready ", until=time.monotonic() + PATIENCE)
        assert f"http://127.0.0.1:{port}/ui" in said
        assert ("ferroscope sim --nodes 50 --enroll" in said) is terminal
        assert f"{tmp_path}/f.db" in said
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(PATIENCE)
        os.close(ours)


def _read(descriptor: int, last: bytes, *, until: float) -> str:
    """Return what was written, with the rest of the line that has ``last`` in it."""
    said = b""
    while last not in said and time.monotonic() < until:
        if select.select([descriptor], [], [], 0.1)[0]:
            said += os.read(descriptor, 65536)
    return said.decode()
