"""Trials of the BMCs of new machines, which stay only if their BMC answers.

Only workers reach BMCs, and a worker's request belongs to a node. So a node exists while its BMC is tried
(``verifying``). If the BMC does not answer, the node is removed again, and its row is kept for users who want it
anyway. A browser's request checks all trials at once, and never waits for one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from ferroscope.api.baremetal import nodes
from ferroscope.api.errors import ApiError
from ferroscope.contracts.store import Query
from ferroscope.contrib.ui.machine_list import call_of
from ferroscope.contrib.ui.page import Visit
from ferroscope_client.core.states import Provision
from ferroscope_client.enrollment import importing
from ferroscope_client.enrollment.importing import RowResult
from ferroscope_client.enrollment.node_file import NodeRow

# Trials at a time: a silent BMC keeps a slot of a worker busy for a while.
MAX_TRIALS: Final = 50
# The longest wait for a trial: seconds, and timeouts of a command, of which a worker needs several.
_MIN_WAIT_SECONDS: Final = 120.0
_WAITED_TIMEOUTS: Final = 8
NO_ANSWER: Final = "not created"
_FIELDS: Final = ("uuid", "name", "provision_state", "last_error")


class Trial(msgspec.Struct):
    """A machine whose BMC is being tried; ``since``: seconds since the epoch."""

    row: NodeRow
    uuid: str
    since: float


class Judged(msgspec.Struct):
    """``left``: trials without a result.

    ``results``: those of the others. ``refused``: rows whose BMC does not answer.
    """

    left: list[Trial] = []
    results: list[RowResult] = []
    refused: list[NodeRow] = []


def begin(visit: Visit, node: str) -> str:
    """Have a worker try the BMC of the node; return why that is impossible, "" if it is possible."""
    try:
        visit.call("PUT /v1/nodes/{node}/states/provision", {"node": node}, body={"target": "manage"})
    except ApiError as exc:
        return f"the BMC cannot be tried: {exc.message}"
    return ""


def judge(visit: Visit, trials: Sequence[Trial]) -> Judged:
    """Read the results of the trials, and remove the machines whose BMC does not answer."""
    judged = Judged()
    if not trials:
        return judged
    wanted = Query(filters={"uuid": tuple(trial.uuid for trial in trials)})
    seen = visit.context.data.store.read(lambda tx: list(tx.nodes.list(wanted)))
    nodes_by_uuid = {node["uuid"]: node for node in nodes.views(visit.context, call_of(visit), seen, _FIELDS)}
    now = visit.context.process.clock.time()
    longest = max(_MIN_WAIT_SECONDS, _WAITED_TIMEOUTS * visit.context.settings.drivers.command_timeout)
    for trial in trials:
        node = nodes_by_uuid.get(trial.uuid)
        if node is None:
            result = RowResult(trial.row.where, trial.row.label, None, importing.FAILED, "it was deleted meanwhile")
        elif node["provision_state"] == Provision.VERIFYING:
            if now - trial.since < longest:
                judged.left.append(trial)
                continue
            detail = "its BMC has not been tried yet; it becomes manageable when a worker has"
            result = _result(trial, importing.CREATED, detail)
        elif node["provision_state"] == Provision.ENROLL:
            result = _remove_node(visit, trial, str(node["last_error"] or "the BMC did not answer"))
            if result.result == NO_ANSWER:
                judged.refused.append(trial.row)
        else:
            result = _result(trial, importing.CREATED, "the BMC answers")
        judged.results.append(result)
    return judged


def _remove_node(visit: Visit, trial: Trial, why: str) -> RowResult:
    try:
        visit.call("DELETE /v1/nodes/{node}", {"node": trial.uuid})
    except ApiError as exc:
        return _result(trial, importing.CREATED, f"{why}; the machine was kept: {exc.message}")
    return RowResult(trial.row.where, trial.row.label, None, NO_ANSWER, why)


def _result(trial: Trial, result: str, detail: str) -> RowResult:
    return RowResult(trial.row.where, trial.row.label, trial.uuid, result, detail)
