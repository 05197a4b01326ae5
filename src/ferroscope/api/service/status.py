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
from ferroscope.api.http.context import ApiContext, ApiServices
from ferroscope.api.http.route import NoQuery, Reply, RouteCall
from ferroscope.api.http.schemas import iso_exact
from ferroscope.api.service import shared_macs
from ferroscope.api.service.leases import LeaseView, is_own, view
from ferroscope.config.options import Settings
from ferroscope.contracts.bmc import Simulated
from ferroscope.core import finding
from ferroscope.core.boot_macs import LEASE_PREFIX, decode_record
from ferroscope.core.counts import Backlog, Census
from ferroscope.core.model import Lease, Member
from ferroscope.core.problems import Facts, list_problems
from ferroscope.db import Transaction
from ferroscope_client.core.finding import Finding


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
    ``leases_total`` is the number of all leases. ``failed``: the nodes with a last error, by reason code, "" if it has
    none; ``maintenance`` and ``inbox``: the nodes there.
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


# Machines that called longer ago have probably been dealt with.
_CALLERS_SECONDS: Final = 86_400.0


def read_facts(context: ApiContext, tx: Transaction) -> Facts:
    """Return what ``list_problems`` decides on, as this process sees it."""
    settings, clock, fleet = context.settings, context.process.clock, tx.statistics.fleet()
    hidden, unmanaged = settings.hidden_from_ramdisks, settings.boots_unmanaged_by_silence
    boots_machines = (hidden or unmanaged) and _has_machines(context.services, fleet.census)
    return Facts(
        now=tx.now,
        process=context.process.name,
        skew=clock.time() - tx.now,
        failure=context.data.read_write_failure(clock.monotonic(), at_once=True),
        members=tx.members.list(),
        leases=_leases(tx),
        backlog=tx.statistics.backlog(),
        census=fleet.census,
        failures=fleet.failures,
        hidden_api=hidden and boots_machines,
        unmanaged_boot=unmanaged and boots_machines,
        clock_steps=tx.clock_steps.list(),
        shared_hardware=shared_macs.findings(settings.inspector, shared_macs.find(context, tx)),
        unknown_callers=tx.refused_callers.list_unknown(tx.now - _CALLERS_SECONDS),
        orphans=_may_have_orphans(settings) and bool(fleet.census.orphans),
    )


def get_status(context: ApiContext, _call: RouteCall[NoQuery, None]) -> Reply:
    """Show members, leases, queue, nodes and problems."""
    facts = context.data.store.read(lambda tx: read_facts(context, tx))
    database = context.data.describe()
    counts: dict[str, int] = defaultdict(int)
    for row in facts.census.nodes:
        counts[str(row.provision_state)] += row.nodes
    names = {member.id: member.name for member in facts.members}
    missing = finding.missing(facts.members, facts.now)
    shown = [member for member in facts.members if facts.is_alive(member) or member in missing]
    return Reply(
        200,
        StatusView(
            at=iso_exact(facts.now),
            process=context.process.name,
            version=__version__,
            database=DatabaseView(database.kind, database.schema, database.schema_needed, round(facts.skew, 4)),
            members=[_member(member, facts) for member in shown],
            leases=[_lease(lease, names) for lease in _shown_leases(facts.leases)],
            leases_total=len(facts.leases),
            pxe_filters=[_pxe_filter(lease, names) for lease in facts.leases if lease.name.startswith(LEASE_PREFIX)],
            queue=[_queue(row, facts.now) for row in facts.backlog],
            nodes=dict(counts),
            failed={failed.reason: failed.nodes for failed in facts.failures},
            maintenance=facts.census.maintenance,
            inbox=facts.census.inbox,
            problems=list_problems(facts),
        ),
    )


def _may_have_orphans(settings: Settings) -> bool:
    return settings.registry.backend != "embedded" or bool(settings.registry.url)


def _leases(tx: Transaction) -> list[Lease]:
    """Return all leases; only those of PXE filters with their data, because that of others may be large."""
    pxe_filters = {lease.name: lease for lease in tx.leases.list(LEASE_PREFIX)}
    return [pxe_filters.get(lease.name, lease) for lease in tx.leases.list(brief=True)]


def _shown_leases(leases: Sequence[Lease]) -> list[Lease]:
    """Return the service's own leases, and a limited number of others."""
    foreign = [
        lease.name for lease in sorted(leases, key=lambda candidate: not candidate.held) if not is_own(lease.name)
    ]
    left_out = set(foreign[_FOREIGN_LEASES:])
    return [lease for lease in leases if lease.name not in left_out]


def _member(member: Member, facts: Facts) -> MemberView:
    report = member.detail
    ttl, skew = report.get("heartbeat"), report.get("clock_skew")
    silent = None if not isinstance(ttl, int | float) else max(0.0, round(facts.now - member.expires_at + ttl, 3))
    return MemberView(
        id=member.id,
        name=member.name,
        host=member.host,
        pid=member.pid,
        role=member.role,
        alive=facts.is_alive(member),
        age=max(0.0, round(facts.now - member.started_at, 3)),
        silent_for=silent,
        started_at=iso_exact(member.started_at),
        version=str(report["version"]) if "version" in report else None,
        clock_skew=float(skew) if isinstance(skew, int | float) else None,
        status=member.status,
        loops=member.loops,
        lanes=member.lanes,
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


def _has_machines(services: ApiServices, census: Census) -> bool:
    """Return whether there are nodes with real BMCs, whose ramdisks boot on other machines."""
    real = [name for name, driver in services.drivers.items() if not isinstance(driver, Simulated)]
    return any(name in census.drivers for name in real)


def _queue(row: Backlog, now: float) -> QueueView:
    return QueueView(str(row.event), row.waiting, row.claimed, max(0.0, round(now - row.oldest, 3)))
