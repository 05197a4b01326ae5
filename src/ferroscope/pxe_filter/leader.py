"""The filter's process: campaigns for its network's lease and, while it leads, keeps this host's filter open.

Closed is the resting state: before the election, after it, on every error, and by the kernel's own
time-out when this process does not live to close it. A successor waits for ``guard`` seconds after
it has won, so that the filter before has closed by then even on a host whose clock runs slower.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

import msgspec
import structlog

from ferroscope.config.options import PxeFilterSettings
from ferroscope.contracts.errors import LeaseLostError, StoreUnavailableError
from ferroscope.contracts.metrics import SILENT, Meter
from ferroscope.contracts.pxe_filter import FilterBackend, PxeFilterError
from ferroscope.contracts.queue import MAC_CHANNELS, Bus, Channel, Clock, StopFlag
from ferroscope.core.boot_macs import FilterRecord, SetChange
from ferroscope.core.model import LeaseProfile
from ferroscope.leadership import Election, Leadership
from ferroscope.pxe_filter.sync import MacSync

# Keeps a leader's filter open from a thread of its own, for as long as its lease can be trusted.
#
# Reading the store may take its time, and that must not close the filter; so whoever follows the
# changes only shows signs of life, without which the lease, and then the filter, comes to its end.

_log = structlog.get_logger(__name__)

# A closed filter is tried so much more often than an open one is refreshed. A mechanism that counts whole seconds can
# open with a lease that was renewed just now only, and renewals have the same period: it might never see one.
_SOONER: Final = 10


class FilterLease:
    """One leadership's open filter; ``error`` says why it is not open although it might be."""

    def __init__(
        self,
        backend: FilterBackend,
        leadership: Leadership,
        *,
        clock: Clock,
        period: float,
        new_flag: Callable[[], StopFlag] = threading.Event,
        new_thread: Callable[..., threading.Thread] = threading.Thread,
    ) -> None:
        self._backend = backend
        self._leadership = leadership
        self._clock = clock
        self._period = period
        self._new_flag = new_flag
        self._stop = new_flag()
        self._doubtful_until = 0.0  # a hold of which we do not know what became of it ends before that
        self._thread = new_thread(target=self._run, name="opening", daemon=True)
        self.open_until = 0.0
        self.error = ""

    @property
    def open(self) -> bool:
        """Whether the filter is open, as far as this process knows."""
        return self._clock.monotonic() < self.open_until

    def start(self) -> None:
        """Open it, and keep it open."""
        self._hold()
        self._thread.start()

    def end(self) -> bool:
        """Close it; whether it is closed now, by ourselves or because its time is over. Never raises."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()
        if self._close():
            return True
        if not self._backend.self_closing:
            return False
        until = max(self.open_until, self._doubtful_until)
        self._new_flag().wait(max(0.0, until - self._clock.monotonic()))
        return True

    def _run(self) -> None:
        # To the end, though the lease may not be trusted for a moment: a renewal that comes late makes it good again.
        while not self._stop.wait(self._pause()):
            self._hold()

    def _pause(self) -> float:
        """Return when to refresh: while half of its time is left, for a refresh takes its time, too.

        What a refresh adds is what the lease allows for beyond the hold before; so one that came late would be
        followed by one that comes early and adds little, and that by one that comes too late.
        """
        left = self.open_until - self._clock.monotonic()
        return max(self._period / _SOONER, min(self._period, left / 2))

    def _hold(self) -> None:
        if not self._leadership.is_valid():
            return
        try:
            self.open_until = self._backend.hold(self._leadership.trusted_until)
            self.error = ""
        except Exception as exc:  # noqa: BLE001  # whatever it is: nobody else would hear of it
            self._doubtful_until = self._leadership.trusted_until
            self._say(_log.warning, "the filter could not be held open; it closes", exc)

    def _close(self) -> bool:
        try:
            self._backend.close()
        except Exception as exc:  # noqa: BLE001  # the time-out may still close it, so its end has to be waited for
            self._say(_log.error, "the filter could not be closed", exc)
            return False
        self.open_until = 0.0
        return True

    def _say(self, log: Callable[..., object], what: str, exc: Exception) -> None:
        """Log an error that is new, with a traceback where the backend does not know it."""
        before, self.error = self.error, str(exc) or type(exc).__name__
        if self.error != before:
            unknown = None if isinstance(exc, PxeFilterError) else exc
            log(what, backend=self._backend.name, error=self.error, exc_info=unknown)


class PxeFilter:
    """One thread calls ``run``; ``status`` always says what the filter does.

    ``keep`` watches over a leadership from threads of its own (see ``leadership``). ``look_every``
    is after how many seconds it looks for changes of which nobody told it.
    """

    def __init__(
        self,
        election: Election,
        mac_sync: MacSync,
        backend: FilterBackend,
        *,
        settings: PxeFilterSettings,
        look_every: float,
        host: str,
        keep: Callable[[Leadership, StopFlag], None],
        profile: LeaseProfile,
        bus: Bus,
        clock: Clock,
        stop: StopFlag,
        meter: Meter = SILENT,
        new_flag: Callable[[], StopFlag] = threading.Event,
        new_thread: Callable[..., threading.Thread] = threading.Thread,
    ) -> None:
        self._election = election
        self._mac_sync = mac_sync
        self._backend = backend
        self._settings = settings
        self._look_every = look_every
        self._host = host
        self._keep = keep
        self._profile = profile
        self._bus = bus
        self._clock = clock
        self._stop = stop
        self._meter = meter
        self._new_flag = new_flag
        self._new_thread = new_thread
        # Nobody may free what this process holds while its filter could not be closed, and does not close by itself.
        self.left_open = False
        self._told = FilterRecord()
        self._checked_at = 0.0
        # A refresh has to come well before the hold before it ends.
        self.period = min(1.0, profile.ttl / 6)
        self.status = "is closed and has not campaigned for its network yet"

    def run(self) -> None:
        """Follow or lead until the process stops; closed at the end, whatever happens."""
        self._measure(is_open=False)
        try:
            while not self._stop.is_set():
                self._turn()
        finally:
            self._stop.set()
            self.fail_closed()

    def _turn(self) -> None:
        try:
            self.campaign()
        except StoreUnavailableError as exc:
            self._rest(f"is closed and waits for the database: {exc}")
        except PxeFilterError as exc:
            self._rest(f"is closed: {exc}")
        except LeaseLostError as exc:
            self.status = f"is closed; it was deposed: {exc}"
        except Exception:
            self._stop.set()
            _log.exception("the filter failed; closing it and stopping the process")
            raise

    def _rest(self, status: str) -> None:
        news = status != self.status
        self.status = status
        self.fail_closed()
        if news:
            _log.warning("the filter is closed", why=status)
        self._stop.wait(self._profile.poll)

    def fail_closed(self) -> None:
        """Close the filter, come what may; if even that fails the kernel's time-out does it. Never raises."""
        try:
            self._backend.close()
            self.left_open = False
        except PxeFilterError as exc:
            _log.error("the filter could not be closed; what is open ends with its time-out", error=str(exc))

    def campaign(self) -> None:
        """Try to win the network once and serve it; otherwise wait, closed, for the next election."""
        seen = self._bus.wait(Channel.LEASES, 0, 0.0)
        self._stay_closed()
        leadership = self._election.campaign()
        self.status = f"is closed; {self._election.status}"
        if leadership is None:
            self._election.wait(self._bus, seen, self._stop, every=self.period, meanwhile=self._stay_closed)
            return
        self.lead(leadership)

    def _stay_closed(self) -> None:
        """Once a second: somebody may have flushed the host's firewall, and us with it."""
        now = self._clock.monotonic()
        if now - self._checked_at >= self.period:
            self._backend.close()
            self._checked_at = now

    def lead(self, leadership: Leadership) -> None:
        """Load the sets while the guard passes, open, follow the changes; close, then hand the lease back."""
        reset = self._new_flag()
        self._keep(leadership, reset)
        filter_lease = FilterLease(
            self._backend, leadership, clock=self._clock, period=self.period,
            new_flag=self._new_flag, new_thread=self._new_thread,
        )  # fmt: skip
        won_at = self._clock.monotonic()
        self._told = FilterRecord()
        try:
            self._load(leadership)
            leadership.keep_alive()
            self._wait_until(max(won_at, leadership.alone_from) + self._settings.guard, leadership, reset)
            if self._stop.is_set():
                return
            filter_lease.start()
            _log.info("filter open", network=self._settings.network, epoch=leadership.lease.epoch)
            self._follow(leadership, filter_lease, reset)
        finally:
            self.left_open = not filter_lease.end()
            self._measure(is_open=self.left_open)
            if not self.left_open:
                leadership.resign()
            # Else the lease must not pass on before it has closed: it ends with its lease, and so does this process.

    def _wait_until(self, opens_at: float, leadership: Leadership, reset: StopFlag) -> None:
        """Wait, showing signs of life, while an earlier leader's filter may be open, or until this leadership ends."""
        while (left := opens_at - self._clock.monotonic()) > 0 and not self._stop.is_set():
            if reset.wait(min(left, self.period)):
                return
            leadership.keep_alive()

    def _load(self, leadership: Leadership) -> None:
        self._mac_sync.whole(leadership.keep_alive)
        self._backend.apply(self._mac_sync.sets.whole(), fresh=True, progress=leadership.keep_alive)

    def _follow(self, leadership: Leadership, filter_lease: FilterLease, reset: StopFlag) -> None:
        compare_at = self._clock.monotonic() + self._settings.reconcile_period
        read_at = self._clock.monotonic()
        while leadership.is_valid() and not self._stop.is_set() and not reset.is_set():
            leadership.keep_alive()
            seen = self._bus.wait_any(MAC_CHANNELS, 0, 0.0)
            now = self._clock.monotonic()
            try:
                if now >= compare_at:
                    self._apply(self._mac_sync.whole(leadership.keep_alive), leadership.keep_alive)
                    compare_at = now + self._settings.reconcile_period
                else:
                    for change in self._mac_sync.changes(leadership.keep_alive):
                        self._apply(change, leadership.keep_alive)
                read_at = now
            except StoreUnavailableError:
                if now - read_at > self._profile.ttl:
                    raise
            self._tell(leadership, filter_lease)
            if filter_lease.error:  # whoever can open it shall have the lease
                raise PxeFilterError(filter_lease.error)
            self._wait(seen, leadership, filter_lease, reset)
        self.status = "is closed; its leadership has ended"

    def _apply(self, change: SetChange, progress: Callable[[], object]) -> None:
        if not change:
            return
        began = self._clock.monotonic()
        try:
            self._backend.apply(change, fresh=False, progress=progress)
        except PxeFilterError as exc:
            _log.warning("a change could not be applied; loading everything", error=str(exc))
            self._backend.apply(self._mac_sync.sets.whole(), fresh=True, progress=progress)
        self._meter.pxe_filter_applied(self._clock.monotonic() - began)

    def _tell(self, leadership: Leadership, filter_lease: FilterLease) -> None:
        """Publish in the lease what is in force here, where that has changed."""
        sets, window = self._mac_sync.sets, self._mac_sync.window
        record = FilterRecord(
            host=self._host,
            open=filter_lease.open,
            applied=window.high,
            missing=window.missing,
            allowed=len(sets.allowed),
            denied=len(sets.denied),
            backends=tuple(self._settings.backends),
            unknown=self._settings.unknown_hosts == "allow",
        )
        state = "is open" if filter_lease.open else f"is closed: {filter_lease.error or 'its lease is about to end'}"
        self.status = (
            f"{state}; {self._election.status}; {record.allowed} MACs allowed, {record.denied} denied, "
            f"changes up to {record.applied} applied"
        )
        self._measure(is_open=record.open)
        if record != self._told and leadership.renew(data=msgspec.json.encode(record).decode()):
            self._told = record

    def _measure(self, *, is_open: bool) -> None:
        sets = self._mac_sync.sets
        self._meter.pxe_filter(
            self._settings.network, is_open=is_open, allowed=len(sets.allowed), denied=len(sets.denied)
        )

    def _wait(self, seen: int, leadership: Leadership, filter_lease: FilterLease, reset: StopFlag) -> None:
        """Wait for a change, or until it is time to look by oneself, showing signs of life."""
        until = self._clock.monotonic() + self._look_every
        while (left := until - self._clock.monotonic()) > 0 and not reset.is_set() and not self._stop.is_set():
            leadership.keep_alive()
            if self._bus.wait_any(MAC_CHANNELS, seen, min(left, self.period)) > seen:
                return
            if filter_lease.error or filter_lease.open != self._told.open or not leadership.is_valid():
                return
