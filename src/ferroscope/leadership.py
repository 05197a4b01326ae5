"""Leadership under a lease: acquire it, renew it while the work makes progress, stop before it expires.

A leader holds a ``Leadership``: every write begins with its ``fence``, and every wait checks ``is_valid``. The lease is
renewed on a separate connection, but only while the work calls ``keep_alive``, so a leader that hangs loses the lease
just as a dead one does. ``LeaseRenewer`` starts the threads that renew a lease; nothing else here starts one.
"""

from __future__ import annotations

import math
import os
import random
import threading
from collections.abc import Callable
from typing import Final

import structlog

from ferroscope.contracts.errors import LeaseHeldError, LeaseLostError, StoreError
from ferroscope.contracts.store import Bus, Channel, Clock, StopFlag
from ferroscope.contracts.telemetry import SILENT, Meter
from ferroscope.core.model import Lease, LeaseClaim, LeaseProfile, trusted_until
from ferroscope.db import Store, Transaction

_log = structlog.get_logger(__name__)


class Leadership:
    """One holder's term as leader, from a successful campaign to its end."""

    def __init__(
        self,
        claim: LeaseClaim,
        *,
        asked_at: float,
        profile: LeaseProfile,
        clock: Clock,
        store: Store,
        alone_from: float = -math.inf,
    ) -> None:
        self.claim = claim
        # The monotonic time from which no earlier holder can still trust its lease.
        self.alone_from = alone_from
        self._profile = profile
        self._clock = clock
        self._store = store
        self._trusted_until = trusted_until(asked_at, profile)
        self._progressed_at = asked_at
        self._over = False
        self._has_resigned = False
        self._renewal: StopFlag | None = None

    @property
    def trusted_until(self) -> float:
        """The monotonic time until which the holder may act without another renewal."""
        return self._trusted_until

    @property
    def over(self) -> bool:
        """Whether the leadership has ended for good: lost or resigned."""
        return self._over

    @property
    def has_resigned(self) -> bool:
        """Whether the work under this leadership has finished."""
        return self._has_resigned

    def is_valid(self) -> bool:
        """Whether the holder may still act as leader."""
        return not self._over and self._clock.monotonic() < self._trusted_until

    def seconds_left(self) -> float:
        """Return for how many seconds the holder may act without another renewal; 0 or less if it may not."""
        return -1.0 if self._over else self._trusted_until - self._clock.monotonic()

    def keep_alive(self) -> None:
        """Report progress; without it the lease is not renewed."""
        self._progressed_at = self._clock.monotonic()

    def fence(self, tx: Transaction) -> None:
        """Call at the start of each of the leader's transactions; ``LeaseLostError`` if the leadership has ended.

        It also reports progress, so a step that writes need not call ``keep_alive``.
        """
        try:
            tx.leases.hold(self.claim)
        except LeaseLostError:
            self._over = True
            raise
        self.keep_alive()

    def renew(self, data: str | None = None) -> bool:
        """Extend the lease by its time to live; return False if that failed for any reason.

        ``data``: what the holder publishes from now on.

        If the database does not answer, the leadership goes on: it ends when the trusted time is over.
        """
        # Trust is measured from before the request: the database may have renewed the lease at any moment since then.
        asked_at = self._clock.monotonic()
        if self._over or asked_at - self._progressed_at > self._profile.ttl:
            return False  # the work hangs: let the lease expire
        try:
            self.claim = self._store.write(lambda tx: tx.leases.renew(self.claim, self._profile.ttl, data=data))
        except LeaseLostError as exc:
            self._over = True
            _log.warning("leadership lost", lease=self.claim.name, epoch=self.claim.epoch, why=str(exc))
            return False
        except StoreError as exc:
            _log.warning("renewal failed", lease=self.claim.name, why=str(exc))
            return False
        self._trusted_until = trusted_until(asked_at, self._profile)
        return True

    def confirm(self) -> None:
        """Have the lease renewed now: if it was lost, the leader learns it at once."""
        if self._renewal is not None:
            self._renewal.set()

    def confirms_by(self, pause: StopFlag) -> None:
        """``confirm`` sets this flag, which ends a pause between renewals."""
        self._renewal = pause

    def resign(self) -> None:
        """Release the lease after the work has finished, so that a successor can start at once. Never raises."""
        self._has_resigned = True
        if self._over:
            return
        self._over = True
        try:
            self._store.write(lambda tx: tx.leases.release(self.claim))
        except (LeaseLostError, StoreError) as exc:
            _log.warning("lease not released; it will expire", lease=self.claim.name, why=str(exc))


class StoppingError(Exception):
    """The process is stopping; ends a long step."""


