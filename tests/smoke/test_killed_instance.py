"""The lock of an instance whose process is killed."""

from __future__ import annotations

import signal
import subprocess
import sys

from ferroscope.contrib.boot.pxe_filter.host_filters import is_running

_HOLDER = """
import sys, time
from ferroscope.contrib.boot.pxe_filter.host_filters import instance_lock
with instance_lock(sys.argv[1]):
    print("held", flush=True)
    time.sleep(60)
"""


def test_one_that_is_killed_holds_nothing_any_more() -> None:
    with subprocess.Popen([sys.executable, "-c", _HOLDER, "test-killed"], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        assert is_running("test-killed")
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    assert not is_running("test-killed")
