"""The first page: problems, inspections in progress, and the state of the fleet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any, Final

import msgspec

from ferroscope.api.auth import access
from ferroscope.api.http import paging
from ferroscope.api.http.large_lists import Room
from ferroscope.api.http.schemas import iso_exact
from ferroscope.contracts.store import Query
from ferroscope.contrib.ui import activity, naming, progress, render
from ferroscope.contrib.ui.page import STATE_KINDS, HtmlPage, Visit
from ferroscope.core.counts import Failures, HardwareCondition, group_failures
from ferroscope.core.model import HARDWARE_CHANGED, Node
from ferroscope.core.problems import MACHINE_ERRORS, list_machine_problems
from ferroscope.db import Transaction
from ferroscope_client.core.obstacles import count_slots
from ferroscope_client.core.states import ACTIVE, UNDER_WAY, Provision, State

STATUS: Final = "ferroscope:status:get"
INBOX: Final = "/ui/inbox"
# Seconds for which viewers of the whole fleet share a view.
_CACHE_SECONDS: Final = 2.0
_CHART_SECONDS: Final = 60.0
# Rows of the list of inspections in progress; changes on the page.
_MAX_ACTIVE: Final = 12
_MAX_CHANGES: Final = 8
_WEEK_SECONDS: Final = 7 * 86400


class Summary(msgspec.Struct):
    """The nodes that a caller may see: by provision state, marked, failed by reason, and being inspected (for display).

    ``usual``: how long the phases of their inspections take.
    """

    states: Counter[str] = msgspec.field(default_factory=Counter)
    maintenance: int = 0
    inbox: int = 0
    failures: list[Failures] = []
    active: list[dict[str, Any]] = []
    usual: dict[str, progress.Usual] = {}


def show(visit: Visit) -> HtmlPage:
    """Show the fleet."""
    return HtmlPage(
        template="fleet.html", title="Fleet", shared=visit.shared("fleet", _CACHE_SECONDS, lambda: _view(visit))
    )


def _view(visit: Visit) -> dict[str, Any]:
    """Return the fleet for display."""
    project = access.scope(visit.context.access.policy, visit.identity, "node")
    summary, status = (
        visit.remembered(("fleet", visit.may(STATUS)), _CACHE_SECONDS, lambda: _whole(visit))
        if project is None
        else visit.remembered(("fleet", visit.rights), _CACHE_SECONDS, lambda: _part(visit, project))
    )
    hidden = set() if project is None else {MACHINE_ERRORS, "inbox"}
    if project is None and not visit.may(access.FAILURE):
        summary, hidden = msgspec.structs.replace(summary, failures=[]), {MACHINE_ERRORS, "inbox"}
    chart = (
        visit.remembered("activity", _CHART_SECONDS, lambda: visit.context.data.store.read(activity.read))
        if project is None
        else None
    )
    changes = (
        visit.remembered("changes", _CHART_SECONDS, lambda: visit.context.data.store.read(_changes))
        if project is None and visit.may(access.INVENTORY)
        else None
    )
    return {
        "problems": _problems(summary, status, hidden),
        "tiles": _tiles(summary),
        "total": summary.states.total(),
        "maintenance": summary.maintenance,
        "inbox": summary.inbox,
        "active": summary.active,
        "active_total": sum(summary.states[str(state)] for state in UNDER_WAY),
        "usual": progress.whole(summary.usual),
        "usual_of": progress.USUAL_OF,
        "slots": None if status is None else _slots(status["members"]),
        "chart": chart,
        "changes": changes,
        "may_inspect": visit.may(
            "baremetal:node:set_provision_state", Node(uuid="", driver="", owner=visit.identity.project_id)
        ),
    }


def _status(visit: Visit) -> dict[str, Any] | None:
    """Return the status of the service, for those who may see it."""
    return naming.status(visit) if visit.may(STATUS) else None


def _part(visit: Visit, project: str) -> tuple[Summary, dict[str, Any] | None]:
    """Return the summary of the nodes of a project, and the status of the service."""
    return visit.context.data.read_list(lambda tx, room: _own(visit, tx, room, project)), _status(visit)


def _whole(visit: Visit) -> tuple[Summary, dict[str, Any] | None]:
    """Return the summary of all nodes, and the status of the service; counts in the status are not read again."""
    status = _status(visit)
    usual = progress.shared(visit)

    def work(tx: Transaction) -> Summary:
        summary = Summary(usual=usual)
        if status is None:
            fleet = tx.statistics.fleet()
            summary.maintenance, summary.inbox = fleet.census.maintenance, fleet.census.inbox
            summary.failures = fleet.failures
            for row in fleet.census.nodes:
                summary.states[str(row.provision_state)] += row.nodes
        else:
            summary.maintenance, summary.inbox = status["maintenance"], status["inbox"]
            summary.states.update(status["nodes"])
        if any(summary.states[str(state)] for state in UNDER_WAY):
            oldest = Query(filters={"state": tuple(ACTIVE)}, sort_key="inspection_started_at", limit=_MAX_ACTIVE)
            summary.active = [progress.of(node, usual) for node in tx.nodes.list(oldest)]
        return summary

    return visit.context.data.store.read(work), status


def _changes(tx: Transaction) -> dict[str, Any]:
    """Return how many inspections of the last week found changed hardware, and the newest changes."""
    number, newest = tx.statistics.changed(tx.now - _WEEK_SECONDS, _MAX_CHANGES)
    filters = {
        "node": tuple(inspection.node for inspection in newest),
        "inspection": tuple(inspection.uuid for inspection in newest),
    }
    steps = tx.journal.list(Query(filters=filters | {"step": HARDWARE_CHANGED}, sort_key="id")) if newest else []
    named = tx.nodes.list(Query(filters={"uuid": filters["node"]})) if newest else []
    texts, names = {one.inspection: one.message for one in steps}, {one.uuid: one.name for one in named}
    shown = [
        {
            "uuid": inspection.node,
            "name": names.get(inspection.node) or inspection.node,
            "inspection": inspection.uuid,
            "at": iso_exact(inspection.finished_at),
            "text": texts.get(inspection.uuid, ""),
        }
        for inspection in newest
    ]
    return {"number": number, "newest": shown}


def _own(visit: Visit, tx: Transaction, room: Room, project: str) -> Summary:
    """Return the summary of the nodes of a project."""
    summary, active, errors, finished = Summary(), [], [], []
    for batch in paging.groups(room, tx.nodes, Query(project=project)):
        for node in batch:
            if not access.sees(visit.context.access.policy, visit.identity, node):
                continue
            summary.states[str(node.provision_state)] += 1
            summary.maintenance += node.maintenance
            summary.inbox += node.inbox
            if node.last_error and visit.may(access.FAILURE, node):
                errors.append((node.last_error, 1, node.name or node.uuid))
            if node.state is State.FINISHED and node.inspection:
                finished.append((node.inspection_finished_at or 0.0, node.inspection))
            if node.state in ACTIVE:
                active.append(node)
        active = sorted(active, key=lambda node: node.inspection_started_at or 0.0)[:_MAX_ACTIVE]
    summary.failures = group_failures(errors)
    newest = tuple(inspection for _, inspection in sorted(finished, reverse=True)[: progress.USUAL_OF])
    summary.usual = progress.usual(tx.inspections.list(Query(filters={"uuid": newest}))) if newest else {}
    summary.active = [progress.of(node, summary.usual) for node in active]
    return summary


def _problems(summary: Summary, status: dict[str, Any] | None, hidden: Collection[str]) -> list[dict[str, Any]]:
    """Return the problems of the status without the ``hidden`` codes, and those of the summary's own machines."""
    problems = [problem for problem in (status or {"problems": []})["problems"] if problem["code"] not in hidden]
    own = (
        list_machine_problems(summary.failures, summary.inbox, HardwareCondition()) if hidden or status is None else ()
    )
    return add_links([*problems, *map(msgspec.to_builtins, own)])