class StepLeadership:
    """The leadership under which a step of a periodic task runs; for the step it also ends when the process stops.

    A step must call ``fence`` or ``keep_alive`` at least once per time to live of the lease, and must end at once if
    that raises.
    """

    def __init__(self, leadership: Leadership, stop: StopFlag) -> None:
        self._leadership = leadership
        self._stop = stop
        self.fence = leadership.fence
        self.seconds_left = leadership.seconds_left
        self.epoch = leadership.claim.epoch

    def keep_alive(self) -> None:
        """Report progress; call it for each page, batch and remote call. ``LeaseLostError``, ``StoppingError``."""
        if self._stop.is_set():
            raise StoppingError
        if not self._leadership.is_valid():
            claim = self._leadership.claim
            raise LeaseLostError(f"epoch {claim.epoch} of {claim.name} was not renewed in time")
        self._leadership.keep_alive()


# A holder that is thought to be dead must also have missed a renewal, or it is not: this many renewal intervals.
_SILENT_RENEWALS: Final = 1.5


class Election:
    """Campaigns for one lease on behalf of one member.

    ``is_lost`` says whether a coordination service thinks that this member is dead. Such a holder is replaced before
    its lease expires. Never pass it where the holder acts outside the database: no fence stops that.

    ``failed_over_at`` returns the monotonic time of the database's last fail-over that this process noticed.
    """

    def __init__(
        self,
        name: str,
        holder: str,
        *,
        store: Store,
        clock: Clock,
        profile: LeaseProfile,
        is_lost: Callable[[str], bool] = lambda _member: False,
        failed_over_at: Callable[[], float] = lambda: -math.inf,
    ) -> None:
        self.name = name
        self._is_lost = is_lost
        self._silent = _SILENT_RENEWALS * profile.renew
        self._holder = holder
        self._store = store
        self._clock = clock
        self._profile = profile
        self._failed_over_at = failed_over_at
        self.status = f"has not campaigned for {name} yet"
        self._remaining = 0.0  # seconds left of the current holder's lease when we last campaigned
        # Upper bound of (database clock - our monotonic clock), from when another holder's lease was last seen.
        self._ahead: float | None = None

    def campaign(self) -> Leadership | None:
        """Try once to acquire the lease; None if another member holds it. ``StoreError``."""
        asked_at = self._clock.monotonic()
        lost: Lease | None = None
        try:
            claim = self._store.write(lambda tx: tx.leases.acquire(self.name, self._holder, self._profile.ttl))
        except LeaseHeldError as exc:
            self._follow(exc, asked_at)
            lost = exc.lease
            asked_at = self._clock.monotonic()
            successor = self._take_over(lost)
            if successor is None:
                return None
            claim = successor
        except LeaseLostError:
            self._outrun()
            return None
        self.status = f"leads {self.name} in epoch {claim.epoch}"
        _log.info("leadership acquired", lease=self.name, epoch=claim.epoch)
        return Leadership(
            claim,
            asked_at=asked_at,
            profile=self._profile,
            clock=self._clock,
            store=self._store,
            alone_from=self._alone_from(claim.lease) if lost is None else self._clock.monotonic() + lost.remaining,
        )

    def _follow(self, held: LeaseHeldError, asked_at: float) -> None:
        self.status = f"follows: {held}"
        self._remaining = held.lease.remaining
        if held.lease.remaining:
            self._ahead = held.lease.expires_at - held.lease.remaining - asked_at
        if self._has_lost(held.lease):  # until it counts as silent
            age = held.lease.duration - held.lease.remaining
            self._remaining = min(self._remaining, max(0.0, self._silent - age))

    def _outrun(self) -> None:
        self.status = f"another member has just won {self.name}"
        self._remaining = 0.0

    def _has_lost(self, lease: Lease) -> bool:
        return lease.holder is not None and self._is_lost(lease.holder)

    def _take_over(self, lost: Lease) -> LeaseClaim | None:
        """Return a claim of the lease if its holder is thought to be dead and has missed a renewal; otherwise None."""
        if not self._has_lost(lost) or lost.duration - lost.remaining < self._silent:
            return None
        try:
            claim = self._store.write(
                lambda tx: tx.leases.take_over(lost, self._holder, self._profile.ttl, silent=self._silent)
            )
        except (LeaseHeldError, LeaseLostError):
            self._outrun()
            return None
        early = f"{lost.remaining:.1f} s before it would have expired"
        _log.info("lease taken over from a lost member", lease=self.name, holder=lost.holder, early=early)
        return claim

    def _alone_from(self, lease: Lease) -> float:
        """Return the monotonic time from which no other holder can trust this lease.

        That is now, unless the database's clock was set forward: then the lease may have expired in the database just
        after its holder renewed it, and the holder still trusts it by its own clock, for at most a time to live. The
        same if the database has failed over to a standby, which may lack the last renewal.
        """
        now = self._clock.monotonic()
        if now - (failed_over_at := self._failed_over_at()) < self._profile.ttl:
            _log.warning("the database has failed over; an earlier leader may still be active", lease=self.name)
            return failed_over_at + self._profile.ttl
        if self._ahead is None or lease.acquired_at - now - self._ahead < self._profile.margin / 2:
            return now
        _log.warning("the database's clock was set forward; an earlier leader may still be active", lease=self.name)
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
        """Wait, after losing, until another campaign may succeed. To stop it, set ``stop``, then publish to ``leases``.

        ``seen`` is that channel's position before ``campaign``; ``meanwhile`` is called every ``every`` seconds.
        """
        until = self._clock.monotonic() + self._patience(hears=bus.hears)
        while not stop.is_set() and (left := until - self._clock.monotonic()) > 0:
            if bus.wait(Channel.LEASES, seen, min(left, every)) > seen:
                return
            meanwhile()

    def _patience(self, *, hears: bool) -> float:
        """Return for how many seconds the lease is certainly, or as far as we can know, held by another member.

        If the bus announces releases, there is no need to poll before the lease can expire. A lease with more time left
        than a renewal gives was written while the database's clock was ahead, so its remaining time says nothing.
        """
        poll = self._profile.poll * random.uniform(0.75, 1.25)  # noqa: S311  # jitter, no secret
        if not self._remaining:
            return poll
        left = self._remaining + self._profile.poll * random.uniform(0.01, 0.1)  # noqa: S311
        return min(left, self._profile.ttl + poll if hears else poll)


