"""What a driver tries again, and what ends that."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from ferroscope.contracts.errors import BmcError
from ferroscope.remote.retry import BmcRetries, Once
from ferroscope_client.core.reasons import Reason
from tests.support.rows import each


def call(attempt: Callable[[], None], *limits: Any) -> None:
    """Try as a driver does."""
    retries = BmcRetries(*limits)
    while True:
        try:
            return attempt()
        except BmcError as error:
            retries.wait_after(error)


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


@each(
    ("transient", "left", "stop"),
    [(False, 60.0, threading.Event()), (True, 0.1, threading.Event()), (True, 60.0, stopped())],
)
def test_it_is_not_tried_again_without_hope_or_time_or_a_process(
    transient: bool, left: float, stop: threading.Event
) -> None:
    bmc = Bmc(transient=transient)
    with pytest.raises(BmcError):
        call(bmc, lambda: left, stop)
    assert bmc.asked == 1


@each("tries", [1, 3])
def test_it_is_tried_as_often_as_is_configured(tries: int) -> None:
    bmc = Bmc(transient=True)
    with pytest.raises(BmcError):
        call(bmc, lambda: 60.0, threading.Event(), tries)
    assert bmc.asked == tries


@each(
    ("error", "asked"),
    [
        (BmcError("no answer", transient=True), 1),
        (BmcError("in this state", transient=True, reason=Reason.BMC_REFUSED), 3),
    ],
)
def test_a_command_that_must_not_be_carried_out_twice_is_sent_again_only_if_it_was_not_done(
    error: BmcError, asked: int
) -> None:
    once, sent = Once(), []

    def reset() -> None:
        once.sent = True
        sent.append(1)
        raise error

    with pytest.raises(BmcError):
        call(reset, lambda: 60.0, threading.Event(), 3, once)
    assert len(sent) == asked


def test_what_fails_before_such_a_command_is_tried_again() -> None:
    once, tries = Once(), []

    def reset() -> None:
        tries.append(1)
        if len(tries) < 3:
            raise BmcError("no answer to a look at the power", transient=True)
        once.sent = True

    call(reset, lambda: 60.0, threading.Event(), 4, once)
    assert len(tries) == 3