def add_links(problems: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the problems for display: with the address of their machines, and their reason code."""
    return [problem | {"link": _machines_of(problem), "reason": _reason_of(problem)} for problem in problems]


def _machines_of(problem: dict[str, Any]) -> str:
    """Return the address of the machines that a problem is about; "" if it is about the service."""
    if problem["code"] in ("inbox", "unknown-callers"):
        return INBOX
    if reason := _reason_of(problem):
        return render.link("/ui/machines", reason=reason)
    return render.link("/ui/machines", q=problem["search"]) if problem["search"] else ""


def _reason_of(problem: dict[str, Any]) -> str:
    """Return the reason code of the errors that a problem is about, "" if it is about none."""
    return str(problem["search"]).partition("==")[2] if problem["code"] == MACHINE_ERRORS else ""


def _tiles(summary: Summary) -> list[dict[str, Any]]:
    order = [*map(str, Provision), *sorted(summary.states.keys() - set(map(str, Provision)))]
    return [
        {"state": state, "nodes": summary.states[state], "kind": STATE_KINDS.get(state, "idle")}
        for state in order
        if summary.states[state] or state in STATE_KINDS
    ]


def _slots(members: list[dict[str, Any]]) -> dict[str, int]:
    """Return how many requests the living workers carry out, and their capacity."""
    slots, busy = count_slots(counts for member in members if member["alive"] for counts in member["lanes"].values())
    return {"busy": busy, "slots": slots}
