"""The status of the service: members, leases, queue, nodes, and problems.

Everything is read in one transaction; clock skew and schema are those that this process sees. Summaries are for people,
all other fields for programs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import msgspec

from ferroscope import __version__
from ferroscope.api.http.context import ApiContext, Services
from ferroscope.api.http.route import Call, NoQuery, Reply
from ferroscope.api.http.schemas import iso_exact
from ferroscope.api.service import shared_macs
from ferroscope.api.service.leases import LeaseView, is_own, view
from ferroscope.config.options import Settings
from ferroscope.contracts.bmc import Simulated
from ferroscope.contracts.queue import MAX_SKEW
from ferroscope.contracts.store import Backlog, Census, Condition, Failures, Query
from ferroscope.core.boot_macs import LEASE_PREFIX, decode_record
from ferroscope.core.model import ClockStep, Lease, Member
from ferroscope.core.values import many
from ferroscope.db.transaction import Transaction
from ferroscope.telemetry import finding
from ferroscope.telemetry.finding import Finding
from ferroscope.telemetry.members import lanes_of, loops_of, name_of


class DatabaseView(msgspec.Struct, frozen=True):
    """``kind``: sqlite, postgresql, mysql or mariadb. ``clock_skew``: seconds by which this process is ahead of it."""

    kind: str
    schema: str | None
    schema_needed: str
    clock_skew: float


class MemberView(msgspec.Struct, frozen=True):
    """A member; ages in seconds. ``silent_for``: seconds since its last heartbeat."""

    id: str
    name: str
    host: str
    pid: int
    role: str
    alive: bool
    age: float
    silent_for: float | None
    started_at: str | None
    version: str | None
    clock_skew: float | None
    status: str
    loops: dict[str, str]
    lanes: dict[str, dict[str, int]]


class QueueView(msgspec.Struct, frozen=True):
    """The requests of one event; ``oldest`` is the age in seconds of the oldest one in the queue."""

    event: str
    waiting: int
    claimed: int
    oldest: float


class StatusView(msgspec.Struct, frozen=True):
    """``problems``: findings with code, summary and advice; none has the verdict ``wrong`` if the service is healthy.

    Dead members with a successor are omitted. ``leases`` are Ferroscope's own and some others, without their data;
    ``leases_total`` is the number of all leases. ``failed``: the nodes whose last inspection failed, by reason code;
    ``maintenance`` and ``inbox``: the nodes there.
    """

    at: str | None
    process: str
    version: str
    database: DatabaseView
    members: list[MemberView]
    leases: list[LeaseView]
    leases_total: int
    pxe_filters: list[PxeFilterView]
    queue: list[QueueView]
    nodes: dict[str, int]
    failed: dict[str, int]
    maintenance: int
    inbox: int
    problems: list[Finding]


class PxeFilterView(msgspec.Struct, frozen=True):
    """The PXE filter of a network: the host on which it is open, seconds until its lease expires, applied changes."""

    network: str
    open: bool
    host: str | None
    holder: str | None
    epoch: int
    remaining: float
    allowed: int
    denied: int
    applied: int
    missing: int
    backends: list[str]


_FOREIGN_LEASES: Final = 50
_ORPHANS: Final = Query(before={"orphaned_at": 1e15}, limit=1)


# Age in seconds from which a request is reported; a burst of starts takes a few minutes.
_OLD_REQUEST: Final = 300.0


class Seen(msgspec.Struct, frozen=True):
    """The data of one transaction; ``skew`` as in ``DatabaseView``. ``unreached``: ramdisks cannot reach the API."""

    now: float
    skew: float
    members: Sequence[Member]
    leases: Sequence[Lease]
    backlog: Sequence[Backlog]
    census: Census = Census()
    unreached: bool = False
    unmanaged: bool = False
    clock_steps: Sequence[ClockStep] = ()
    orphans: bool = False
    failed: Sequence[Failures] = ()
    shared_hardware: Sequence[Finding] = ()


def get_status(context: ApiContext, _call: Call[NoQuery, None]) -> Reply:
    """Show members, leases, queue, nodes and problems."""

    def work(tx: Transaction) -> Seen:
        skew = context.process.clock.time() - tx.now
        return Seen(
            now=tx.now,
            skew=skew,
            members=tx.members.list(),
            leases=_leases(tx),
            backlog=tx.statistics.backlog(),
            census=tx.statistics.census(),
            failed=tx.statistics.failures(),
            unreached=context.settings.hidden_from_ramdisks and _has_machines(context.services, tx),
            unmanaged=context.settings.boots_unmanaged_by_silence and _has_machines(context.services, tx),
            clock_steps=tx.clock_steps.list(),
            shared_hardware=shared_macs.findings(context.settings.inspector, shared_macs.find(context, tx)),
            orphans=_may_have_orphans(context.settings) and bool(tx.nodes.list(_ORPHANS)),
        )

    seen = context.data.store.read(work)
    database = context.data.describe()
    counts: dict[str, int] = defaultdict(int)
    for row in seen.census.nodes:
        counts[str(row.provision_state)] += row.nodes
    names = {member.id: name_of(member) for member in seen.members}
    missing = finding.missing(seen.members, seen.now)
    shown = [member for member in seen.members if member.is_alive(seen.now) or member in missing]
    return Reply(
        200,
        StatusView(
            at=iso_exact(seen.now),
            process=context.process.name,
            version=__version__,
            database=DatabaseView(database.kind, database.schema, database.schema_needed, round(seen.skew, 4)),
            members=[_member(member, seen.now) for member in shown],
            leases=[_lease(lease, names) for lease in _shown(seen.leases)],
            leases_total=len(seen.leases),
            pxe_filters=[_pxe_filter(lease, names) for lease in seen.leases if lease.name.startswith(LEASE_PREFIX)],
            queue=[_queue(row, seen.now) for row in seen.backlog],
            nodes=dict(counts),
            failed={one.reason: one.nodes for one in seen.failed},
            maintenance=seen.census.maintenance,
            inbox=seen.census.inbox,
            problems=problems(seen, context.process.name),
        ),
    )


def problems(seen: Seen, process: str) -> list[Finding]:
    """Return the findings: errors first, then notes."""
    alive = [member for member in seen.members if member.is_alive(seen.now)]
    found = [finding.dead(member, seen.now) for member in finding.missing(seen.members, seen.now)]
    if not any(member.works for member in alive):
        waiting = sum(row.waiting for row in seen.backlog)
        summary = f"no worker is alive; waiting requests: {waiting}" if waiting else "no worker is alive"
        found.insert(0, Finding("no-worker", "wrong", summary, "start one: ferroscope worker"))
    found += [_old(row, seen.now) for row in seen.backlog if row.waiting and seen.now - row.oldest > _OLD_REQUEST]
    if abs(seen.skew) > MAX_SKEW:
        found.append(finding.skew_of(process, seen.skew))
    found += [_closed(lease) for lease in seen.leases if _is_closed(lease)]
    found += (
        finding.clock_steps(seen.clock_steps, seen.now)
        + finding.reported_findings(alive)
        + finding.clock_skews(alive)
        + finding.drift(alive)
    )
    if seen.census.inbox:
        advice = "list them with 'ferroscope node inbox', and approve or reject them"
        found.append(Finding("inbox", "note", "nodes are waiting in the inbox", advice, "inbox == yes"))
    if deviating := seen.census.condition.deviating:
        summary = f"the hardware of {many(deviating, 'machine')} is not as expected"
        advice = "correct the machines or the expectations; to list both, run: ferroscope expect report"
        found.append(Finding("hardware-deviates", "note", summary, advice, "deviating == yes"))
    found += _unwell(seen.census.condition)
    if seen.orphans:
        found.append(Finding("orphans", "note", "some nodes no longer exist in the registry", search="has orphaned"))
    found += seen.shared_hardware
    if seen.unreached:
        found.append(finding.API_ON_LOOPBACK)
    if seen.unmanaged and not any(lease.name.startswith(LEASE_PREFIX) for lease in seen.leases):
        found.append(finding.UNMANAGED_BOOT)
    return sorted(found, key=lambda one: one.verdict != "wrong")


def _unwell(condition: Condition) -> list[Finding]:
    known = (
        (
            "health-critical",
            condition.critical,
            "critical health",
            "health[component == machine and state == critical]",
        ),
        ("drives-failing", condition.failing_drives, "a drive that is failing", "health.component == drive"),
    )
    return [
        Finding(
            code,
            "note",
            f"{many(number, 'machine reports', 'machines report')} {what}",
            search=search,
        )
        for code, number, what, search in known
        if number
    ]


def _may_have_orphans(settings: Settings) -> bool:
    return settings.registry.backend != "embedded" or bool(settings.registry.url)


def _leases(tx: Transaction) -> list[Lease]:
    """Return all leases; only those of PXE filters with their data, because that of others may be large."""
    pxe_filters = {lease.name: lease for lease in tx.leases.list(LEASE_PREFIX)}
    return [pxe_filters.get(lease.name, lease) for lease in tx.leases.list(brief=True)]


def _shown(leases: Sequence[Lease]) -> list[Lease]:
    """Return the service's own leases, and a limited number of others."""
    foreign = [lease.name for lease in sorted(leases, key=lambda one: not one.held) if not is_own(lease.name)]
    left_out = set(foreign[_FOREIGN_LEASES:])
    return [lease for lease in leases if lease.name not in left_out]


