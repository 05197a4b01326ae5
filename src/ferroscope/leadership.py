"""Leadership under a lease: take it, keep it while the work makes progress, stop before it ends.

Whoever leads carries a ``Leadership``: every write begins with its ``fence``, every wait asks whether
it ``is_valid``. Renewal runs beside the work, on a connection of its own, but only while the work
gives signs of life, so a hung leader loses the lease like a dead one. Nothing here starts a
thread: ``runtime`` and the roles do.
"""

from __future__ import annotations

import math
import os
import random
import threading
from collections.abc import Callable
from typing import Final

import structlog

from ferroscope.contracts.errors import LeaseHeldError, LeaseLostError, StoreUnavailableError
from ferroscope.contracts.metrics import SILENT, Meter
from ferroscope.contracts.queue import Bus, Channel, Clock, StopFlag
from ferroscope.contracts.store import Store, Transaction
from ferroscope.core.model import Lease, LeaseProfile, trusted_until

_log = structlog.get_logger(__name__)


class Leadership:
    """One holder's time as the leader, from a won election to its end."""

    def __init__(
        self,
        lease: Lease,
        *,
        asked_at: float,
        profile: LeaseProfile,
        clock: Clock,
        store: Store,
        alone_from: float = -math.inf,
    ) -> None:
        self.lease = lease
        # From when on, by the monotonic clock, no earlier holder can trust its lease any more.
        self.alone_from = alone_from
        self._profile = profile
        self._clock = clock
        self._store = store
        self._trusted_until = trusted_until(asked_at, profile)
        self._progressed_at = asked_at
        self._over = False
        self._resigned = False

    @property
    def trusted_until(self) -> float:
        """Until when, by the monotonic clock, the holder may act without another renewal."""
        return self._trusted_until

    @property
    def over(self) -> bool:
        """Whether the leadership has ended for good: lost, or handed back."""
        return self._over

    @property
    def resigned(self) -> bool:
        """Whether the work under this leadership has ended."""
        return self._resigned

    def is_valid(self) -> bool:
        """Whether the holder may still act as the leader."""
        return not self._over and self._clock.monotonic() < self._trusted_until

    def keep_alive(self) -> None:
        """Say that the work goes on; without it the lease is not renewed."""
        self._progressed_at = self._clock.monotonic()

    def fence(self, tx: Transaction) -> None:
        """Begin a leader's transaction with this; ``LeaseLostError`` where the leadership is over.

        It is a sign of life, too: a step that writes need not say any more.
        """
        try:
            tx.leases.hold(self.lease)
        except LeaseLostError:
            self._over = True
            raise
        self.keep_alive()

    def renew(self, data: str | None = None) -> bool:
        """Extend the lease by its time to live; False where that was not done, for whatever reason.

        ``data`` is what the holder wants to be known from now on.

        An unanswered renewal is not an end: trust goes on until it runs out by itself.
        """
        asked_at = self._clock.monotonic()
        if self._over or asked_at - self._progressed_at > self._profile.ttl:
            return False
        try:
            self.lease = self._store.write(lambda tx: tx.leases.renew(self.lease, self._profile.ttl, data=data))
        except LeaseLostError as exc:
            self._over = True
            _log.warning("leadership lost", lease=self.lease.name, epoch=self.lease.epoch, why=str(exc))
            return False
        except StoreUnavailableError as exc:
            _log.warning("renewal not answered", lease=self.lease.name, why=str(exc))
            return False
        self._trusted_until = trusted_until(asked_at, self._profile)
        return True

    def resign(self) -> None:
        """The work has ended: hand the lease back, so that a successor starts at once; never raises."""
        self._resigned = True
        if self._over:
            return
        self._over = True
        try:
            self._store.write(lambda tx: tx.leases.release(self.lease))
        except (LeaseLostError, StoreUnavailableError) as exc:
            _log.warning("lease not released; it will expire", lease=self.lease.name, why=str(exc))


