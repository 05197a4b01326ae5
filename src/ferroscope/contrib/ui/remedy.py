"""The card on top of a machine in trouble: what happened, since when, and what to try, with links."""

from __future__ import annotations

import shlex
from datetime import datetime
from typing import Any, Final
from urllib.parse import urlsplit

from ferroscope.api.http.schemas import iso, iso_exact
from ferroscope.contrib.ui import naming
from ferroscope.contrib.ui.fleet import STATUS
from ferroscope.contrib.ui.page import Visit
from ferroscope.core.model import Node
from ferroscope.core.states import Event
from ferroscope_client.core import advice
from ferroscope_client.core.advice import MAX_COUNTED_DISCOVERIES, count_callers
from ferroscope_client.core.explanations import EXPLANATIONS
from ferroscope_client.core.obstacles import find_obstacle
from ferroscope_client.core.reasons import Reason
from ferroscope_client.core.states import Provision

# Seconds for which viewers of machines share the status of the service.
_REMEMBERED_SECONDS: Final = 2.0
_TITLES: Final = {
    Provision.INSPECT_FAILED: "The inspection failed",
    Provision.INSPECT_WAIT: "The machine has not called back yet",
}
# Reasons that a corrected BMC address or login fixes.
_CORRECTED: Final = frozenset({
    Reason.BMC_CREDENTIALS, Reason.BMC_NAME_UNKNOWN, Reason.BMC_CONNECTION_REFUSED, Reason.BMC_NOT_REDFISH,
    Reason.BMC_CERTIFICATE, Reason.BMC_CERTIFICATE_HOST, Reason.BMC_SYSTEM_UNCLEAR, Reason.BMC_OTHER_MACHINE,
    Reason.DRIVER_INFO_INVALID, Reason.DECRYPTION_FAILED,
})  # fmt: skip
_TRIAL_ENDS: Final = ("verified", "failed")


def card(visit: Visit, node: Node, shown: dict[str, Any]) -> dict[str, Any] | None:
    """Return the content of the card; None for a machine without a problem."""
    error = shown["last_error"]
    failed = shown["provision_state"] == Provision.INSPECT_FAILED
    reason = advice.reason_of(error)
    refused = _refused_callers(visit, node) if advice.may_have_called(shown) else []
    discovered = _count_discovered(visit, node) if advice.may_have_called(shown) else 0
    callers = len(refused) + discovered
    called = count_callers(len(refused), discovered)
    status = None
    if visit.may(STATUS):
        status = visit.remembered("obstacles", _REMEMBERED_SECONDS, lambda: naming.status(visit))
    obstacle = None if status is None else find_obstacle(shown, status)
    if not (error or failed or callers or obstacle):
        return None
    complete = {"driver_info": {}} | shown
    hint = advice.hint(complete, called, obstacle)
    title = _TITLES.get(shown["provision_state"], "The last command failed") if obstacle is None else "It cannot go on"
    return {
        "title": title,
        "reason": None if reason is None else str(reason),
        "meaning": EXPLANATIONS[reason].meaning if reason else "",
        "cause": advice.cause_of(error),
        "since": shown["provision_updated_at"],
        "hint": "" if callers and reason is None and obstacle is None else hint,  # the card names the callers anyway
        "callers": called,
        "refused": [caller["summary"] for caller in refused],
        "corrects": reason in _CORRECTED,
        "console": console(shown),
        "commands": advice.commands(complete, callers, obstacle, refused),
    }


def _refused_callers(visit: Visit, node: Node) -> list[dict[str, Any]]:
    """Return the unknown machines that were refused since the inspection began, if the visitor may see them."""
    since = iso(node.inspection_started_at or 0.0) or ""
    answer = visit.call_if_possible("GET /v1/refused_callers") or {"refused_callers": []}
    return [caller for caller in answer["refused_callers"] if caller["called_at"] >= since]


def _count_discovered(visit: Visit, node: Node) -> int:
    """Return how many unknown machines came into the inbox since the inspection began, if the visitor may see them."""
    since = node.inspection_started_at or 0.0
    newest: dict[str, Any] = {"sort_key": "created_at", "sort_dir": "desc", "limit": MAX_COUNTED_DISCOVERIES}
    discovered = visit.call_if_possible("GET /v1/nodes", inbox=True, fields=["uuid", "created_at"], **newest)
    moments = [
        node_view["created_at"] for node_view in (discovered or {"nodes": []})["nodes"] if node_view["created_at"]
    ]
    return sum(datetime.fromisoformat(created).timestamp() >= since for created in moments)


def bmc_page(info: dict[str, Any]) -> str:
    """Return the address of the BMC's own page; "" if it has none, or is unknown."""
    for name in ("redfish_address", "ipmi_address"):
        address = str(info.get(name) or "")
        if not address:
            continue
        try:
            parts = urlsplit(address if "//" in address else f"//{address.join('[]') if ':' in address else address}")
            host = parts.hostname or ""
        except ValueError:
            return ""
        if not host or (parts.scheme not in ("", "http", "https")):
            return ""
        named = f"[{host}]" if ":" in host else host
        port = f":{parts.port}" if name == "redfish_address" and parts.port else ""
        return f"{parts.scheme or 'https'}://{named}{port}/"
    return ""


def console(shown: dict[str, Any]) -> dict[str, str]:
    """Return the way to the machine's console: a page, or a command."""
    info = shown["driver_info"] if isinstance(shown["driver_info"], dict) else {}
    if info.get("ipmi_address"):
        words = ["ipmitool", "-I", "lanplus", "-H", str(info["ipmi_address"])]
        words += ["-U", str(info["ipmi_username"])] if info.get("ipmi_username") else []
        return {"page": bmc_page(info), "command": shlex.join([*words, "-a", "sol", "activate"])}
    return {"page": bmc_page(info), "command": ""}


def trial(visit: Visit, node: Node, timeline: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the newest trial of the BMC: ``state`` is trying, answers or failed; None if there was none."""
    pending = visit.context.data.store.read(lambda tx: tx.requests.pending(node.uuid), snapshot=False)
    steps = (timeline or {"entries": []})["entries"]
    asked = [number for number, step in enumerate(steps) if (step["step"], step["message"]) == _ASKED]
    asks = next((request for request in pending if request.event is Event.VERIFY), None)
    if asks is not None:
        # A later step explains why it takes long: a pause after the BMC's timeouts.
        since = steps[asked[-1] + 1 :] if asked else []
        return {"state": "trying", "at": iso_exact(asks.created_at), "message": since[-1]["message"] if since else ""}
    if not asked:
        return None
    end = next((step for step in steps[asked[-1] :] if step["step"] in _TRIAL_ENDS), None)
    # A later step, such as a failed inspection, is newer than the answer.
    if end is None or datetime.fromisoformat(end["at"]).timestamp() < (node.inspection_finished_at or 0.0):
        return None
    state = "answers" if end["step"] == "verified" else "failed"
    return {"state": state, "at": end["at"], "message": end["message"]}


_ASKED: Final = ("requested", f"{Event.VERIFY} requested")
