"""A leader whose renewal hangs: it is told to stop, and the process left, when trust has run out, not later."""

from __future__ import annotations

import threading
import time

import pytest

from ferroscope.contracts.errors import StoreUnavailableError
from ferroscope.core.model import Lease, LeaseProfile
from ferroscope.leadership import Leadership, LeaseRenewer
from ferroscope.runtime.system import SystemClock
from tests.support.processes import PATIENCE

PROFILE = LeaseProfile(ttl=0.6, renew=0.1, poll=0.1, margin=0.2)


class Hanging:
    """A store on a connection whose other end is gone: it says nothing for seconds, then that it is gone."""

    def __init__(self) -> None:
        self.released = threading.Event()

    def write(self, work: object, *, durable: bool = True) -> Lease:
        self.released.wait(PATIENCE)
        raise StoreUnavailableError("the connection is gone")

    read = write


@pytest.mark.parametrize("stops", [True, False])
def test_the_process_is_left_in_time_although_the_renewal_hangs(stops: bool) -> None:
    clock, store = SystemClock(), Hanging()
    lease = Lease(name="backup", holder="me", epoch=1, duration=1, acquired_at=0, renewed_at=0, expires_at=0)
    left: list[float] = []
    began = time.monotonic()
    renewer = LeaseRenewer(PROFILE, clock, leave=lambda: left.append(time.monotonic() - began))
    leadership = Leadership(lease, asked_at=clock.monotonic(), profile=PROFILE, clock=clock, store=store)  # type: ignore[arg-type]
    reset = threading.Event()
    renewer(leadership, reset)
    assert reset.wait(PATIENCE)
    told = time.monotonic() - began
    if stops:
        leadership._resigned = leadership._over = True  # what resign() sets, without waiting for the release
    time.sleep(PROFILE.margin * 3)
    store.released.set()
    assert told == pytest.approx(PROFILE.ttl - PROFILE.margin, abs=0.3)
    if stops:
        assert left == []
    else:
        assert left
        assert left[0] == pytest.approx(PROFILE.ttl - PROFILE.margin / 2, abs=0.4)