def _member(member: Member, now: float) -> MemberView:
    report = member.detail
    ttl, skew = report.get("heartbeat"), report.get("clock_skew")
    silent = None if not isinstance(ttl, int | float) else max(0.0, round(now - member.expires_at + ttl, 3))
    return MemberView(
        id=member.id,
        name=name_of(member),
        host=member.host,
        pid=member.pid,
        role=member.role,
        alive=member.is_alive(now),
        age=max(0.0, round(now - member.started_at, 3)),
        silent_for=silent,
        started_at=iso_exact(member.started_at),
        version=str(report["version"]) if "version" in report else None,
        clock_skew=float(skew) if isinstance(skew, int | float) else None,
        status=member.status,
        loops=loops_of(member),
        lanes=lanes_of(member),
    )


def _lease(lease: Lease, names: dict[str, str]) -> LeaseView:
    """Return a lease with its holder's readable name, if the holder is a member."""
    shown = view(lease)
    return msgspec.structs.replace(shown, holder=names.get(shown.holder or "", shown.holder))


def _pxe_filter(lease: Lease, names: dict[str, str]) -> PxeFilterView:
    record, held = decode_record(lease.data), lease.held
    return PxeFilterView(
        network=lease.name.removeprefix(LEASE_PREFIX),
        open=held and record.open,
        host=record.host or None,
        holder=names.get(lease.holder or "", lease.holder),
        epoch=lease.epoch,
        remaining=round(lease.remaining, 3),
        allowed=record.allowed,
        denied=record.denied,
        applied=record.applied,
        missing=len(record.missing),
        backends=list(record.backends),
    )


