"""The pxe-filter role: campaigns for its network's lease and, while it leads, keeps this host's filter open.

The filter is closed by default: before and after leading, on every error, and by the kernel's time-out if this process
dies before it can close it. A new leader waits for ``GUARD_SECONDS`` before it opens, so that the previous leader's
filter has closed by then, even on a host whose clock runs slower.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

import msgspec
import structlog

from ferroscope.config.options import PxeFilterSettings
from ferroscope.contracts.errors import LeaseLostError, StoreError
from ferroscope.contracts.store import MAC_CHANNELS, Bus, Channel, Clock, StopFlag
from ferroscope.contracts.telemetry import SILENT, Meter
from ferroscope.contrib.boot.pxe_filter import FilterBackend, PxeFilterError
from ferroscope.contrib.boot.pxe_filter.dhcp_leases import DhcpLeases
from ferroscope.contrib.boot.pxe_filter.sync import MacSync
from ferroscope.core.boot_macs import FilterRecord, SetChange
from ferroscope.core.model import LeaseProfile
from ferroscope.leadership import Election, Leadership

_log = structlog.get_logger(__name__)

# A closed filter is retried this much more often than an open one is refreshed. A backend that counts whole seconds can
# open only right after a renewal. Renewals have the same period, so without this it might miss every one of them.
_CLOSED_RETRY_FACTOR: Final = 10
# The sets are read whole this often, in case a change was missed; reading 10,000 machines takes a fraction of a second.
RECONCILE_SECONDS: Final = 300.0
# From winning the lease to opening the filter: that of the leader before closes a margin before its lease expires, and
# this is for what its clock is slower than the margin allows for.
GUARD_SECONDS: Final = 0.5


class FilterLease:
    """Keeps the filter open during one leadership, from a separate thread, for as long as the lease can be trusted.

    Reading the database may take long, and that must not close the filter. So the thread that applies changes only
    calls ``keep_alive``; if it hangs, the lease expires, and the filter with it. ``error`` says why opening failed.
    """

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
        self._unconfirmed_until = 0.0  # a refresh that failed may have taken effect, but ends before this time
        self._thread = new_thread(target=self._run, name="opening", daemon=True)
        self.open_until = 0.0
        self.error = ""

    @property
    def open(self) -> bool:
        """Whether the filter is open, as far as this process knows."""
        return self._clock.monotonic() < self.open_until

    def start(self) -> None:
        """Open the filter and keep it open."""
        self._refresh()
        self._thread.start()

    def end(self) -> bool:
        """Close the filter; return whether it is closed now, by us or by its time-out. Never raises."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()
        if self._close():
            return True
        if not self._backend.self_closing:
            return False
        # Closing failed, so only the kernel's time-out closes the filter: wait for the latest one that may be set.
        until = max(self.open_until, self._unconfirmed_until)
        self._new_flag().wait(max(0.0, until - self._clock.monotonic()))
        return True

    def _run(self) -> None:
        # Continues even while the lease cannot be trusted: a late renewal makes it valid again.
        while not self._stop.wait(self._pause()):
            self._refresh()

    def _pause(self) -> float:
        """Return the seconds until the next refresh: half of the time left, because a refresh takes time too.

        A refresh extends the time-out to what the lease allows. With a fixed period, a late refresh would be followed
        by an early one that adds little, and then by one that comes too late.
        """
        left = self.open_until - self._clock.monotonic()
        return max(self._period / _CLOSED_RETRY_FACTOR, min(self._period, left / 2))

    def _refresh(self) -> None:
        if not self._leadership.is_valid():
            return
        try:
            self.open_until = self._backend.hold(self._leadership.trusted_until)
            self.error = ""
        except Exception as exc:  # noqa: BLE001  # nothing else in this thread would report it
            self._unconfirmed_until = self._leadership.trusted_until
            self._log_once(_log.warning, "cannot keep the filter open; it closes", exc)

    def _close(self) -> bool:
        try:
            self._backend.close()
        except Exception as exc:  # noqa: BLE001  # the time-out may still close it: the caller waits for that
            self._log_once(_log.error, "cannot close the filter", exc)
            return False
        self.open_until = 0.0
        return True

    def _log_once(self, log: Callable[..., object], event: str, exc: Exception) -> None:
        """Log an error that is new, with a traceback if it is not the backend's own error."""
        before, self.error = self.error, str(exc) or type(exc).__name__
        if self.error != before:
            unexpected = None if isinstance(exc, PxeFilterError) else exc
            log(event, backend=self._backend.name, error=self.error, exc_info=unexpected)


