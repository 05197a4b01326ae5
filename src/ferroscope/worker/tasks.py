"""One task for each event that has one: what the worker does once the state machine has taken the event.

A task receives the attempt, its journal, and what all attempts use. It acts on the machine and on the attempt's copies,
and returns an outcome; it commits nothing itself. Automatic events without a task (``wait``) only move the state. The
two long tasks are in ``start`` and ``process``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from ferroscope.contracts.bmc import BootDevice, Power, Problem
from ferroscope.contracts.errors import BmcError
from ferroscope.contracts.store import Query
from ferroscope.core.boot import keeps_boot_order, since_boot
from ferroscope.core.boot_macs import DHCP_STEP, FILTER_STEP, LEASE_PREFIX, decode_record
from ferroscope.core.delivery import TRIAL, Done, Fail, Outcome, failure_of, running_since
from ferroscope.core.lookup import MAX_COUNTED_DISCOVERIES, count_callers, describe_caller
from ferroscope.core.model import Entry, Node, Severity
from ferroscope.core.reasons import CANCELED, Reason
from ferroscope.core.states import MACHINE, Event, State
from ferroscope.core.values import utc_text
from ferroscope.db.transaction import Transaction
from ferroscope.hooks.pipeline import Pipeline
from ferroscope.worker import virtual_media
from ferroscope.worker.attempt import Attempt, Journal
from ferroscope.worker.bmc import resolve_addresses
from ferroscope.worker.boot import missed_reset, power_off_quietly
from ferroscope.worker.password import set_password
from ferroscope.worker.power import set_power
from ferroscope.worker.process import ProcessTask
from ferroscope.worker.rules import RuleStep
from ferroscope.worker.run import Task
from ferroscope.worker.services import Services
from ferroscope.worker.start import PxeFilterWait, RebootThrottle, StartTask


def build(
    pipeline: Pipeline, throttle: RebootThrottle, pxe_filter: PxeFilterWait, rules: RuleStep | None = None
) -> Mapping[Event, Task]:
    """Return the task of each event that has one."""
    process = ProcessTask(pipeline, rules or RuleStep())
    return {
        Event.INSPECT: StartTask(throttle, pxe_filter),
        Event.CONTINUE: process,
        Event.REAPPLY: process,
        Event.FINISH: finish,
        Event.FAIL: fail,
        Event.ABORT: abort,
        Event.TIMEOUT: time_out,
        Event.DELETE: delete,
        Event.VERIFY: verify,
        Event.SET_POWER: set_power,
        Event.SET_BOOT_DEVICE: set_boot_device,
        Event.ATTACH_VMEDIA: virtual_media.attach,
        Event.DETACH_VMEDIA: virtual_media.detach,
        Event.SET_PASSWORD: set_password,
    }


# The end of an inspection


def finish(attempt: Attempt, journal: Journal, services: Services) -> Outcome:
    """Power off after an inspection, not after stored data was processed. A BMC that fails does not fail it.

    Before that, the results are written to an attached Ironic.
    """
    if (refused := services.attached.apply(attempt, journal, services)) is not None:
        return refused
    if attempt.before.state is State.PROCESSING:
        power_off_quietly(attempt, journal, services)
    return Done()


def abort(attempt: Attempt, journal: Journal, services: Services) -> Outcome:
    """End the inspection by the operator's request; the machine is powered off unless stored data was processed."""
    _power_off(attempt, journal, services)
    return Fail(Reason.ABORTED, CANCELED)


def fail(attempt: Attempt, journal: Journal, services: Services) -> Outcome:
    """End the inspection as the payload says: ``reason`` and ``message`` of a failure in the compute lane."""
    _power_off(attempt, journal, services)
    return failure_of(attempt.request)


def time_out(attempt: Attempt, journal: Journal, services: Services) -> Outcome:
    """Power off and fail, naming what took too long."""
    ignored = missed_reset(attempt, services)
    power_off_quietly(attempt, journal, services)
    failure = _timeout(attempt, services)
    if failure.reason is Reason.TIMEOUT and ignored is not None:
        return Fail(Reason.NOT_RESTARTED, ignored)
    if failure.reason is Reason.START_TIMEOUT:
        return services.store.read(lambda tx: _last_try(tx, attempt.node, failure))
    if failure.reason is Reason.TIMEOUT:
        return services.store.read(lambda tx: _better(tx, attempt, services, failure))
    return failure