def _is_closed(lease: Lease) -> bool:
    """Return whether a network's filter is in use, but not open on any host; a cleanly stopped filter is not in use."""
    if not lease.name.startswith(LEASE_PREFIX) or lease.holder is None:
        return False
    return not lease.held or not decode_record(lease.data).open


def _closed(lease: Lease) -> Finding:
    network = lease.name.removeprefix(LEASE_PREFIX)
    summary = f"the PXE filter of the network {network} is not open on any host: machines cannot boot"
    return Finding("pxe-filter-closed", "wrong", summary, "check the log of ferroscope pxe-filter on the boot hosts")


def _has_machines(services: Services, tx: Transaction) -> bool:
    """Return whether there are nodes with real BMCs, whose ramdisks boot on other machines."""
    real = [name for name, driver in services.drivers.items() if not isinstance(driver, Simulated)]
    return any(tx.nodes.list(Query(filters={"driver": name}, limit=1)) for name in real)


def _old(row: Backlog, now: float) -> Finding:
    summary = f"waiting {row.event} requests: {row.waiting}; the oldest is {now - row.oldest:.0f} s old"
    return Finding("queue-old", "note", summary, "check the utilization of the workers; start more workers")


def _queue(row: Backlog, now: float) -> QueueView:
    return QueueView(str(row.event), row.waiting, row.claimed, max(0.0, round(now - row.oldest, 3)))
