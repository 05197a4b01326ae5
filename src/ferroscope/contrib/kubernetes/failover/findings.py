"""The findings on a cluster's remediations for the service's status, and their numbers.

The metric of the alerts has the same findings, so the two never disagree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from ferroscope.core.failover_node import FailoverNode
from ferroscope.core.remediation import Remediation
from ferroscope_client.core.finding import Finding

# Failed passes in a row before the cluster counts as unreadable: an API server may restart.
MAX_FAILED_PASSES: Final = 5
_ADVICE: Final = "see ferroscope failover status"


def find_problems(
    cluster: str,
    records: Iterable[Remediation],
    *,
    paused: str = "",
    unreadable: str = "",
    unprotected: Sequence[FailoverNode] = (),
) -> tuple[list[Finding], Mapping[str, int]]:
    """Return the findings, and how many nodes or machines each kind is about.

    ``unreadable``: why the cluster could not be read in the last passes, "" if it could.
    """
    records = list(records)
    left_off = [record for record in records if record.left_off]
    stuck = [record for record in records if record.escalated and not record.left_off]
    storm = [record for record in records if record.reason == "storm"]
    numbers = {
        "left-off": len(left_off),
        "stuck": len(stuck),
        "unreadable": int(bool(unreadable)),
        "storm": len(storm),
        "paused": int(bool(paused)),
        "not-protected": len(unprotected),
    }
    problems = []
    if unreadable:
        summary = f"the failover controller cannot read the cluster {cluster}, so it fails over nothing: {unreadable}"
        problems.append(Finding("failover-unreadable", "wrong", summary, "check the API server and its credentials"))
    if left_off:
        problems.append(Finding("failover-left-off", "wrong", _summarize(cluster, left_off), _ADVICE))
    if stuck:
        problems.append(Finding("failover-no-progress", "wrong", _summarize(cluster, stuck), _ADVICE))
    if storm:
        problems.append(Finding("failover-storm", "wrong", _summarize(cluster, storm), _ADVICE))
    if unprotected:
        first = unprotected[0]
        more = f" (and {len(unprotected) - 1} more)" if len(unprotected) > 1 else ""
        summary = f"Kubernetes node {first.node} of cluster {cluster} is not protected: {first.message}{more}"
        problems.append(Finding("failover-not-protected", "wrong", summary, "ferroscope failover plan --all"))
    if paused:
        summary = f"failover of the cluster {cluster} is paused: {paused}"
        problems.append(Finding("failover-paused", "note", summary, "ferroscope failover resume"))
    return problems, numbers


def _summarize(cluster: str, records: Sequence[Remediation]) -> str:
    first = records[0]
    more = f" (and {len(records) - 1} more)" if len(records) > 1 else ""
    return f"Kubernetes node {first.node} of cluster {cluster}: {first.left_off or first.message}{more}"
