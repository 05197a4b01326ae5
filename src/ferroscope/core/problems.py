"""What is wrong with the service and its machines: the only list, for every place that shows problems.

``ferroscope status``, ``ferroscope top``, the web page, ``ferroscope explain`` and the metrics show what
``list_problems`` returns, in its order and its words. Pure: ``api.service.status.read_facts`` reads the facts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from ferroscope.core import finding
from ferroscope.core.boot_macs import LEASE_PREFIX, decode_record
from ferroscope.core.counts import Backlog, Census, Failures, HardwareCondition
from ferroscope.core.lanes import lane_of
from ferroscope.core.lookup import RefusedCaller
from ferroscope.core.model import ClockStep, Lease, Member
from ferroscope_client.core.database_fault import DATABASE_CODES, DatabaseFailure
from ferroscope_client.core.explanations import HINTS
from ferroscope_client.core.finding import Finding
from ferroscope_client.core.obstacles import count_slots, search_command
from ferroscope_client.core.reasons import Reason
from ferroscope_client.core.values import many

# A burst of starts takes a few minutes.
OLD_REQUEST_SECONDS: Final = 300.0
# A successor leads within seconds.
MISSING_LEADER_SECONDS: Final = 60.0
# The end of the status of a task that is configured never to run.
DISABLED: Final = " is disabled"
MACHINE_ERRORS: Final = "machine-errors"


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What ``list_problems`` decides on; times are those of the database.

    ``process`` is the name of the process that read them, and ``skew`` the seconds by which its clock is ahead.
    ``failure``: why it cannot write to the database; None: it can. ``hidden_api``: ramdisks cannot reach the API.
    ``unmanaged_boot``: nothing is configured that boots machines. ``shared_hardware`` is about nodes with hardware in
    common. ``unknown_callers``: the newest first.
    """

    now: float
    process: str = ""
    skew: float = 0.0
    failure: DatabaseFailure | None = None
    members: Sequence[Member] = ()
    leases: Sequence[Lease] = ()
    backlog: Sequence[Backlog] = ()
    clock_steps: Sequence[ClockStep] = ()
    failures: Sequence[Failures] = ()
    census: Census = Census()
    orphans: bool = False
    hidden_api: bool = False
    unmanaged_boot: bool = False
    shared_hardware: Sequence[Finding] = ()
    unknown_callers: Sequence[RefusedCaller] = ()

    def is_alive(self, member: Member) -> bool:
        """Whether the member is alive. The process that read the facts is, even if it cannot write its heartbeat."""
        return member.is_alive(self.now) or (self.failure is not None and member.name == self.process)


def list_problems(facts: Facts) -> list[Finding]:
    """Return the problems: errors before notes, and a cause before its consequences."""
    alive = [member for member in facts.members if facts.is_alive(member)]
    problems = [
        *_list_dead_members(facts, alive),
        *_list_leases(facts, alive),
        *_list_queues(facts, alive),
        *finding.reported_findings(alive),
        *finding.clock_steps(facts.clock_steps, facts.now),
        *([finding.skew_of(facts.process, facts.skew)] if finding.is_skewed(facts.skew) else ()),
        *finding.clock_skews(alive),
        *finding.drift(alive),
        *list_machine_problems(facts.failures, facts.census.inbox, facts.census.condition),
        *finding.refused_callers(facts.unknown_callers),
        *facts.shared_hardware,
        *_list_missing_services(facts),
    ]
    # Several members may report the same.
    return sorted(dict.fromkeys(problems), key=lambda problem: problem.verdict != "wrong")


def list_machine_problems(failures: Sequence[Failures], inbox: int, condition: HardwareCondition) -> Iterator[Finding]:
    """Yield what needs attention among machines."""
    for failed in failures:
        error = f"the error {failed.reason}" if failed.reason else "an error without a reason code"
        more = f" and {failed.nodes - 1:,} more" if failed.nodes > 1 else ""
        summary = f"{many(failed.nodes, 'machine has', 'machines have')} {error}: {failed.example}{more}"
        search = f"reason=={failed.reason}" if failed.reason else "has error"
        hint = HINTS[Reason(failed.reason)] if failed.reason else ""
        yield _make_machine_problem(MACHINE_ERRORS, summary, search, hint)
    if inbox:
        advice = "list them with 'ferroscope node inbox', and approve or reject them"
        summary = f"{many(inbox, 'machine waits', 'machines wait')} for approval"
        yield Finding("inbox", "note", summary, advice, "inbox == yes")
    if condition.deviating:
        summary = f"the hardware of {many(condition.deviating, 'machine')} is not as expected"
        advice = "correct the machines or the expectations; to list both, run: ferroscope expect report"
        yield Finding("hardware-deviates", "note", summary, advice, "deviating == yes")
    if condition.critical:
        summary = f"{many(condition.critical, 'machine reports', 'machines report')} critical health"
        yield _make_machine_problem("health-critical", summary, "health[component == machine and state == critical]")
    if condition.failing_drives:
        summary = f"{many(condition.failing_drives, 'machine reports', 'machines report')} a drive that is failing"
        yield _make_machine_problem("drives-failing", summary, "health.component == drive")


