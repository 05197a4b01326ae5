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
import structlog

from ferroscope import node_boot
from ferroscope.contracts.bmc import BootDevice, ListsNics, OutOfBand, Power, TellsMachines
from ferroscope.contracts.errors import LeaseLostError
from ferroscope.contracts.store import Clock
from ferroscope.core.boot import FROM_NETWORK, POWER_ON, REBOOT, Boot, disables_power_off, keeps_boot_order
from ferroscope.core.boot_macs import FILTER_STEP, LEASE_PREFIX, decode_record
from ferroscope.core.callback_secret import Delivery
from ferroscope.core.delivery import Next, Outcome, Retry
from ferroscope.core.interfaces import NOOP
from ferroscope.core.model import Lease, LeaseProfile, Node
from ferroscope.core.states import Event
from ferroscope.db import Fence, Store, Transaction
from ferroscope.hardware import machine_identity
from ferroscope.leadership import Election, Leadership
from ferroscope.remote import resolver
from ferroscope.remote.resolver import UnresolvedError
from ferroscope.worker import machine, out_of_band, restart
from ferroscope.worker.attempt import Attempt
from ferroscope.worker.machine import ensure_power
from ferroscope_client.core.bmc_place import hosts, is_address
from ferroscope_client.core.host_spelling import canonical_host
from ferroscope_client.core.reasons import Reason
from ferroscope_client.core.values import normalized_ip, without_secrets

LEASE: Final = "reboot-throttle"
# Keys of the node's ``internal`` document. The first has the same name in Ironic. The second is the token that a lookup
# has given away; see ``api.baremetal.agent``.
_MANAGED: Final = "inspector_manage_boot"
_AGENT: Final = "agent"

_log = structlog.get_logger(__name__)


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
        self, quantum: float, *, holder: str, store: Store, clock: Clock, profile: LeaseProfile, command: float = 0.0
    ) -> None:
        self._quantum = quantum
        self._command = command
        self._clock = clock
        # Long enough for two commands: one asks for the power state, one changes it. The margin grows with the lease:
        # the longer a slow clock runs, the further it falls behind.
        ttl = quantum + profile.ttl + 2 * command
        longer = msgspec.structs.replace(profile, ttl=ttl, margin=profile.margin * ttl / profile.ttl)
        self._election = Election(LEASE, holder, store=store, clock=clock, profile=longer)

    @contextmanager
    def permit(self, attempt: Attempt) -> Iterator[Permit]:
        """Wait for the quantum, then yield the permit.

        ``ThrottledError`` if another worker has it: this thread is better used elsewhere. ``StoppedError`` if the
        process stops.
        """
        if not self._quantum:
            yield _UNTHROTTLED
            return
        leadership = self._election.campaign()
        if leadership is None:
            raise ThrottledError(self._remaining(attempt.store))
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


# Before a machine is powered on, the open PXE filter must let it boot. The request for the inspection notifies the
# filter, so most starts do not wait. Without a PXE filter none does.

# The longest wait for the open filter to admit the machine; then it boots with a warning.
PXE_FILTER_WAIT_SECONDS: Final = 10.0
_CHECK_INTERVAL_SECONDS: Final = 0.02
# How long the thread itself waits, and when the request is tried again after that.
_MAX_THREAD_WAIT_SECONDS: Final = 0.3
_RETRY_SECONDS: Final = 0.25
_MAX_WAITING_INSPECTIONS: Final = 10_000
# After a search that found no PXE filter, the next one is this much later: a new filter reads everything at its start.
_ABSENT_SECONDS: Final = 1.0
# No start waits for a network whose PXE filter died longer ago.
_GIVEN_UP_SECONDS: Final = 300.0


class _FilterState(msgspec.Struct, frozen=True):
    """``filters`` in use, and the networks that are ``behind``; ``known``: there ever was a PXE filter.

    ``strict``: the networks that boot only machines with a known port, if this machine has none.
    """

    filters: list[str]
    behind: list[str]
    strict: list[str]
    known: bool