def _better(tx: Transaction, attempt: Attempt, services: Services, failure: Fail) -> Fail:
    """Return the failure with what is known of this machine, and of others that called meanwhile."""
    since = attempt.inspection.waiting_since if attempt.inspection is not None else None
    refused = _refused_callback(tx, attempt.node, _within_time(attempt, services))
    silent = _silent_ramdisk(tx, attempt.node, _add_dhcp(tx, attempt.node, failure, since))
    return refused or _unknown_callers(tx, silent, since)


def _power_off(attempt: Attempt, journal: Journal, services: Services) -> None:
    if attempt.before.state in MACHINE:
        power_off_quietly(attempt, journal, services)


def _timeout(attempt: Attempt, services: Services) -> Fail:
    """Return the failure of an inspection whose present phase has taken too long."""
    within = _within_time(attempt, services)
    if attempt.before.state is State.STARTING:
        return Fail(Reason.START_TIMEOUT, f"the BMC did not start the machine {within}")
    if attempt.before.state is State.WAITING:
        since = attempt.inspection.waiting_since if attempt.inspection is not None else None
        when = "" if since is None else f", powered on at {utc_text(since)}"
        return Fail(Reason.TIMEOUT, f"no callback from the ramdisk {within}{when}")
    return Fail(Reason.PROCESSING_TIMEOUT, f"processing did not finish {within}")


def _within_time(attempt: Attempt, services: Services) -> str:
    """Return how long it took until somebody looked whether the timeout was over, which is done periodically."""
    timeout = services.settings.inspector.timeout
    since = running_since(attempt.inspection) if attempt.inspection is not None else None
    seconds = timeout if since is None else max(timeout, attempt.request.created_at - since)
    return f"within {round(seconds, 1):g} s"


# "No callback" alone sends the operator to the boot network, which is wrong if the machine did call back and was
# refused, or if it has loaded its boot script: then its firmware, DHCP and the boot host have worked. The api notes
# both on the timeline of the node.

_REFUSED_STEP: Final = "callback-refused"
_SCRIPT_STEP: Final = "boot-script"
# Timeline entries to search, newest first; at most one refusal a minute is noted, so this covers an hour and more.
_MAX_SEARCHED_ENTRIES: Final = 200
_LONGEST_QUOTE: Final = 400


def _refused_callback(tx: Transaction, node: Node, within: str) -> Fail | None:
    """Return the failure by the last callback that was refused; None if none was."""
    refused = _newest(tx, node, _REFUSED_STEP)
    if refused is not None:
        when = f"at {utc_text(refused.at)}; no valid one {within}"
        return Fail(Reason.CALLBACK_REFUSED, f"callback refused: {refused.message[:_LONGEST_QUOTE]}, {when}")
    bmc_addresses = tx.addresses.bmc_of(node.uuid)
    for owner in tx.addresses.owners(bmc_addresses):
        if owner.inbox and owner.uuid != node.uuid:
            message = f"a machine with the same BMC address is in the inbox as node {owner.uuid}"
            return Fail(Reason.CALLBACK_REFUSED, f"{message}; no callback with this node's MACs {within}")
    return None


def _silent_ramdisk(tx: Transaction, node: Node, failure: Fail) -> Fail:
    """Return the failure of a machine that has loaded its boot script as what it is; any other as it was."""
    script = _newest(tx, node, _SCRIPT_STEP)
    if script is None:
        return failure
    message = f"{failure.message}; it loaded its boot script at {utc_text(script.at)} and has been silent since"
    return Fail(Reason.RAMDISK_SILENT, message)


def _add_dhcp(tx: Transaction, node: Node, failure: Fail, since: float | None) -> Fail:
    """Return the failure with what boot hosts know of the machine's DHCP since then; as it was if they know nothing."""
    assigned = _newest(tx, node, DHCP_STEP)
    if assigned is not None:
        return Fail(failure.reason, f"{failure.message}; {assigned.message} at {utc_text(assigned.at)}")
    leases = [lease for lease in tx.leases.list(LEASE_PREFIX) if lease.held]
    records = [decode_record(lease.data) for lease in leases]
    have_seen_it = all(record.dhcp for record in records) and all(lease.acquired_at <= (since or 0) for lease in leases)
    if not records or not have_seen_it or not _boots_from_network(tx, node):
        return failure
    hosts = ", ".join(record.host for record in records)
    return Fail(failure.reason, f"{failure.message}; dnsmasq on {hosts} assigned no address to it")