# Renews a leader's lease from separate threads, and enforces the end of a lost leadership.
#
# If a leader has not stopped when its trusted time ends, nothing it does may take effect any more. Database writes are
# rejected by the fence, so a hanging periodic task does not end its process. Effects outside the database cannot be
# fenced, so a pxe-filter exits at once, with its own exit code, and is restarted. It never drains after losing
# leadership.

EXIT_LOST_LEADERSHIP: Final = 75


def leave_process() -> None:
    """Exit at once; for processes with effects that no fence can reject."""
    os._exit(EXIT_LOST_LEADERSHIP)


class LeaseRenewer:
    """Called as ``keep(leadership, reset)``: returns at once; its threads end with the leadership.

    ``reset`` is set when the leadership ends. Then, if the work has not stopped in time, each thread calls ``leave``.
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
        # Two threads: a renewal that hangs on a dead connection must not keep the watch from ending the leadership in
        # time.
        for duty, target in (("lease", self.run), ("watch", self.watch)):
            name = f"{duty} {leadership.claim.name}"
            threading.Thread(target=target, args=(leadership, reset, leave), name=name, daemon=True).start()

    def run(self, leadership: Leadership, reset: StopFlag, leave: Callable[[], None] | None = None) -> None:
        """Renew until the leadership ends; then set ``reset`` and make sure that the work stops."""
        leadership.confirms_by(pause := self._new_flag())
        while not leadership.over and leadership.is_valid():
            left = leadership.trusted_until - self._clock.monotonic()
            pause.wait(max(0.0, min(self._profile.renew, left)))
            leadership.confirms_by(pause := self._new_flag())  # now: this renewal may be older than the next reason
            if not leadership.renew() and not leadership.has_resigned:
                self._meter.record_failed_renewal(leadership.claim.name)
        self._end(leadership, reset, leave or self._leave)

    def watch(self, leadership: Leadership, reset: StopFlag, leave: Callable[[], None] | None = None) -> None:
        """Wait until the trusted time is over, even if a renewal hangs; then do the same."""
        pause = self._new_flag()
        while not leadership.over and (left := leadership.trusted_until - self._clock.monotonic()) > 0:
            pause.wait(left)
        self._end(leadership, reset, leave or self._leave)

    def _end(self, leadership: Leadership, reset: StopFlag, leave: Callable[[], None]) -> None:
        pause, logged = self._new_flag(), reset.is_set()
        reset.set()
        if leadership.has_resigned:
            return
        # Half of the margin is left for the work to notice ``reset``; the other half covers a slow clock of this host.
        pause.wait(max(0.0, leadership.trusted_until - self._clock.monotonic()))
        pause.wait(self._profile.margin / 2)
        if not leadership.has_resigned:
            try:
                if not logged:  # the other thread does
                    _log.error("leadership lost, but the work has not stopped", lease=leadership.claim.name)
            finally:
                leave()