class PxeFilterWait:
    """``timeout`` in seconds from the first check for an inspection; 0: never wait.

    Each process counts for itself, so that the filter's time includes no time in which no worker was free.
    """

    def __init__(self, timeout: float = PXE_FILTER_WAIT_SECONDS) -> None:
        self._timeout = timeout
        self._waiting: dict[str, float] = {}  # by inspection, since when by the monotonic clock
        self._search_at = 0.0  # by the monotonic clock

    def __call__(self, attempt: Attempt) -> Retry | None:
        """Return None if the machine may be powered on; the outcome of the attempt if it is too early."""
        now = attempt.clock.monotonic()
        if not self._timeout or now < self._search_at:
            return None
        until = now + _MAX_THREAD_WAIT_SECONDS
        inspection = attempt.request.inspection or ""
        since = self._waiting.pop(inspection, now)
        while (seen := self._check(attempt)).behind:
            names = ", ".join(seen.behind)
            if attempt.clock.monotonic() - since >= self._timeout:
                message = f"powered on although the PXE filter is closed or has not applied the change: {names}"
                attempt.warn(FILTER_STEP, message, reason=Reason.PXE_FILTER_CLOSED)
                return None
            if attempt.clock.monotonic() >= until:
                if len(self._waiting) >= _MAX_WAITING_INSPECTIONS:
                    self._waiting.clear()
                self._waiting[inspection] = since
                message = f"waiting for the PXE filter of {names}"
                return Retry(_RETRY_SECONDS, Reason.PXE_FILTER_CLOSED, message, counted=False)
            attempt.pause(_CHECK_INTERVAL_SECONDS)
        if not seen.known:
            self._search_at = now + _ABSENT_SECONDS
        if seen.strict:
            message = (
                f"the node has no port, and the PXE filter of {', '.join(seen.strict)} lets only known machines boot: "
                "add a port, or set [pxe_filter] unknown_hosts = allow"
            )
            attempt.warn(FILTER_STEP, message, reason=Reason.PXE_FILTER_CLOSED)
        elif seen.filters:
            attempt.note(FILTER_STEP, f"the open PXE filter lets its MACs boot: {', '.join(seen.filters)}")
        return None

    def _check(self, attempt: Attempt) -> _FilterState:
        node = attempt.node.uuid

        def work(tx: Transaction) -> _FilterState:
            all_leases = tx.leases.list(LEASE_PREFIX)
            used_since = tx.now - _GIVEN_UP_SECONDS
            leases = [lease for lease in all_leases if lease.holder is not None and lease.expires_at > used_since]
            newest = tx.macs.newest(node=node) if leases else 0
            return _FilterState(
                filters=[_describe(lease) for lease in leases],
                behind=[_network(lease) for lease in leases if not _lets_pass(lease, newest)],
                strict=[_network(lease) for lease in leases if not newest and not decode_record(lease.data).unknown],
                known=bool(all_leases),
            )

        return attempt.store.read(work)


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

    def __call__(self, attempt: Attempt) -> Outcome:
        """Boot the ramdisk, or only wait if the operator boots it."""
        patience = attempt.settings.drivers.command_timeout
        attempt.journal.bmc_addresses = resolve_addresses(attempt.node, seconds=patience)
        boot_method = machine.boot_method(attempt)
        if boot_method is Boot.OPERATOR:
            attempt.note("unmanaged", "waiting for the operator to boot the ramdisk")
            return Next(Event.WAIT)
        learn_machine(attempt)
        if boot_method is Boot.OUT_OF_BAND:
            return out_of_band.inspect(attempt)
        _note_boot(attempt, boot_method)
        early = _follow_earlier_start(attempt, boot_method)
        if isinstance(early, Next):
            attempt.note("already on", "an earlier attempt powered it on")
            attempt.node.power_state = Power.ON
        if early is not None:
            return early
        if not attempt.has_intended(POWER_ON):
            settings, driver = attempt.settings.inspector, attempt.driver()
            collects = settings.collect_out_of_band and isinstance(driver, OutOfBand)
            lister = driver if settings.pre_create_ports and isinstance(driver, ListsNics) else None
            if collects or lister:  # first: the PXE filter opens for the ports that this creates
                out_of_band.prepare(attempt, lister, collects=collects)
            if boot_method in FROM_NETWORK and (early := self._pxe_filter(attempt)) is not None:
                return early
            self._prepare(attempt, boot_method)
        # Else both were done before the intent was recorded, and an earlier power-on may still be under way: a machine
        # that was powered off now would boot twice. (A reboot is prepared again, see ``restart.earlier_reboot``.)
        try:
            self._power_on(attempt, boot_method)
        except ThrottledError as exc:
            return Retry(exc.after, Reason.THROTTLED, str(exc), counted=False)
        return Next(Event.WAIT)

    def _prepare(self, attempt: Attempt, boot_method: Boot) -> None:
        """Do what the machine needs before the power-on; idempotent."""
        if boot_method is Boot.VIRTUAL_MEDIA:
            machine.check_image(attempt)
        machine.power_off_first(attempt)
        if boot_method is Boot.VIRTUAL_MEDIA:
            machine.insert(attempt)
        else:
            machine.eject_leftover(attempt)
            inspection = attempt.inspection
            if inspection is not None and inspection.secret_delivery in (Delivery.PLANNED, Delivery.VIRTUAL_MEDIA):
                machine.record_delivery(attempt, Delivery.NONE)
            if boot_method is Boot.IPXE:
                _note_script(attempt)
            _boot_from_network(attempt)

    def _power_on(self, attempt: Attempt, boot_method: Boot) -> None:
        _forget_agent(attempt)
        with self._throttle.permit(attempt) as permit:
            reboots = disables_power_off(attempt.node) and restart.is_on(attempt, "the boot")
            before = restart.observed_before_reboot(attempt, boot_method) if reboots else {}
            try:
                if reboots:
                    attempt.intend(REBOOT, permit.fence, seen=before)
                else:
                    attempt.intend(POWER_ON, permit.fence)
            except LeaseLostError as exc:
                raise ThrottledError(0.0) from exc
            if reboots:
                restart.reboot(attempt, confirm=permit.confirm, intent=REBOOT)
            else:
                ensure_power(attempt, Power.ON, confirm=permit.confirm, intent=POWER_ON)
        if reboots:
            restart.follow_into_ramdisk(attempt, boot_method, before)


