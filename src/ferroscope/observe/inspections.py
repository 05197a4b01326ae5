"""The log's story of each inspection: a line when it begins, and one when it has ended, with how its time was spent.

Told after the commit by the process that made the change, so each is told once, unless that process dies
in between. Two lines for an inspection are what a log can take of 10,000 nodes; steps are on the timeline.
"""

from __future__ import annotations

from typing import Final

import structlog

from ferroscope.contracts.metrics import Moved
from ferroscope.core.model import Inspection
from ferroscope.core.reasons import Reason
from ferroscope.core.states import STATES, State

_log = structlog.get_logger(__name__)

_BEGUN: Final = {state: holds.log for state, holds in STATES.items() if holds.log is not None}
_ENDED_BY: Final[dict[str, str]] = {Reason.ABORTED: "inspection aborted", Reason.TIMEOUT: "inspection timed out"}


def tell(moved: Moved) -> None:
    """Log the transition where an inspection has begun or ended with it."""
    one, node, target = moved.inspection, moved.node, moved.transition.target
    if one is None:
        return
    who = {"node": node.uuid, "name": node.name, "inspection": one.uuid}
    if target in _BEGUN:
        _log.info(_BEGUN[target], **who)
    elif target is State.FINISHED:
        _log.info("inspection finished", **who, **phases(one))
    elif target is State.ERROR:
        event = _ENDED_BY.get(one.reason or "", "inspection failed")
        level = _log.info if one.reason == Reason.ABORTED else _log.warning
        level(event, **who, reason=one.reason, error=one.error, **phases(one))


def phases(one: Inspection) -> dict[str, float]:
    """Return the seconds of each phase that an ended inspection came to, and in all.

    ``queue`` is what of them it has waited for a worker.
    """
    end = one.started_at if one.finished_at is None else one.finished_at
    marks = (("starting", one.started_at), ("waiting", one.waiting_since), ("processing", one.processing_since))
    reached = [(name, at) for name, at in marks if at is not None]
    ends = [at for _, at in reached[1:]] + [end]
    spent = {name: max(0.0, until - at) for (name, at), until in zip(reached, ends, strict=True)}
    return {
        name: round(seconds, 2)
        for name, seconds in {"total": end - one.started_at, "queue": one.queued, **spent}.items()
    }
