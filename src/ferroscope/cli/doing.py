"""What a node is doing, for those who wait for it: the newest step of its timeline.

A BMC that does not respond is left alone for a while, which is no step of its own: how much of that is left is told.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from ferroscope.cli.client import Api, Json, node_path
from ferroscope.cli.text import parse, span

EVERY: Final = 5.0
"""Seconds after which a wait looks at what the node is doing, and then again."""
# How the step says it, as of then.
_AGAIN: Final = "; trying again in "


def newest_step(api: Api, uuid: str) -> Json | None:
    """Return the newest step of the node's timeline, None if it has none."""
    found = api.get(node_path(uuid, "timeline"), limit=1)
    steps: list[Any] = [*found["entries"], *(step for one in found["inspections"] for step in one["entries"])]
    return max(steps, key=lambda step: str(step["at"]), default=None)


def told(step: Json | None, *, now: datetime | None = None) -> str:
    """Return what the step says, as of now; "" if there is none."""
    if step is None:
        return ""
    said = str(step["message"] or step["step"]).partition("\n")[0]
    after, began = (step.get("detail") or {}).get("after"), parse(step["at"])
    if not isinstance(after, int | float) or began is None:
        return said
    # The clock of this host may be wrong: it is no more than the service said.
    left = min(after, after - ((now or datetime.now(UTC)) - began).total_seconds())
    return said.partition(_AGAIN)[0] + (f"{_AGAIN}{span(left)}" if left >= 1 else "; trying again now")


def doing(api: Api, uuid: str) -> str:
    """Return what the node is doing; "" if nothing is known."""
    return told(newest_step(api, uuid))
