"""One task for each event that has one: what the worker does once the state machine has taken the event.

A task receives the attempt. It acts on the machine and on the attempt's copies, and returns an outcome; it commits
nothing itself. Automatic events without a task (``wait``) only move the state. The two long tasks are in ``start`` and
``process``, the commands of operators in ``commands``; here are those that end an inspection.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from ferroscope.contracts.store import Query
from ferroscope.core.boot import since_boot
from ferroscope.core.boot_macs import DHCP_STEP, FILTER_STEP, LEASE_PREFIX, decode_record
from ferroscope.core.delivery import Done, Fail, Outcome, failure_of, is_overdue, running_since
from ferroscope.core.lookup import describe_caller
from ferroscope.core.model import Entry, Node
from ferroscope.core.states import WORKED_ON, Event
from ferroscope.db import Transaction
from ferroscope.hooks.pipeline import Pipeline
from ferroscope.worker import commands, machine, restart
from ferroscope.worker.attempt import Attempt, Locked
from ferroscope.worker.machine import power_off_quietly
from ferroscope.worker.process import ProcessTask, RuleStep, finish
from ferroscope.worker.services import ReadsAhead, Task
from ferroscope.worker.start import PxeFilterWait, RebootThrottle, StartTask
from ferroscope_client.core.advice import MAX_COUNTED_DISCOVERIES, count_callers
from ferroscope_client.core.reasons import CANCELED, Reason
from ferroscope_client.core.states import MACHINE, State
from ferroscope_client.core.values import utc_text


class InspectionTasks(msgspec.Struct, frozen=True):
    """The tasks that an attached Ironic replaces; ``process`` is that of ``continue`` and ``reapply``."""

    start: Task
    process: ReadsAhead
    finish: Task


def build(
    pipeline: Pipeline,
    throttle: RebootThrottle,
    pxe_filter: PxeFilterWait,
    rules: RuleStep | None = None,
    replace: Callable[[InspectionTasks], InspectionTasks] = lambda own: own,
) -> Mapping[Event, Task]:
    """Return the task of each event that has one; an attached Ironic may ``replace`` those of an inspection."""
    process = ProcessTask(pipeline, rules or RuleStep())
    inspection = replace(InspectionTasks(StartTask(throttle, pxe_filter), process, finish))
    return {
        Event.INSPECT: inspection.start,
        Event.CONTINUE: inspection.process,
        Event.REAPPLY: inspection.process,
        Event.FINISH: inspection.finish,
        Event.FAIL: fail,
        Event.ABORT: abort,
        Event.TIMEOUT: time_out,
        Event.DELETE: delete,
        Event.VERIFY: commands.verify,
        Event.SET_POWER: commands.set_power,
        Event.SET_BOOT_DEVICE: commands.set_boot_device,
        Event.ATTACH_VMEDIA: machine.attach_media,
        Event.DETACH_VMEDIA: machine.detach_media,
        Event.SET_PASSWORD: commands.set_password,
    }


# The end of an inspection


def abort(attempt: Attempt) -> Outcome:
    """End the inspection by the operator's request."""
    _power_off(attempt)
    return Fail(Reason.ABORTED, CANCELED)


def fail(attempt: Attempt) -> Outcome:
    """End the inspection as the payload says: ``reason`` and ``message`` of a failure in the compute lane."""
    _power_off(attempt)
    return failure_of(attempt.request)


def delete(attempt: Attempt) -> Outcome:
    """Delete the node, which happens when the outcome is committed. Its machine is left alone unless it is inspected.

    An inspection that was started after the request to delete ends as by an abort: afterwards no one would know that
    the machine's next boot is a ramdisk.
    """
    _power_off(attempt)
    return Done()


def _power_off(attempt: Attempt) -> None:
    """Power off, unless stored data was processed."""
    if attempt.before.state in MACHINE:
        power_off_quietly(attempt)


def time_out(attempt: Attempt) -> Outcome:
    """Power off and fail, naming what took too long."""
    ignored = restart.missed_restart(attempt, machine.boot_method_if_any(attempt))
    power_off_quietly(attempt)
    within = _within_time(attempt)
    if attempt.before.state is State.STARTING:
        return attempt.store.read(lambda tx: _explain_start(tx, attempt.node, within))
    if attempt.before.state is not State.WAITING:
        return Fail(Reason.PROCESSING_TIMEOUT, f"processing did not finish {within}")
    if ignored is not None:
        return Fail(Reason.NOT_RESTARTED, ignored)
    return attempt.store.read(lambda tx: _explain_silence(tx, attempt, within))


def is_still_overdue(tx: Transaction, locked: Locked, timeout: float) -> bool:
    """Whether a request to time out still applies; True for all other requests."""
    request, inspection = locked.claim.request, locked.inspection
    if request.event is not Event.TIMEOUT or inspection is None or is_overdue(inspection, tx.now, timeout):
        return True
    if locked.node.state not in WORKED_ON:
        return False
    # The attempt that worked on it may have left the end to this request. If there is no other, it must not be lost.
    pending = tx.requests.pending(locked.node.uuid)
    return not any(queued.id != request.id and queued.inspection == request.inspection for queued in pending)


