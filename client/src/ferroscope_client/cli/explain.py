"""``ferroscope explain``: the meaning of a reason code, or the problem of a node, and the commands that help.

The codes need no service. For a node, the commands are complete and can be pasted.
"""

from __future__ import annotations

import difflib
import shlex
from typing import TYPE_CHECKING, Any, Final

import click

from ferroscope_client.cli import newest_step
from ferroscope_client.cli.lookup import complete_names, find, label, list_obstacles, list_refused_callers
from ferroscope_client.cli.output import Output, key_values, table, typed, with_api
from ferroscope_client.cli.text import age
from ferroscope_client.client import Client, Json
from ferroscope_client.core import advice
from ferroscope_client.core.advice import MAX_COUNTED_DISCOVERIES, count_callers
from ferroscope_client.core.explanations import EXPLANATIONS
from ferroscope_client.core.reasons import Reason
from ferroscope_client.core.states import BUSY
from ferroscope_client.errors import Exit, Failure

if TYPE_CHECKING:
    from rich.console import Console

_MAX_SHOWN_CALLERS: Final = 3
# Commands that have no option for the service's address.
_OF_HOST: Final = ("ferroscope worker", "ferroscope doctor")


@click.command()
@click.argument("name", metavar="[NODE|REASON]", required=False, shell_complete=complete_names)
@with_api
def explain(api: Client, out: Output, *, name: str | None) -> None:
    """Explain what is wrong with a node, or what a reason code such as bmc-unreachable means, and what to do.

    Without an argument, all reason codes are listed; they need no running service.
    """
    if name is None:
        reasons = [as_data(reason) for reason in sorted(Reason)]
        rows = [(row["reason"], row["meaning"]) for row in reasons]
        out.show(reasons, lambda screen: screen.print(table(("REASON", "MEANING"), rows, wraps=("MEANING",))))
        return
    reason = _reason(name)
    if reason is not None:
        shown = as_data(reason)
        out.show(shown, lambda screen: _draw_reason(screen, shown))
        return
    explained = _explain(api, _node(api, name))
    out.show(explained, lambda screen: _draw_node(screen, explained))


def as_data(reason: Reason) -> dict[str, Any]:
    """Return the explanation for JSON and YAML."""
    explanation = EXPLANATIONS[reason]
    return {
        "reason": str(reason),
        "meaning": explanation.meaning,
        "hint": explanation.hint,
        "commands": list(explanation.commands),
    }


def _normalize(name: str) -> str:
    return name.strip("()").lower().replace("_", "-").replace(" ", "-")


def _reason(name: str) -> Reason | None:
    """Return the reason with this name in any spelling; None if there is none."""
    try:
        return Reason(_normalize(name))
    except ValueError:
        return None


def _node(api: Client, name: str) -> Json:
    """Return the node; ``Failure`` names similar reasons."""
    near = difflib.get_close_matches(_normalize(name), list(Reason), n=3)
    try:
        return find(api, name, fields=advice.FIELDS)
    except Failure as exc:
        if exc.exit_code == Exit.NOT_FOUND or near:
            meant = f"did you mean the reason {' or '.join(near)}?" if near else "list the nodes: ferroscope node list"
            message = f"{name!r} is neither a node nor a reason code"
            raise Failure(message, exit_code=Exit.NOT_FOUND, advice=f"{meant}; all codes: ferroscope explain") from None
        raise


def _explain(api: Client, node: Json) -> dict[str, Any]:
    """Return the problem of a node and what to do, for JSON and YAML."""
    reason = advice.reason_of(node["last_error"])
    silent = advice.may_have_called(node)
    refused = list_refused_callers(api, since=node["inspection_started_at"] or "") if silent else []
    discovered = _count_discovered(api, node) if silent else 0
    callers = len(refused) + discovered
    busy = node["provision_state"] in BUSY
    (obstacle,) = list_obstacles(api, [node])
    suffix = " ".join(map(shlex.quote, [*typed("--url"), *typed("--os-cloud")]))
    return {
        "node": label(node),
        "uuid": node["uuid"],
        "state": node["provision_state"],
        "since": node["provision_updated_at"],
        "reason": None if reason is None else str(reason),
        "error": node["last_error"],
        "newest_step": newest_step.newest_message(api, node["uuid"]) if busy else "",
        "unknown_callers": callers,
        "refused_callers": refused,
        "obstacle": None if obstacle is None else obstacle.code,
        "hint": advice.hint(node, count_callers(len(refused), discovered), obstacle),
        "commands": [
            command if command in _OF_HOST else f"{command} {suffix}".rstrip()
            for command in advice.commands(node, callers, obstacle, refused)
        ],
    }


def _count_discovered(api: Client, node: Json) -> int:
    """Return how many machines were discovered since the inspection began: one may be the node's own."""
    since = node["inspection_started_at"] or ""
    newest = {"sort_key": "created_at", "sort_dir": "desc", "limit": MAX_COUNTED_DISCOVERIES}
    nodes = api.get("/v1/nodes", inbox=True, fields=("uuid", "created_at"), **newest)["nodes"]
    return sum((discovered["created_at"] or "") >= since for discovered in nodes)


def _draw_reason(screen: Console, shown: dict[str, Any]) -> None:
    screen.print(shown["reason"], style="bold")
    screen.print(shown["meaning"])
    screen.print(shown["hint"])
    screen.print()
    for command in shown["commands"]:
        screen.print(f"  {command}")


def _draw_node(screen: Console, explained: dict[str, Any]) -> None:
    since = age(explained["since"])
    state = f"{explained['state']}, for {since}" if since else explained["state"]
    step = explained["newest_step"] or None
    shown = {"Node": explained["node"], "State": state, "Now": step, "Error": explained["error"]}
    shown["Refused"] = _list_first_callers(explained)
    screen.print(key_values(shown))
    if explained["reason"] is None or explained["hint"] not in (explained["error"] or ""):
        screen.print(explained["hint"])
    if explained["commands"]:
        screen.print()
    for command in explained["commands"]:
        screen.print(f"  {command}", soft_wrap=True)


def _list_first_callers(explained: dict[str, Any]) -> str:
    """Return the newest refused callers, a line each, without the one that the error names."""
    summaries = [caller["summary"] for caller in explained["refused_callers"]]
    summaries = [summary for summary in summaries if summary not in (explained["error"] or "")]
    hidden = len(summaries) - _MAX_SHOWN_CALLERS
    more = [f"and {hidden} more: ferroscope node inbox"] if hidden > 0 else []
    return "\n".join([*summaries[:_MAX_SHOWN_CALLERS], *more])
