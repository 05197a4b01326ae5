"""The newest step of a node's timeline, shown while a command waits for the node.

A pause after a BMC's timeouts is not a step of its own: the text says how long it still lasts.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from ferroscope_client.cli.text import parse, span
from ferroscope_client.client import Client, Json, node_path

POLL_SECONDS: Final = 5.0
"""Seconds after which a command that waits reads the newest step, and then again."""
# The end of a step's message, with the seconds as of its time.
_AGAIN: Final = "; trying again in "


def newest(api: Client, uuid: str) -> Json | None:
    """Return the newest step of the node's timeline, None if it has none."""
    timeline = api.get(node_path(uuid, "timeline"), limit=1)
    steps: list[Any] = [
        *timeline["entries"],
        *(step for inspection in timeline["inspections"] for step in inspection["entries"]),
    ]
    return max(steps, key=lambda step: str(step["at"]), default=None)


def message(step: Json | None, *, now: datetime | None = None) -> str:
    """Return the step's message as of ``now``; "" if there is no step."""
    if step is None:
        return ""
    text = str(step["message"] or step["step"]).partition("\n")[0]
    after, began = (step.get("detail") or {}).get("after"), parse(step["at"])
    if not isinstance(after, int | float) or began is None:
        return text
    # The clock of this host may be wrong, so never longer than the message says.
    left = min(after, after - ((now or datetime.now(UTC)) - began).total_seconds())
    return text.partition(_AGAIN)[0] + (f"{_AGAIN}{span(left)}" if left >= 1 else "; trying again now")


def newest_message(api: Client, uuid: str) -> str:
    """Return the message of the node's newest step, as of now; "" if it has none."""
    return message(newest(api, uuid))