def _within_time(attempt: Attempt) -> str:
    """Return how long it took until the periodic check found the inspection overdue."""
    timeout = attempt.settings.inspector.timeout
    since = running_since(attempt.inspection) if attempt.inspection is not None else None
    seconds = timeout if since is None else max(timeout, attempt.request.created_at - since)
    return f"within {round(seconds, 1):g} s"


# "No callback" alone sends the operator to the boot network. That is wrong if the machine called back and was refused,
# or if it loaded its boot script: then its firmware, DHCP and the boot host have worked. The API notes both on the
# node's timeline.

_REFUSED_STEP: Final = "callback-refused"
_SCRIPT_STEP: Final = "boot-script"
# Timeline entries to search, newest first. At most one refusal a minute is noted, so this covers an hour and more.
_MAX_SEARCHED_ENTRIES: Final = 200
_MAX_QUOTED_CHARACTERS: Final = 400


def _explain_start(tx: Transaction, node: Node, within: str) -> Fail:
    """Return the failure of a start, with what the BMC said at the last try."""
    message = f"the BMC did not start the machine {within}"
    if (tried := _newest_steps(tx, node).get("retry")) is not None:
        message += f"; the last attempt: {tried.message[:_MAX_QUOTED_CHARACTERS]}"
    return Fail(Reason.START_TIMEOUT, message)


def _explain_silence(tx: Transaction, attempt: Attempt, within: str) -> Fail:
    """Return the failure of a ramdisk that did not call back, with what is known of this machine and of others."""
    node, steps = attempt.node, _newest_steps(tx, attempt.node)
    if (refused := steps.get(_REFUSED_STEP)) is not None:
        message = f"callback refused: {refused.message[:_MAX_QUOTED_CHARACTERS]}, at {utc_text(refused.at)}"
        return Fail(Reason.CALLBACK_REFUSED, f"{message}; no valid one {within}")
    for owner in tx.addresses.owners(tx.addresses.bmc_of(node.uuid)):
        if owner.inbox and owner.uuid != node.uuid:
            message = f"a machine with the same BMC address is in the inbox as node {owner.uuid}"
            return Fail(Reason.CALLBACK_REFUSED, f"{message}; no callback with this node's MACs {within}")
    since = attempt.inspection.waiting_since if attempt.inspection is not None else None
    message = f"no callback from the ramdisk {within}"
    message += "" if since is None else f", powered on at {utc_text(since)}"
    message += _describe_dhcp(tx, node, steps, since)
    reason, script = Reason.TIMEOUT, steps.get(_SCRIPT_STEP)
    if script is not None:
        reason = Reason.RAMDISK_SILENT
        message += f"; it loaded its boot script at {utc_text(script.at)} and has been silent since"
    return Fail(reason, message + _describe_unknown_callers(tx, since))


def _describe_dhcp(tx: Transaction, node: Node, steps: Mapping[str, Entry], since: float | None) -> str:
    """Return what boot hosts know of the machine's DHCP since then; "" if they know nothing."""
    if (assigned := steps.get(DHCP_STEP)) is not None:
        return f"; {assigned.message} at {utc_text(assigned.at)}"
    leases = [lease for lease in tx.leases.list(LEASE_PREFIX) if lease.held]
    records = [decode_record(lease.data) for lease in leases]
    have_seen_it = all(record.dhcp for record in records) and all(lease.acquired_at <= (since or 0) for lease in leases)
    if not records or not have_seen_it:
        return ""
    filters = {"node": node.uuid, "inspection": node.inspection}
    query = Query(filters=filters, sort_key="id", limit=_MAX_SEARCHED_ENTRIES)
    if not any(entry.step == FILTER_STEP for entry in tx.journal.list(query)):  # it was not to boot from the network
        return ""
    hosts = ", ".join(record.host for record in records)
    if all(record.requests for record in records):
        return f"; no DHCP request of it reached {hosts}"
    return f"; dnsmasq on {hosts} assigned no address to it"


def _newest_steps(tx: Transaction, node: Node) -> dict[str, Entry]:
    """Return the newest step of each name in the node's inspection, since its machine was booted."""
    filters = {"node": node.uuid, "inspection": node.inspection}
    query = Query(filters=filters, sort_key="id", descending=True, limit=_MAX_SEARCHED_ENTRIES)
    newest: dict[str, Entry] = {}
    for entry in since_boot(tx.journal.list(query)):
        newest.setdefault(entry.step, entry)
    return newest


def _describe_unknown_callers(tx: Transaction, since: float | None) -> str:
    """Return which unknown machines called since then: one may be this node's."""
    if since is None:
        return ""
    refused = tx.refused_callers.list_unknown(since)
    query = Query(filters={"inbox": True}, descending=True, limit=MAX_COUNTED_DISCOVERIES)
    discovered = [node for node in tx.nodes.list(query) if node.created_at >= since]
    called = count_callers(len(refused), len(discovered))
    if not called:
        return ""
    last = f"; the last: {describe_caller(refused[0])}" if refused else ""
    return f"; meanwhile {called} called: ferroscope node inbox{last}"
