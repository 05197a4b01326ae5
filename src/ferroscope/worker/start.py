"""Start an inspection: power off, boot the ramdisk next time, wait for the PXE filter, power on.

A machine that must not be powered off is rebooted instead, if it is on. With out-of-band inspection nothing is booted:
the hardware is read from the BMC and processed at once.

Reentrant: a rerun reads the real power state. If the power-on of an earlier attempt took effect, the machine is left
alone, so it is not booted twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

import msgspec

from ferroscope.contracts.bmc import BootDevice, Power
from ferroscope.contracts.errors import LeaseLostError
from ferroscope.contracts.queue import Clock
from ferroscope.core.boot import FROM_NETWORK, POWER_ON, REBOOT, Boot, disables_power_off, keeps_boot_order
from ferroscope.core.boot_macs import FILTER_STEP, LEASE_PREFIX, decode_record
from ferroscope.core.delivery import Next, Outcome, Retry
from ferroscope.core.interfaces import NOOP
from ferroscope.core.model import Lease, LeaseProfile, Severity
from ferroscope.core.reasons import Reason
from ferroscope.core.states import Event
from ferroscope.db.store import Store
from ferroscope.db.transaction import Fence, Transaction
from ferroscope.leadership import Election, Leadership
from ferroscope.worker import boot, out_of_band
from ferroscope.worker.attempt import Attempt, Journal
from ferroscope.worker.bmc import resolve_addresses
from ferroscope.worker.boot import ensure_power
from ferroscope.worker.restart import (
    earlier_reboot,
    follow_into_ramdisk,
    is_on,
    observed_before_reboot,
    reboot,
)
from ferroscope.worker.services import Services

LEASE: Final = "reboot-throttle"


class ThrottledError(Exception):
    """Another machine is being powered on; try again in ``after`` seconds."""

    def __init__(self, after: float) -> None:
        self.after = after
        super().__init__(f"another machine is being powered on; trying again in {after:.1f} s")


class Permit(msgspec.Struct, frozen=True):
    """Permission to power on: record the intent under ``fence``, and call ``confirm`` just before the command."""

    fence: Fence
    confirm: Callable[[], None]


_UNTHROTTLED: Final = Permit(fence=lambda _tx: None, confirm=lambda: None)


class RebootThrottle:
    """``quantum`` in seconds; 0 disables it. ``command`` is how long a BMC may take for one command."""

    def __init__(
        self,
        quantum: float,
        *,
        holder: str,
        store: Store,
        clock: Clock,
        profile: LeaseProfile,
        command: float = 0.0,
    ) -> None:
        self._quantum = quantum
        self._command = command
        self._clock = clock
        # Long enough for two commands: one asks for the power state, one changes it. The margin grows with the
        # lease, because a slow clock falls the further behind the longer it runs.
        ttl = quantum + profile.ttl + 2 * command
        longer = msgspec.structs.replace(profile, ttl=ttl, margin=profile.margin * ttl / profile.ttl)
        self._election = Election(LEASE, holder, store=store, clock=clock, profile=longer)

    @contextmanager
    def permit(self, attempt: Attempt, services: Services) -> Iterator[Permit]:
        """Wait for the quantum, then yield the permit.

        ``ThrottledError`` if another worker has it (this thread is better used elsewhere), ``StoppedError`` if the
        sleep was interrupted.
        """
        if not self._quantum:
            yield _UNTHROTTLED
            return
        leadership = self._election.campaign()
        if leadership is None:
            raise ThrottledError(self._remaining(services.store))
        try:
            attempt.pause(self._quantum)
            self._confirm(leadership)
            yield Permit(fence=leadership.fence, confirm=lambda: self._confirm(leadership))
        finally:
            leadership.resign()

    def _confirm(self, leadership: Leadership) -> None:
        """Raise ``ThrottledError`` unless the lease lasts until a command sent now has taken effect."""
        if not leadership.is_valid() or self._clock.monotonic() + self._command > leadership.trusted_until:
            raise ThrottledError(self._quantum)

    def _remaining(self, store: Store) -> float:
        lease = store.read(lambda tx: tx.leases.get(LEASE))
        return min(self._quantum, 0.0 if lease is None else lease.remaining) or self._quantum


# Before a machine is powered on, the open PXE filter must let it boot. The filter is notified when the inspection is
# requested, so most of the time there is nothing to wait for; without a PXE filter nothing is waited for.

# Longest time that a power-on waits for the open filter to admit the machine; then it boots with a warning.
PXE_FILTER_WAIT_SECONDS: Final = 10.0
# In seconds: between two checks; for how long the thread itself waits; when the request is tried again after that.
_CHECK_INTERVAL: Final = 0.02
_LONGEST_WAIT: Final = 0.3
_RETRY_DELAY: Final = 0.25
_MAX_WAITING_INSPECTIONS: Final = 10_000
# For so many seconds after no PXE filter was known none is searched for: a new filter reads everything when it starts.
_ABSENT_SECONDS: Final = 1.0
# A network whose PXE filter died so long ago is no longer waited for.
_GIVEN_UP: Final = 300.0


class _FilterState(msgspec.Struct, frozen=True):
    """``filters`` in use and the networks that are ``behind``; ``known``: there ever was a PXE filter.

    ``strict``: networks that let only machines with a known port boot, if this one has no port.
    """

    filters: list[str]
    behind: list[str]
    strict: list[str]
    known: bool


class PxeFilterWait:
    """``timeout`` in seconds from the first check for an inspection; 0: never wait.

    Each process counts for itself, so that time an inspection has waited for a worker is not counted as the filter's.
    """

    def __init__(self, timeout: float = PXE_FILTER_WAIT_SECONDS) -> None:
        self._timeout = timeout
        self._waiting: dict[str, float] = {}  # by inspection, since when by the monotonic clock
        self._search_at = 0.0  # by the monotonic clock

    def __call__(self, attempt: Attempt, journal: Journal, services: Services) -> Retry | None:
        """Return None if the machine may be powered on; the outcome of the attempt if it is too early."""
        now = services.clock.monotonic()
        if not self._timeout or now < self._search_at:
            return None
        until = now + _LONGEST_WAIT
        inspection = attempt.request.inspection or ""
        since = self._waiting.pop(inspection, now)
        while (seen := self._check(attempt, services)).behind:
            names = ", ".join(seen.behind)
            if services.clock.monotonic() - since >= self._timeout:
                message = f"powered on although the PXE filter is closed or has not applied the change: {names}"
                journal.note(FILTER_STEP, message, severity=Severity.WARNING, reason=Reason.PXE_FILTER_CLOSED)
                return None
            if services.clock.monotonic() >= until:
                if len(self._waiting) >= _MAX_WAITING_INSPECTIONS:
                    self._waiting.clear()
                self._waiting[inspection] = since
                return Retry(
                    _RETRY_DELAY, Reason.PXE_FILTER_CLOSED, f"waiting for the PXE filter of {names}", counted=False
                )
            attempt.pause(_CHECK_INTERVAL)
        if not seen.known:
            self._search_at = now + _ABSENT_SECONDS
        if seen.strict:
            message = (
                f"the node has no port, and the PXE filter of {', '.join(seen.strict)} lets only known machines boot: "
                "add a port, or set [pxe_filter] unknown_hosts = allow"
            )
            journal.note(FILTER_STEP, message, severity=Severity.WARNING, reason=Reason.PXE_FILTER_CLOSED)
        elif seen.filters:
            journal.note(FILTER_STEP, f"the open PXE filter lets its MACs boot: {', '.join(seen.filters)}")
        return None

    def _check(self, attempt: Attempt, services: Services) -> _FilterState:
        node = attempt.node.uuid

        def work(tx: Transaction) -> _FilterState:
            all_leases = tx.leases.list(LEASE_PREFIX)
            leases = [lease for lease in all_leases if _is_in_use(lease, tx.now)]
            newest = tx.macs.newest(node=node) if leases else 0
            return _FilterState(
                filters=[_describe(lease) for lease in leases],
                behind=[_network(lease) for lease in leases if not _lets_pass(lease, newest)],
                strict=[_network(lease) for lease in leases if not newest and not decode_record(lease.data).unknown],
                known=bool(all_leases),
            )

        return services.store.read(work)


def _is_in_use(lease: Lease, now: float) -> bool:
    return lease.holder is not None and lease.expires_at > now - _GIVEN_UP


def _lets_pass(lease: Lease, seq: int) -> bool:
    return lease.remaining > 0 and decode_record(lease.data).has_applied(seq)


def _network(lease: Lease) -> str:
    return lease.name.removeprefix(LEASE_PREFIX)


def _describe(lease: Lease) -> str:
    return f"{_network(lease)} on {decode_record(lease.data).host} in epoch {lease.epoch}"


class StartTask:
    """The task of ``inspect``; ``throttle`` spreads the power-ons, ``pxe_filter`` waits until it may boot."""

    def __init__(self, throttle: RebootThrottle, pxe_filter: PxeFilterWait) -> None:
        self._throttle = throttle
        self._pxe_filter = pxe_filter

    def __call__(self, attempt: Attempt, journal: Journal, services: Services) -> Outcome:
        """Boot the ramdisk, or only wait if the operator boots it."""
        if (refused := services.attached.begin(attempt)) is not None:
            return refused
        journal.bmc_addresses = resolve_addresses(attempt.node, seconds=services.settings.drivers.command_timeout)
        boot_method = boot.how(attempt, services)
        if boot_method is Boot.OPERATOR:
            journal.note("unmanaged", "waiting for the operator to boot the ramdisk")
            return Next(Event.WAIT)
        attempt.learn_machine()
        if boot_method is Boot.OUT_OF_BAND:
            return out_of_band.inspect(attempt, journal, services)
        boot.note(attempt, services, boot_method)
        early = _follow_earlier_start(attempt, journal, services, boot_method)
        if isinstance(early, Next):
            journal.note("already on", "an earlier attempt powered it on")
            attempt.node.power_state = Power.ON
        if early is not None:
            return early
        if not attempt.has_intended(POWER_ON):
            out_of_band.prepare(
                attempt, journal, services
            )  # first: the PXE filter opens for the ports that this creates
            if boot_method in FROM_NETWORK and (early := self._pxe_filter(attempt, journal, services)) is not None:
                return early
            self._prepare(attempt, journal, services, boot_method)
        # Else both were done before the intent was recorded, and an earlier power-on may still be under way: a machine
        # that was powered off now would boot twice. (A reboot is prepared again, see ``restart.earlier_reboot``.)
        try:
            self._power_on(attempt, journal, services, boot_method)
        except ThrottledError as exc:
            return Retry(exc.after, Reason.THROTTLED, str(exc), counted=False)
        return Next(Event.WAIT)

    def _prepare(self, attempt: Attempt, journal: Journal, services: Services, boot_method: Boot) -> None:
        """Do what the machine needs before the power-on; idempotent."""
        if boot_method is Boot.VIRTUAL_MEDIA:
            boot.check_image(attempt, journal, services)
        boot.power_off_first(attempt, journal, services)
        if boot_method is Boot.VIRTUAL_MEDIA:
            boot.insert(attempt, journal, services)
        else:
            boot.eject_leftover(attempt, journal, services)
            boot.insert_nothing(attempt, journal)
            if boot_method is Boot.IPXE:
                boot.note_script(attempt, journal, services)
            _boot_from_network(attempt, journal)

    def _power_on(self, attempt: Attempt, journal: Journal, services: Services, boot_method: Boot) -> None:
        boot.forget_agent(attempt, journal)
        with self._throttle.permit(attempt, services) as permit:
            reboots = disables_power_off(attempt.node) and is_on(attempt, "the boot")
            before = observed_before_reboot(attempt, boot_method) if reboots else {}
            try:
                if reboots:
                    attempt.intend(REBOOT, journal, permit.fence, seen=before)
                else:
                    attempt.intend(POWER_ON, journal, permit.fence)
            except LeaseLostError as exc:
                raise ThrottledError(0.0) from exc
            if reboots:
                reboot(attempt, journal, confirm=permit.confirm, intent=REBOOT)
            else:
                ensure_power(attempt, journal, services, Power.ON, confirm=permit.confirm, intent=POWER_ON)
        if reboots:
            follow_into_ramdisk(attempt, journal, services, boot_method, before)


def _follow_earlier_start(
    attempt: Attempt, journal: Journal, services: Services, boot_method: Boot
) -> Next | Retry | None:
    """Return what follows from the boot that an earlier attempt has begun; None if there is none, or it is repeated."""
    # The intent is recorded while the machine is off, so if it is on now, our power-on took effect.
    if attempt.has_intended(POWER_ON) and attempt.driver().get_power(attempt.node) is Power.ON:
        return Next(Event.WAIT)
    return earlier_reboot(attempt, journal, services, boot_method) if attempt.has_intended(REBOOT) else None


def _boot_from_network(attempt: Attempt, journal: Journal) -> None:
    """Boot from the network next time, and only then; its boot order is left alone with ``NOOP``."""
    if keeps_boot_order(attempt.node):
        journal.note("boot device", f"left unchanged, because management_interface is {NOOP}")
        return
    bmc = attempt.driver()
    attempt.command(partial(bmc.set_boot_device, attempt.node, BootDevice.PXE, persistent=False))
    attempt.sets_next_boot = True
    journal.note("boot device", "the next boot is from the network")
