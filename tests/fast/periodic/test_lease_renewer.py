"""A leader whose renewal hangs: it is told to stop, and the process left, when trust has run out, not later."""

from __future__ import annotations

import threading

from ferroscope.contracts.errors import StoreUnavailableError
from ferroscope.core.model import Lease, LeaseClaim, LeaseProfile
from ferroscope.leadership import Leadership, LeaseRenewer
from tests.support.manual_clock import ManualClock, ManualStop
from tests.support.processes import PATIENCE
from tests.support.rows import each

PROFILE = LeaseProfile(ttl=6.0, renew=1.0, poll=1.0, margin=2.0)


class Hanging:
    """A store on a connection whose other end is gone: it says nothing, then that it is gone."""

    def __init__(self) -> None:
        self.asked, self.released = threading.Event(), threading.Event()

    def write(self, work: object, *, durable: bool = True) -> Lease:
        self.asked.set()
        self.released.wait(PATIENCE)
        raise StoreUnavailableError("the connection is gone")

    read = write


@each("stops", [True, False])
def test_the_process_is_left_in_time_although_the_renewal_hangs(stops: bool) -> None:
    clock, store = ManualClock(), Hanging()
    asked_at, told, left = clock.now, [], []
    lease = Lease(name="backup", holder="me", epoch=1, duration=1, acquired_at=0, renewed_at=0, expires_at=0)
    claim = LeaseClaim(name="backup", epoch=1, token="t", lease=lease)
    leadership = Leadership(claim, asked_at=asked_at, profile=PROFILE, clock=clock, store=store)  # type: ignore[arg-type]

    class Reset(threading.Event):
        def set(self) -> None:
            told.append(clock.now)
            if stops:
                leadership._has_resigned = leadership._over = (
                    True  # what resign() sets, without waiting for the release
                )
            super().set()

    reset = Reset()
    renewer = LeaseRenewer(PROFILE, clock, leave=lambda: left.append(clock.now), new_flag=lambda: ManualStop(clock))
    renewing = threading.Thread(target=renewer.run, args=(leadership, reset))
    renewing.start()
    assert store.asked.wait(PATIENCE)
    renewer.watch(leadership, reset)
    assert renewing.is_alive(), "the renewal hangs still"
    assert told == [asked_at + PROFILE.ttl - PROFILE.margin]
    assert left == ([] if stops else [asked_at + PROFILE.ttl - PROFILE.margin / 2])
    store.released.set()
    renewing.join(PATIENCE)
