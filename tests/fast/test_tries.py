"""What a driver tries again, and what ends that."""

from __future__ import annotations

import threading

import pytest

from ferroscope.contracts.errors import BmcError
from ferroscope.remote.retry import retry_bmc_call


class Bmc:
    """Fails as it is told to; ``asked`` counts."""

    def __init__(self, *, transient: bool) -> None:
        self.asked = 0
        self._transient = transient

    def __call__(self) -> None:
        self.asked += 1
        raise BmcError("busy", transient=self._transient)


def stopped() -> threading.Event:
    flag = threading.Event()
    flag.set()
    return flag


@pytest.mark.parametrize(
    ("transient", "left", "stop"),
    [(False, 60.0, threading.Event()), (True, 0.1, threading.Event()), (True, 60.0, stopped())],
    ids=["permanent", "no time left", "the process shall stop"],
)
def test_it_is_not_tried_again_without_hope_or_time_or_a_process(
    transient: bool, left: float, stop: threading.Event
) -> None:
    bmc = Bmc(transient=transient)
    with pytest.raises(BmcError):
        retry_bmc_call(bmc, lambda: left, stop)
    assert bmc.asked == 1


@pytest.mark.parametrize("tries", [1, 3])
def test_it_is_tried_as_often_as_is_configured(tries: int) -> None:
    bmc = Bmc(transient=True)
    with pytest.raises(BmcError):
        retry_bmc_call(bmc, lambda: 60.0, threading.Event(), tries)
    assert bmc.asked == tries