class Election:
    """Campaigns for one lease on behalf of one member."""

    def __init__(self, name: str, holder: str, *, store: Store, clock: Clock, profile: LeaseProfile) -> None:
        self.name = name
        self._holder = holder
        self._store = store
        self._clock = clock
        self._profile = profile
        self.status = f"has not campaigned for {name} yet"
        self._remaining = 0.0  # seconds that the present holder's lease had left when it was last asked for
        # How far the database's clock was ahead of ours, at most, when somebody else's lease was last seen.
        self._ahead: float | None = None

    def campaign(self) -> Leadership | None:
        """Try once to win; None where somebody else holds the lease. ``StoreUnavailableError``."""
        asked_at = self._clock.monotonic()
        try:
            lease = self._store.write(lambda tx: tx.leases.acquire(self.name, self._holder, self._profile.ttl))
        except LeaseHeldError as exc:
            self.status = f"follows: {exc}"
            self._remaining = exc.lease.remaining
            if exc.lease.remaining:
                self._ahead = exc.lease.expires_at - exc.lease.remaining - asked_at
            return None
        except LeaseLostError:
            self.status = f"lost the election for {self.name} by a moment"
            self._remaining = 0.0
            return None
        self.status = f"leads {self.name} in epoch {lease.epoch}"
        _log.info("leads", lease=self.name, epoch=lease.epoch)
        return Leadership(
            lease,
            asked_at=asked_at,
            profile=self._profile,
            clock=self._clock,
            store=self._store,
            alone_from=self._alone_from(lease),
        )

    def _alone_from(self, lease: Lease) -> float:
        """Return from when on nobody else trusts this lease: at once, unless the database's clock was set ahead.

        Then the lease may have expired although its holder has just renewed it, and trusts it by a clock of its own.
        """
        now = self._clock.monotonic()
        if self._ahead is None or lease.acquired_at - now - self._ahead < self._profile.margin / 2:
            return now
        _log.warning("the database's clock was set ahead; an earlier leader may not know", lease=self.name)
        return now + self._profile.ttl

    def wait(
        self,
        bus: Bus,
        seen: int,
        stop: StopFlag,
        *,
        every: float = math.inf,
        meanwhile: Callable[[], object] = lambda: None,
    ) -> None:
        """Wait, having lost, until another campaign may help. Whoever sets ``stop`` then wakes the channel ``leases``.

        ``seen`` is that channel's position from before ``campaign``; ``meanwhile`` is called ``every`` so many seconds.
        """
        until = self._clock.monotonic() + self._patience(hears=bus.hears)
        while not stop.is_set() and (left := until - self._clock.monotonic()) > 0:
            if bus.wait(Channel.LEASES, seen, min(left, every)) > seen:
                return
            meanwhile()

    def _patience(self, *, hears: bool) -> float:
        """Return for how many seconds the lease is somebody else's for sure, or as far as one who hears nothing knows.

        Who hears of releases need not look before the lease may have run out. What seems to live longer than any
        renewed lease was written when the database's clock was ahead.
        """
        poll = self._profile.poll * random.uniform(0.75, 1.25)  # noqa: S311  # jitter, no secret
        if not self._remaining:
            return poll
        left = self._remaining + self._profile.poll * random.uniform(0.01, 0.1)  # noqa: S311
        return min(left, self._profile.ttl + poll if hears else poll)


# Keeps a leader's lease alive from a thread of its own, and says what follows where that is lost.
#
# When a leader has not stopped by the time to which it may trust its lease, nothing it does may count any more. What
# only writes to the database is left to the fence, which refuses it: no process ends because a task of it hangs.
# What has effects elsewhere knows no fence, so a pxe-filter exits at once, with its own exit code, and is started
# again. It never drains on lost leadership.

EXIT_LOST_LEADERSHIP: Final = 75


def leave_process() -> None:
    """End it at once: for whoever has effects that no fence refuses."""
    os._exit(EXIT_LOST_LEADERSHIP)


class LeaseRenewer:
    """Callable as ``keep(leadership, reset)``: returns at once, the threads end with the leadership.

    ``leave`` is called where the work has not stopped in time, by each of them.
    """

    def __init__(
        self,
        profile: LeaseProfile,
        clock: Clock,
        *,
        leave: Callable[[], None] = leave_process,
        new_flag: Callable[[], StopFlag] = threading.Event,
        meter: Meter = SILENT,
    ) -> None:
        self._profile = profile
        self._clock = clock
        self._leave = leave
        self._new_flag = new_flag
        self._meter = meter

    def __call__(self, leadership: Leadership, reset: StopFlag, leave: Callable[[], None] | None = None) -> None:
        # Two threads: a renewal that hangs on a dead connection must not keep the watch from its duty.
        for duty, target in (("lease", self.run), ("watch", self.watch)):
            name = f"{duty} {leadership.lease.name}"
            threading.Thread(target=target, args=(leadership, reset, leave), name=name, daemon=True).start()

    def run(self, leadership: Leadership, reset: StopFlag, leave: Callable[[], None] | None = None) -> None:
        """Renew until the leadership is over; then tell the work, and make sure that it has ended."""
        pause = self._new_flag()
        while not leadership.over and leadership.is_valid():
            left = leadership.trusted_until - self._clock.monotonic()
            pause.wait(max(0.0, min(self._profile.renew, left)))
            if not leadership.renew() and not leadership.resigned:
                self._meter.renewal_failed(leadership.lease.name)
        self._end(leadership, reset, leave or self._leave)

    def watch(self, leadership: Leadership, reset: StopFlag, leave: Callable[[], None] | None = None) -> None:
        """Wait until trust has run out, whatever renewal does; then the same."""
        pause = self._new_flag()
        while not leadership.over and (left := leadership.trusted_until - self._clock.monotonic()) > 0:
            pause.wait(left)
        self._end(leadership, reset, leave or self._leave)

    def _end(self, leadership: Leadership, reset: StopFlag, leave: Callable[[], None]) -> None:
        pause, told = self._new_flag(), reset.is_set()
        reset.set()
        if leadership.resigned:
            return
        pause.wait(max(0.0, leadership.trusted_until - self._clock.monotonic()))
        pause.wait(self._profile.margin / 2)
        if not leadership.resigned:
            try:
                if not told:  # there are two of us
                    _log.error("leadership lost and the work has not stopped", lease=leadership.lease.name)
            finally:
                leave()