def _boots_from_network(tx: Transaction, node: Node) -> bool:
    """Whether the machine was to boot from the network."""
    query = Query(
        filters={"node": node.uuid, "inspection": node.inspection}, sort_key="id", limit=_MAX_SEARCHED_ENTRIES
    )
    return any(entry.step == FILTER_STEP for entry in tx.journal.list(query))


def _last_try(tx: Transaction, node: Node, failure: Fail) -> Fail:
    """Return the failure with what the BMC said when the start was tried last; as it was if it has said nothing."""
    tried = _newest(tx, node, "retry")
    if tried is None:
        return failure
    return Fail(failure.reason, f"{failure.message}; the last attempt: {tried.message[:_LONGEST_QUOTE]}")


def _newest(tx: Transaction, node: Node, step: str) -> Entry | None:
    """Return the newest of the steps with this name in the node's inspection, since its machine was booted."""
    filters = {"node": node.uuid, "inspection": node.inspection}
    query = Query(filters=filters, sort_key="id", descending=True, limit=_MAX_SEARCHED_ENTRIES)
    return next((entry for entry in since_boot(tx.journal.list(query)) if entry.step == step), None)


def _unknown_callers(tx: Transaction, failure: Fail, since: float | None) -> Fail:
    """Return the failure with the unknown machines that called since then: one may be this node's."""
    if since is None:
        return failure
    refused = tx.refused_callers.list_unknown(since)
    query = Query(filters={"inbox": True}, descending=True, limit=MAX_COUNTED_DISCOVERIES)
    discovered = [node for node in tx.nodes.list(query) if node.created_at >= since]
    called = count_callers(len(refused), len(discovered))
    if not called:
        return failure
    last = f"; the last: {describe_caller(refused[0])}" if refused else ""
    message = f"{failure.message}; meanwhile {called} called: ferroscope node inbox{last}"
    return Fail(failure.reason, message)


# Commands: they do not change the inspection's state; their failure is the node's ``last_error``.

_POWER_TEXT: Final = {
    Power.CHANGING: "the machine's power state is changing",
    Power.UNKNOWN: "it does not report whether the machine is on or off",
}


def verify(attempt: Attempt, journal: Journal, services: Services) -> Outcome:
    """Check driver_info and ask the BMC for the power state."""
    driver = attempt.driver()
    problem = driver.validate(attempt.node)
    if problem:
        return Fail(problem.reason if isinstance(problem, Problem) else Reason.DRIVER_INFO_INVALID, str(problem))
    try:
        power = driver.get_power(attempt.node)
    except BmcError as exc:
        if exc.transient and attempt.request.payload.get(TRIAL):  # somebody waits for this answer
            return Fail(exc.reason, str(exc))
        raise
    attempt.node.power_state = power.published
    journal.bmc_addresses = resolve_addresses(attempt.node, seconds=services.settings.drivers.command_timeout)
    attempt.learn_machine()
    _learn_boot_device(attempt, journal)
    virtual_media.learn(attempt)
    journal.note("verified", f"the BMC responds: {_POWER_TEXT.get(power, str(power))}")
    return Done()


def _learn_boot_device(attempt: Attempt, journal: Journal) -> None:
    """Store the boot device that the BMC reports; operators see it until they set one."""
    try:
        device, persistent = attempt.driver().get_boot_device(attempt.node)
    except BmcError as exc:
        journal.note("boot device", f"cannot read the boot device: {exc}", severity=Severity.WARNING, reason=exc.reason)
        return
    attempt.node.internal["reported_boot_device"] = {"boot_device": device, "persistent": persistent}


def set_boot_device(attempt: Attempt, journal: Journal, _services: Services) -> Outcome:
    """Set the payload's ``boot_device``, for the next boot or ``persistent``."""
    device = BootDevice(attempt.request.payload["boot_device"])
    persistent = bool(attempt.request.payload.get("persistent", False))
    if keeps_boot_order(attempt.node):
        journal.note("boot device", f"not set to {device}: management_interface leaves the boot order alone")
        return Done()
    bmc = attempt.driver()
    attempt.command(partial(bmc.set_boot_device, attempt.node, device, persistent=persistent))
    journal.note("boot device", f"set to {device} {'persistently' if persistent else 'for the next boot'}")
    return Done()


def delete(attempt: Attempt, journal: Journal, services: Services) -> Outcome:
    """Delete the node, which happens when the outcome is committed. Its machine is left alone unless it is inspected.

    An inspection that was started after the deletion was requested ends as by an abort: afterwards nobody would know
    that the machine's next boot is a ramdisk.
    """
    _power_off(attempt, journal, services)
    return Done()