class PxeFilter:
    """One thread calls ``run``; ``status`` is the current status.

    ``keep`` renews a leadership from separate threads (see ``leadership.LeaseRenewer``). ``poll_interval``: the
    seconds after which it checks for changes that the bus did not announce.
    """

    def __init__(
        self,
        election: Election,
        mac_sync: MacSync,
        backend: FilterBackend,
        dhcp_leases: DhcpLeases,
        *,
        settings: PxeFilterSettings,
        poll_interval: float,
        host: str,
        keep: Callable[[Leadership, StopFlag], None],
        profile: LeaseProfile,
        bus: Bus,
        clock: Clock,
        stop: StopFlag,
        meter: Meter = SILENT,
        guard_seconds: float = GUARD_SECONDS,
        new_flag: Callable[[], StopFlag] = threading.Event,
        new_thread: Callable[..., threading.Thread] = threading.Thread,
    ) -> None:
        self._guard_seconds = guard_seconds
        self._election = election
        self._mac_sync = mac_sync
        self._backend = backend
        self._dhcp_leases = dhcp_leases
        self._settings = settings
        self._poll_interval = poll_interval
        self._host = host
        self._keep = keep
        self._profile = profile
        self._bus = bus
        self._clock = clock
        self._stop = stop
        self._meter = meter
        self._new_flag = new_flag
        self._new_thread = new_thread
        # True if the filter could not be closed and has no time-out: then its lease must not be released.
        self.left_open = False
        self._published = FilterRecord()
        self._checked_at = 0.0
        # Refresh well before the time-out of the previous refresh.
        self.period = min(1.0, profile.ttl / 6)
        self.status = "closed; has not campaigned for its network yet"

    def run(self) -> None:
        """Follow or lead until the process stops; always close the filter at the end."""
        self._measure(is_open=False)
        try:
            while not self._stop.is_set():
                self._campaign_safely()
        finally:
            self._stop.set()
            self.fail_closed()

    def _campaign_safely(self) -> None:
        try:
            self.campaign()
        except StoreError as exc:
            self._wait_closed(f"closed; waiting for the database: {exc}")
        except PxeFilterError as exc:
            self._wait_closed(f"closed: {exc}")
        except LeaseLostError as exc:
            self.status = f"closed; lost its lease: {exc}"
        except Exception:
            self._stop.set()
            _log.exception("unexpected error; closing the filter and stopping the process")
            raise

    def _wait_closed(self, status: str) -> None:
        changed = status != self.status
        self.status = status
        self.fail_closed()
        if changed:
            _log.warning("filter closed", why=status)
        self._stop.wait(self._profile.poll)

    def fail_closed(self) -> None:
        """Close the filter; if that fails, the kernel's time-out closes it. Never raises."""
        try:
            self._backend.close()
            self.left_open = False
        except PxeFilterError as exc:
            _log.error("cannot close the filter; it closes when its time-out expires", error=str(exc))

    def campaign(self) -> None:
        """Campaign once and lead if it was won; otherwise wait, closed, until the next campaign may succeed."""
        seen = self._bus.wait(Channel.LEASES, 0, 0.0)
        self._ensure_closed()
        leadership = self._election.campaign()
        self.status = f"closed; {self._election.status}"
        if leadership is None:
            self._election.wait(self._bus, seen, self._stop, every=self.period, meanwhile=self._ensure_closed)
            return
        self.lead(leadership)

    def _ensure_closed(self) -> None:
        """Close again once a second: flushing the host's firewall removes the filter, and so opens it."""
        now = self._clock.monotonic()
        if now - self._checked_at >= self.period:
            self._backend.close()
            self._checked_at = now

    def lead(self, leadership: Leadership) -> None:
        """Load the sets during the guard time, open, apply changes; at the end close, then release the lease."""
        reset = self._new_flag()
        self._keep(leadership, reset)
        filter_lease = FilterLease(
            self._backend, leadership, clock=self._clock, period=self.period,
            new_flag=self._new_flag, new_thread=self._new_thread,
        )  # fmt: skip
        won_at = self._clock.monotonic()
        self._published = FilterRecord()
        try:
            self._load(leadership)
            leadership.keep_alive()
            # The previous leader's filter may be open until its trust in the lease ends, by its own clock.
            self._wait_until(max(won_at, leadership.alone_from) + self._guard_seconds, leadership, reset)
            if self._stop.is_set():
                return
            filter_lease.start()
            _log.info("filter open", network=self._settings.network, epoch=leadership.claim.epoch)
            self._follow(leadership, filter_lease, reset)
        finally:
            self.left_open = not filter_lease.end()
            self._measure(is_open=self.left_open)
            if not self.left_open:
                leadership.resign()
            # Otherwise the lease must not be released before the filter has closed: the lease expires, and this process
            # exits (see ``LeaseRenewer``).

    def _wait_until(self, opens_at: float, leadership: Leadership, reset: StopFlag) -> None:
        """Wait, keeping the lease, while an earlier leader's filter may be open, or until this leadership ends."""
        while (left := opens_at - self._clock.monotonic()) > 0 and not self._stop.is_set():
            if reset.wait(min(left, self.period)):
                return
            leadership.keep_alive()

    def _load(self, leadership: Leadership) -> None:
        self._dhcp_leases.begin()
        self._mac_sync.whole(leadership.keep_alive)
        self._backend.apply(self._mac_sync.sets.whole(), fresh=True, progress=leadership.keep_alive)

    def _follow(self, leadership: Leadership, filter_lease: FilterLease, reset: StopFlag) -> None:
        compare_at = self._clock.monotonic() + RECONCILE_SECONDS
        read_at = self._clock.monotonic()
        while leadership.is_valid() and not self._stop.is_set() and not reset.is_set():
            leadership.keep_alive()
            seen = self._bus.wait_any(MAC_CHANNELS, 0, 0.0)
            now = self._clock.monotonic()
            try:
                if now >= compare_at:
                    self._apply(self._mac_sync.whole(leadership.keep_alive), leadership.keep_alive)
                    compare_at = now + RECONCILE_SECONDS
                else:
                    for change in self._mac_sync.changes(leadership.keep_alive):
                        self._apply(change, leadership.keep_alive)
                self._dhcp_leases.note(self._mac_sync.sets.allowed, leadership.fence)
                read_at = now
            except StoreError:
                # The filter may stay open on older sets for as long as another pxe-filter would need to take over.
                if now - read_at > self._profile.ttl:
                    raise
            self._publish(leadership, filter_lease)
            if filter_lease.error:  # release the lease to a host that can open its filter
                raise PxeFilterError(filter_lease.error)
            self._wait(seen, leadership, filter_lease, reset)
        self.status = "closed; its leadership has ended"

    def _apply(self, change: SetChange, progress: Callable[[], object]) -> None:
        if not change:
            return
        started = self._clock.monotonic()
        try:
            self._backend.apply(change, fresh=False, progress=progress)
        except PxeFilterError as exc:
            _log.warning("cannot apply a change; reloading all MACs", error=str(exc))
            self._backend.apply(self._mac_sync.sets.whole(), fresh=True, progress=progress)
        self._meter.record_pxe_filter_change(self._clock.monotonic() - started)

    def _publish(self, leadership: Leadership, filter_lease: FilterLease) -> None:
        """Publish the state of this filter in the lease if it has changed."""
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
            dhcp=self._dhcp_leases.is_read,
            requests=self._dhcp_leases.knows_requests,
        )
        state = "open" if filter_lease.open else f"closed: {filter_lease.error or 'its lease is about to expire'}"
        self.status = (
            f"{state}; {self._election.status}; {record.allowed} MACs allowed, {record.denied} denied, "
            f"changes up to {record.applied} applied"
        )
        self._measure(is_open=record.open)
        if record != self._published and leadership.renew(data=msgspec.json.encode(record).decode()):
            self._published = record

    def _measure(self, *, is_open: bool) -> None:
        sets = self._mac_sync.sets
        self._meter.set_pxe_filter(
            self._settings.network, is_open=is_open, allowed=len(sets.allowed), denied=len(sets.denied)
        )

    def _wait(self, seen: int, leadership: Leadership, filter_lease: FilterLease, reset: StopFlag) -> None:
        """Wait for a change, at most for ``poll_interval``, keeping the lease."""
        until = self._clock.monotonic() + self._poll_interval
        while (left := until - self._clock.monotonic()) > 0 and not reset.is_set() and not self._stop.is_set():
            leadership.keep_alive()
            if self._bus.wait_any(MAC_CHANNELS, seen, min(left, self.period)) > seen:
                return
            if filter_lease.error or filter_lease.open != self._published.open or not leadership.is_valid():
                return