def _follow_earlier_start(attempt: Attempt, boot_method: Boot) -> Next | Retry | None:
    """Return what follows from the boot that an earlier attempt has begun; None if there is none, or it is repeated."""
    # The intent is recorded while the machine is off, so if it is on now, our power-on took effect.
    if attempt.has_intended(POWER_ON) and attempt.driver().get_power(attempt.node) is Power.ON:
        return Next(Event.WAIT)
    return restart.earlier_reboot(attempt, boot_method) if attempt.has_intended(REBOOT) else None


def _boot_from_network(attempt: Attempt) -> None:
    """Boot from the network next time, and only then."""
    if keeps_boot_order(attempt.node):
        attempt.note("boot device", f"left unchanged, because management_interface is {NOOP}")
        return
    attempt.command(partial(attempt.driver().set_boot_device, attempt.node, BootDevice.PXE, persistent=False))
    attempt.sets_next_boot = True
    attempt.note("boot device", "the next boot is from the network")


def _note_boot(attempt: Attempt, boot_method: Boot) -> None:
    """Record on the node how it boots and what will be inserted; also for a rerun that does neither."""
    attempt.node.internal[_MANAGED] = boot_method in (Boot.VIRTUAL_MEDIA, Boot.IPXE)
    attempt.node.internal.pop(restart.UNSEEN, None)
    if boot_method is Boot.VIRTUAL_MEDIA:
        image = machine.ramdisk_image(attempt)
        attempt.node.internal[machine.INSERTED] = {"iso": image.iso, machine.PARAMETERS: image.parameters}


def _note_script(attempt: Attempt) -> None:
    """Say which files the machine boots, or that it cannot get its script."""
    files = node_boot.files(attempt.settings, attempt.node)
    if files is not None:
        kernel = without_secrets(files.kernel)
        attempt.note("ipxe", f"the next boot is from the network, by a script of this service with the kernel {kernel}")
    if not (attempt.ports or attempt.port_changes.added):
        message = "the node has no port: add one, because boot scripts are served by MAC address"
        attempt.warn("ipxe", message, reason=Reason.UNMANAGED_BOOT)


def _forget_agent(attempt: Attempt) -> None:
    """Let the ramdisk that is about to boot get a token of its own, if an earlier boot of this inspection got one.

    The copies forget the earlier one, too: the commit must not remove what the new ramdisk gets meanwhile.
    """
    agent = attempt.before.internal.get(_AGENT)
    if isinstance(agent, dict) and agent.get("inspection") == attempt.before.inspection:
        for node in (attempt.before, attempt.node):
            node.internal.pop(_AGENT, None)
        attempt.journal.forgotten = _AGENT


def resolve_addresses(node: Node, *, seconds: float) -> frozenset[str]:
    """Return the literal and resolved addresses in the ``*_address`` keys of ``driver_info``, without loopback ones.

    Call it outside transactions: DNS may be slow. It keeps and logs a name that does not resolve within ``seconds``. A
    BMC that is reached through another one has none of the other's addresses.
    """
    addresses: set[str] = set()
    for key, host in hosts(node.driver_info):
        addresses.update(_addresses(node, key, host, seconds))
    return frozenset(addresses)


def _addresses(node: Node, key: str, host: str, seconds: float) -> set[str]:
    if is_address(host):
        address = normalized_ip(host)
        return {address} if address else set()
    try:
        host_addresses = resolver.resolve(host, seconds, bmc=True)
    except UnresolvedError as exc:
        _log.warning("cannot resolve a BMC address", node=node.uuid, field=key, error=str(exc))
        return {canonical_host(host)}
    resolved = {normalized for text in host_addresses if (normalized := normalized_ip(text))}
    return resolved | {canonical_host(host)} if resolved else set()


def learn_machine(attempt: Attempt) -> None:
    """Keep the identity of the machine behind the BMC's present address, unless it is known. ``BmcError``."""
    driver = attempt.driver()
    if isinstance(driver, TellsMachines) and machine_identity.behind_bmc(attempt.node) is None:
        machine_identity.remember_behind_bmc(attempt.node, driver.machine(attempt.node))
