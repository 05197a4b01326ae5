"""What keeps the service from continuing with a node, judged from what the API shows of both. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

import msgspec

from ferroscope_client.core.database_fault import DATABASE_CODES
from ferroscope_client.core.finding import Finding
from ferroscope_client.core.states import BUSY, UNDER_WAY, Provision
from ferroscope_client.core.values import many


class Lane(StrEnum):
    """``compute`` has as many threads as there are processors, ``bmc`` many that wait for BMCs."""

    COMPUTE = "compute"
    BMC = "bmc"


def find_obstacle(node: Mapping[str, Any], status: Mapping[str, Any]) -> Finding | None:
    """Return what keeps the service from continuing or beginning with this node; None if nothing does.

    ``node`` and ``status`` are what the API shows.
    """
    for problem in status["problems"]:
        if _blocks(problem, node):
            return msgspec.convert(problem, Finding)
    slots, busy = count_slots(member["lanes"].get(Lane.BMC, {}) for member in status["members"] if member["alive"])
    state = node["provision_state"]
    if state not in BUSY or state == Provision.INSPECT_WAIT or not 0 < slots <= busy:
        return None
    summary = f"all {many(slots, 'BMC slot')} of the workers are busy; requests are waiting"
    return Finding("slots-busy", "note", summary, "wait, or start another worker: ferroscope worker")


def _blocks(problem: Mapping[str, Any], node: Mapping[str, Any]) -> bool:
    code = str(problem["code"])
    if code in DATABASE_CODES.values():
        return True
    if node["provision_state"] not in BUSY:
        return False
    if code == "no-worker":
        return True
    if code == "bmc-silent":
        return str(node["uuid"]) in problem["search"]
    return code == "pxe-filter-closed" and node["provision_state"] in UNDER_WAY


def count_slots(lanes: Iterable[Mapping[str, int]]) -> tuple[int, int]:
    """Return how many slots there are in these lanes of workers, and how many of them are busy."""
    counts = [(lane.get("slots", 0), lane.get("busy", 0)) for lane in lanes]
    return sum(slots for slots, _ in counts), sum(busy for _, busy in counts)


def search_command(problem: Mapping[str, Any]) -> str:
    """Return the command that lists the machines of a problem of the API, "" if it is about the service."""
    search = str(problem.get("search", ""))
    return f"ferroscope search {shlex.quote(search)}" if search else ""
