"""How many requests and nodes there are, for display and monitoring."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from ferroscope.core.states import Event
from ferroscope_client.core.advice import reason_of
from ferroscope_client.core.states import Provision, State


class Backlog(msgspec.Struct, frozen=True, kw_only=True):
    """The requests for one event on the queue; ``oldest`` is when the first of them was queued."""

    event: Event
    waiting: int
    claimed: int
    oldest: float


class Population(msgspec.Struct, frozen=True, kw_only=True):
    """How many nodes are in one state."""

    state: State
    provision_state: Provision
    nodes: int


class HardwareCondition(msgspec.Struct, frozen=True, kw_only=True):
    """How many nodes had which health at their last inspection; ``failing_drives``: with at least one failing drive.

    ``deviating``: with hardware that differs from the expectations.
    """

    ok: int = 0
    warning: int = 0
    critical: int = 0
    failing_drives: int = 0
    deviating: int = 0


class Census(msgspec.Struct, frozen=True, kw_only=True):
    """How many nodes there are: in each state that has any, in maintenance, in the inbox, and in which condition.

    ``orphans``: those that the attached registry does not list. ``drivers``: the BMC drivers that any node has.
    """

    nodes: list[Population] = []
    maintenance: int = 0
    inbox: int = 0
    orphans: int = 0
    drivers: list[str] = []
    condition: HardwareCondition = HardwareCondition()


class Failures(msgspec.Struct, frozen=True, kw_only=True):
    """How many nodes have a last error with this reason code, "" for errors without one; ``example`` names one."""

    reason: str
    nodes: int
    example: str


class FleetCounts(msgspec.Struct, frozen=True, kw_only=True):
    """All nodes, counted; ``failures``: those with a last error, in whatever state, the most frequent reason first."""

    census: Census
    failures: list[Failures]


def group_failures(errors: Iterable[tuple[str, int, str]]) -> list[Failures]:
    """Return the failures by reason, the most frequent first, of texts of errors, each with nodes and an example."""
    nodes, examples = Counter[str](), dict[str, str]()
    for error, number, example in errors:
        reason = reason_of(error) or ""
        nodes[reason] += number
        examples[reason] = min(example, examples.get(reason, example))
    ordered = sorted(nodes.items(), key=lambda item: (-item[1], item[0]))
    return [Failures(reason=reason, nodes=number, example=examples[reason]) for reason, number in ordered]
