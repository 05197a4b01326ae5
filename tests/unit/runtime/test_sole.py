"""Of the processes that guard one network on a host there is one, for as long as it lives."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from ferroscope.runtime import stale_tables
from ferroscope.runtime.system import StartError

_HOLDER = """
import sys, time
from ferroscope.runtime import stale_tables as sole
with sole.hold(sys.argv[1]):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_second_one_of_the_same_network_is_refused_and_told_why() -> None:
    with stale_tables.hold("test-sole"):
        assert stale_tables.taken("test-sole")
        with (
            pytest.raises(StartError, match="another pxe-filter of the network test-sole runs on this host"),
            stale_tables.hold("test-sole"),
        ):
            pass
        assert stale_tables.taken("test-sole")
    assert not stale_tables.taken("test-sole")


def test_networks_whose_names_are_similar_do_not_meet() -> None:
    with stale_tables.hold("test-sole"), stale_tables.hold("test_sole"), stale_tables.hold("test.sole"):
        assert not stale_tables.taken("test-sol")


def test_one_that_is_killed_holds_nothing_any_more() -> None:
    with subprocess.Popen([sys.executable, "-c", _HOLDER, "test-killed"], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        assert stale_tables.taken("test-killed")
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    assert not stale_tables.taken("test-killed")
