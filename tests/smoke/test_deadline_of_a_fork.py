"""The watch over calls in a process that was forked."""

from __future__ import annotations

import subprocess
import sys

from tests.support.processes import PATIENCE

_FORKED = """
import os, socket
from ferroscope.remote.calls import Deadline
with Deadline(60.0):
    child = os.fork()
    if not child:
        one, other = socket.socketpair()
        with Deadline(0.2) as deadline:
            deadline.watch(one)
            os._exit(0 if one.recv(1) == b"" else 1)
    raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_process_has_a_thread_of_its_own() -> None:
    assert subprocess.run([sys.executable, "-c", _FORKED], timeout=PATIENCE, check=False).returncode == 0
