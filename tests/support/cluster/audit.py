"""The audit after fault injection: what was accepted, what ended, and how often each step took effect.

Sources: the operator's account of accepted requests, the database, and the counters of the fleet, which count
what really happened to the machines.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

import msgspec
from sqlalchemy import text

from ferroscope_sim.outcomes import outcome_of
from tests.support.cluster.cluster import Cluster
from tests.support.cluster.operator import Operator
from tests.support.databases import opened

_INSPECTIONS = (
    "SELECT i.uuid, i.node, n.name, i.state, i.reason, i.error FROM inspections i JOIN nodes n ON n.uuid = i.node"
)
_JOURNAL = "SELECT id, inspection, step FROM journal WHERE inspection IS NOT NULL ORDER BY id"
_REQUESTS = "SELECT node, event, holder, attempt FROM requests"
_RESTLESS = "SELECT name, state, provision_state FROM nodes WHERE state IN ('starting', 'waiting', 'processing')"
_ENDS = frozenset({"finished", "failed"})


class Audit(msgspec.Struct, kw_only=True):
    """Counts; everything in ``violations`` must not be."""

    accepted: int = 0
    inspections: int = 0
    finished: int = 0
    own_fault: int = 0
    other_errors: dict[str, int] = {}
    lost: int = 0
    power_ons: int = 0
    power_ons_of_inspections: int = 0
    boots_twice: int = 0
    processed: int = 0
    processed_twice: int = 0
    stale_writes: int = 0
    delivered_again: int = 0
    left_over: int = 0
    failed_requests: int = 0
    violations: list[str] = []

    def lines(self) -> list[str]:
        """Return the counts, one a line."""
        return [f"{name:>26}  {value}" for name, value in msgspec.to_builtins(self).items() if name != "violations"]


def audit(cluster: Cluster, operator: Operator) -> Audit:
    """Look at everything; the installation must be at rest."""
    with opened(cluster.database_url) as engine, engine.connect() as connection:
        inspections = connection.execute(text(_INSPECTIONS)).all()
        journal = connection.execute(text(_JOURNAL)).all()
        requests = connection.execute(text(_REQUESTS)).all()
        restless = connection.execute(text(_RESTLESS)).all()
    found = Audit(
        accepted=operator.accepted,
        inspections=len(inspections),
        lost=len(operator.lost) + len(restless),
        left_over=len(requests),
        failed_requests=len(operator.failed),
    )
    _judge_ends(found, inspections)
    _judge_journal(found, journal)
    _judge_machines(found, cluster, inspections)
    found.violations += [f"lost: {flight.name} is {flight.state}" for flight in operator.lost]
    found.violations += [f"not at rest: {tuple(row)}" for row in restless]
    found.violations += [f"left on the queue: {tuple(row)}" for row in requests]
    there = Counter(row[2] for row in inspections)
    for name, count in Counter(flight.name for flight in (*operator.flights, *operator.lost)).items():
        if count > there[name]:
            states = [flight.state for flight in operator.flights if flight.name == name]
            found.violations.append(
                f"{name}: {count} inspections were accepted, {there[name]} are there: {states[-5:]}"
            )
    return found


def _judge_ends(found: Audit, inspections: Sequence[tuple[str, ...]]) -> None:
    errors: Counter[str] = Counter()
    for uuid, _, name, state, reason, error in inspections:
        ends = outcome_of(name).ends
        if state == "finished":
            found.finished += 1
        elif state == "error" and not ends.startswith("finished"):
            found.own_fault += 1
        else:
            errors[str(reason)] += 1
            found.violations.append(f"{name}: inspection {uuid} is {state}: {reason}: {error}")
    found.other_errors = dict(errors)


def _judge_journal(found: Audit, journal: Sequence[tuple[int, str, str]]) -> None:
    steps: defaultdict[str, list[str]] = defaultdict(list)
    for _, inspection, step in journal:
        steps[inspection].append(step)
    for inspection, story in steps.items():
        count = Counter(story)
        found.processed += count["processed"]
        found.delivered_again += count["delivered again"]
        if count["processed"] > 1:
            found.processed_twice += 1
            found.violations.append(f"inspection {inspection} was processed {count['processed']} times: {story}")
        ends = [index for index, step in enumerate(story) if step in _ENDS]
        if len(ends) > 1 or (ends and ends[0] != len(story) - 1 and not _only_refusals(story[ends[0] + 1 :])):
            found.stale_writes += 1
            found.violations.append(f"inspection {inspection} went on after its end: {story}")


def _only_refusals(steps: Sequence[str]) -> bool:
    """A request that came too late is dropped, and that is noted."""
    return all(step in ("dropped", "requested") for step in steps)


def _judge_machines(found: Audit, cluster: Cluster, inspections: Sequence[tuple[str, ...]]) -> None:
    """A machine boots once for each inspection, however often its start was delivered or tried again.

    After the intent of a power-on nobody powers the machine off before its callback, so a repeated command finds
    it on, or is the first one that took effect.
    """
    started = Counter(row[2] for row in inspections)
    with cluster.counters() as fleet:
        status = fleet.status()
    for name, machine in status.nodes.items():
        counters = machine.counters
        found.power_ons += counters.power_ons
        found.power_ons_of_inspections += started[name]
        excess = max(counters.power_ons, counters.pxe_boots) + counters.reboots - started[name]
        if excess > 0:
            found.boots_twice += excess
            found.violations.append(
                f"{name}: {started[name]} inspections, {counters.power_ons} power-ons, {counters.reboots} reboots"
            )
