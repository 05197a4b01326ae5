"""Waiting for signals in a process that is stopped meanwhile, as when its host is frozen."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

_WAITS = """
import signal
from ferroscope.runtime import system as signals

awaited = (signal.SIGTERM, signal.SIGINT)
signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
print("waiting", flush=True)
print(signals.wait(awaited, 0.2), flush=True)
print(signals.wait(awaited, 30.0), flush=True)
"""


def test_a_process_that_was_stopped_past_the_time_out_has_received_nothing() -> None:
    with subprocess.Popen([sys.executable, "-c", _WAITS], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        os.kill(process.pid, signal.SIGSTOP)
        time.sleep(0.4)
        os.kill(process.pid, signal.SIGCONT)
        assert process.stdout.readline() == "None\n"
        os.kill(process.pid, signal.SIGTERM)
        assert process.stdout.readline() == "15\n"