def _list_missing_services(facts: Facts) -> Iterator[Finding]:
    """Yield services that machines lack: a registry that knows them, and an API and a boot host that they reach."""
    if facts.orphans:
        yield _make_machine_problem("orphans", "some nodes no longer exist in the registry", "has orphaned")
    if facts.hidden_api:
        yield finding.API_ON_LOOPBACK
    if facts.unmanaged_boot and not any(lease.name.startswith(LEASE_PREFIX) for lease in facts.leases):
        yield finding.UNMANAGED_BOOT


def _make_machine_problem(code: str, summary: str, search: str, hint: str = "") -> Finding:
    command = search_command({"search": search})
    return Finding(code, "note", summary, f"{hint} List them: {command}" if hint else f"list them: {command}", search)


def _list_dead_members(facts: Facts, alive: Sequence[Member]) -> Iterator[Finding]:
    """Yield why the database cannot be written, which explains missing heartbeats; otherwise the dead members."""
    if facts.failure is not None:
        fault = facts.failure.fault
        summary = f"{facts.process} cannot write to the database: {facts.failure.message}"
        advice = f"{fault.advice}; for details, run on its host: ferroscope doctor"
        yield Finding(DATABASE_CODES[fault], "wrong", summary, advice)
        return
    if not any(member.works for member in alive):
        waiting = sum(row.waiting for row in facts.backlog)
        summary = f"no worker is alive; waiting requests: {waiting}" if waiting else "no worker is alive"
        yield Finding("no-worker", "wrong", summary, "start one: ferroscope worker")
    for member in finding.missing(facts.members, facts.now):
        yield finding.dead(member, facts.now)


def _list_leases(facts: Facts, alive: Sequence[Member]) -> Iterator[Finding]:
    """Yield tasks without a leader although members take part in them, and PXE filters that are closed."""
    campaigning = alive if facts.failure is None else ()
    tasks = {name for member in campaigning for name, text in member.loops.items() if not text.endswith(DISABLED)}
    for lease in facts.leases:
        if lease.name.startswith(LEASE_PREFIX):
            # A filter that was stopped has released its lease.
            if lease.holder is not None and not (lease.held and decode_record(lease.data).open):
                network = lease.name.removeprefix(LEASE_PREFIX)
                summary = f"the PXE filter of network {network} is not open on any host: machines cannot boot from it"
                advice = "check the log of ferroscope pxe-filter on the boot hosts"
                yield Finding("pxe-filter-closed", "wrong", summary, advice)
        elif lease.name in tasks and not lease.held and (free := facts.now - lease.expires_at) > MISSING_LEADER_SECONDS:
            summary = f"no process has led {lease.name} for {free:.0f} s"
            advice = "check the workers' logs for this lease, then run on their hosts: ferroscope doctor"
            yield Finding("lease-not-held", "wrong", summary, advice)


def _list_queues(facts: Facts, alive: Sequence[Member]) -> Iterator[Finding]:
    """Yield the events with old requests, and whether their lane has free slots."""
    for row in facts.backlog:
        if not row.waiting or facts.now - row.oldest <= OLD_REQUEST_SECONDS:
            continue
        summary = f"waiting {row.event} requests: {row.waiting}; the oldest is {facts.now - row.oldest:.0f} s old"
        slots, busy = count_slots(member.lanes.get(lane_of(row.event), {}) for member in alive)
        advice = "check the workers' logs, and silent BMCs: ferroscope top"
        if 0 < slots <= busy:
            summary += f"; all {many(slots, 'slot')} of the workers are busy"
            advice = "wait, or start another worker: ferroscope worker"
        yield Finding("queue-old", "note", summary, advice)
