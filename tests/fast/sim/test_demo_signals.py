"""A demo leaves at SIGTERM, wherever its main thread is at that moment."""

from __future__ import annotations

import os
import signal
import time
import weakref
from collections.abc import Iterator

import pytest

from ferroscope_client.errors import Exit
from ferroscope_sim.demo.demo_command import leave_at_sigterm


class Anything:
    """Something that can be referred to weakly."""


@pytest.fixture
def handlers() -> Iterator[None]:
    numbers = (signal.SIGTERM, signal.SIGALRM)
    before = [signal.getsignal(number) for number in numbers]
    timer = signal.getitimer(signal.ITIMER_REAL)
    yield
    signal.setitimer(signal.ITIMER_REAL, *timer)
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.mark.usefixtures("handlers")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_signal_in_a_callback_of_a_weak_reference_is_not_lost() -> None:
    leave_at_sigterm()

    def gone(_reference: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0)

    anything = Anything()
    reference = weakref.ref(anything, gone)
    del anything
    assert reference() is None  # so what the handler raised first was dropped
    with pytest.raises(SystemExit) as left:
        time.sleep(60)
    assert left.value.code == Exit.INTERRUPTED
