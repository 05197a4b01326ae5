"""Inspections in progress: their phase, its usual duration in this fleet, and their expected end.

Times are absolute, so that a page whose inspections have not changed has the same ETag. The remaining time is computed
when the page is shown, and by the browser's script.
"""

from __future__ import annotations

from collections.abc import Iterable
from statistics import quantiles
from typing import Any, Final

import msgspec

from ferroscope.api.http.schemas import iso_exact
from ferroscope.contracts.store import Query
from ferroscope.contrib.ui.page import Visit
from ferroscope.core.model import Inspection, Node
from ferroscope.db import Transaction
from ferroscope.telemetry.log import phases
from ferroscope_client.core.states import PHASES, STATES, State

# The finished inspections that usual durations are taken from, and their minimum number.
USUAL_OF: Final = 200
_MIN_INSPECTIONS: Final = 5
_TOTAL: Final = "total"
# Seconds for which the result is kept.
_CACHE_SECONDS: Final = 60.0


class Usual(msgspec.Struct, frozen=True):
    """Seconds that finished inspections took: the median, and what 95% of them stayed below."""

    median: float
    late: float


def usual(ended: Iterable[Inspection]) -> dict[str, Usual]:
    """Return the usual duration of each phase, and of a whole inspection, if there were enough of them."""
    durations: dict[str, list[float]] = {}
    for inspection in ended:
        if inspection.reapplies is None:
            for phase, seconds in phases(inspection).items():
                durations.setdefault(phase, []).append(seconds)
    return {phase: _usual(seconds) for phase, seconds in durations.items() if len(seconds) >= _MIN_INSPECTIONS}


def newest(tx: Transaction) -> dict[str, Usual]:
    """Return the usual durations in the newest inspections of the whole fleet."""
    ended = Query(
        filters={"state": State.FINISHED},
        before={"finished_at": tx.now + 1.0},
        sort_key="finished_at",
        descending=True,
        limit=USUAL_OF,
    )
    return usual(tx.inspections.list(ended))


def shared(visit: Visit) -> dict[str, Usual]:
    """Return recent usual durations, if the visitor may see the whole fleet."""
    return visit.remembered("usual", _CACHE_SECONDS, lambda: visit.context.data.store.read(newest))


def whole(usual_by_phase: dict[str, Usual]) -> dict[str, float] | None:
    """Return the usual duration of a whole inspection."""
    return _round(usual_by_phase.get(_TOTAL))


def of(node: Node, usual_by_phase: dict[str, Usual]) -> dict[str, Any]:
    """Return the inspection of a node for display."""
    since, in_phase = node.provision_updated_at, usual_by_phase.get(str(node.state))
    return {
        "uuid": node.uuid,
        "name": node.name or node.uuid,
        "phase": str(node.state),
        "meaning": STATES[node.state].meaning,
        "since": iso_exact(since),
        "started": iso_exact(node.inspection_started_at),
        "usual": _round(in_phase),
        "ends": iso_exact(expected_end(node, usual_by_phase)),
        "late": None if since is None or in_phase is None else iso_exact(since + in_phase.late),
    }


def expected_end(node: Node, usual_by_phase: dict[str, Usual]) -> float | None:
    """Return when the inspection ends if its phase and those after it take as long as usual; None if unknown."""
    if node.state not in PHASES or node.provision_updated_at is None:
        return None
    left = [usual_by_phase.get(str(phase)) for phase in PHASES[PHASES.index(node.state) :]]
    return (
        node.provision_updated_at + sum(usual_phase.median for usual_phase in left if usual_phase is not None)
        if all(left)
        else None
    )


def _usual(seconds: list[float]) -> Usual:
    cuts = quantiles(seconds, n=20)
    return Usual(cuts[9], cuts[18])


def _round(usual_phase: Usual | None) -> dict[str, float] | None:
    return None if usual_phase is None else {"median": round(usual_phase.median), "late": round(usual_phase.late)}
