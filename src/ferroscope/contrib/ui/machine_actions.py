"""Actions on many machines from their list, or on one from its page; notes on a machine."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from ferroscope.api.baremetal import provision
from ferroscope.api.errors import BadRequestError
from ferroscope.contrib.ui import bulk, form
from ferroscope.contrib.ui.bulk import BulkAction, BulkForm
from ferroscope.contrib.ui.machine_list import MachineSelection, menu, ranked, seen
from ferroscope.contrib.ui.machines import INSPECT, MAINTENANCE
from ferroscope.contrib.ui.page import HtmlPage, Redirect, Visit
from ferroscope.core.model import Node
from ferroscope_client.core import labels
from ferroscope_client.core.states import ACTIVE, Provision
from ferroscope_client.core.values import is_uuid

# Machines of one action.
_MAX_SELECTED: Final = 500
_CLEAR: Final = "baremetal:node:clear_maintenance"
_LABEL: Final = "baremetal:node:update"
_POWER: Final = "baremetal:node:set_power_state"
_DELETE: Final = "baremetal:node:delete"


TRY: Final = "try"
"""The action that asks the BMC of a machine for an answer."""
HOURS: Final = {"1": "1 hour", "4": "4 hours", "8": "8 hours", "24": "1 day", "72": "3 days", "168": "1 week"}
"""After how many hours a maintenance may end by itself."""
ACTIONS: Final = {
    "inspect": BulkAction(
        title="Inspect", policy=INSPECT, verb="inspect", effect="This power-cycles {}", done="inspections requested"
    ),
    "retry": BulkAction(
        title="Retry", policy=INSPECT, verb="retry", done="machines tried again",
        effect="This tries {} again: those in enroll are verified, all others are power-cycled",
    ),
    "abort": BulkAction(
        title="Abort", policy=INSPECT, verb="abort", effect="This aborts the inspections of {}", done="aborts requested"
    ),
    "manage": BulkAction(
        title="Manage", policy=INSPECT, verb="manage", effect="This makes {} manageable", done="machines managed"
    ),
    "maintenance": BulkAction(
        title="Set maintenance",
        policy=MAINTENANCE,
        effect="This puts {} into maintenance",
        done="machines in maintenance",
    ),
    "clear": BulkAction(
        title="End maintenance", policy=_CLEAR, effect="This takes {} out of maintenance",
        done="machines out of maintenance",
    ),
    "label": BulkAction(title="Label", policy=_LABEL, effect="This labels {}", done="machines labelled"),
    "on": BulkAction(
        title="Power on", policy=_POWER, power="power on", effect="This powers on {}", done="power-ons requested"
    ),
    "off": BulkAction(
        title="Power off", policy=_POWER, power="power off", done="power-offs requested",
        effect="This powers off {} at once; what runs there is not asked",
    ),
    "reset": BulkAction(
        title="Reset", policy=_POWER, power="rebooting", done="resets requested",
        effect="This powers {} off and on; what runs there is not asked",
    ),
    "delete": BulkAction(
        title="Delete", policy=_DELETE, effect="This deletes {} with all their inventories", done="machines deleted",
    ),
}  # fmt: skip


def act(visit: Visit) -> HtmlPage | Redirect:
    """Describe the effect of an action on many machines; carry it out if the form confirms it."""
    action = ACTIONS.get(visit.given("action"))
    if action is None:
        raise BadRequestError("Choose an action.")
    selected, more = _select(visit)
    changes, problem = {}, ""
    if action.policy == _LABEL and visit.given("confirm"):
        try:
            changes = _label_changes(visit.given("labels"))
        except BadRequestError as exc:
            problem = exc.message
    back = form.back(visit.form, "/ui/machines")
    is_one = back.startswith("/ui/machines/")
    page = bulk.act(
        visit,
        action,
        BulkForm(
            template="act.html", url="/ui/machines/act", back=back, back_to="the machine" if is_one else "the machines"
        ),
        selected,
        more=more,
        problem=problem,
        asked=lambda node: {"uuid": node.uuid, "name": node.name or node.uuid},
        why_not=lambda node: _why_left_out(visit, action, node) or _why_not(action, node),
        carry_out=lambda node: _label(visit, node, changes) if changes else _carry_out(visit, action, node),
        menu=menu(visit) if action.policy == _LABEL else [],
        hours=HOURS,
        labels=visit.given("labels") if problem else "",
    )
    if is_one and page.data.get("confirmed") and page.data["succeeded"] == len(page.data["results"]) == 1:
        return Redirect("/ui/machines" if action.policy == _DELETE else add_done(back, visit.given("action")))
    return page


def add_done(url: str, action: str) -> str:
    """Return the URL of a machine's page that reports the action, for ``say_done``."""
    return f"{url}{'&' if '?' in url else '?'}done={action}"


def say_done(action: str, name: str) -> str:
    """Return the report on an action on a machine; "" for an unknown action."""
    if action == TRY:
        return f"Trial of the BMC requested: {name}."
    if action not in ACTIONS:
        return ""
    noun, rest = ACTIONS[action].done.split(" ", 1)
    return f"{noun.removesuffix('s').capitalize()} {rest}: {name}."


def note(visit: Visit) -> Redirect:
    """Add a note to a machine, or delete one; go back to its page."""
    path = {"node": visit.path["node"]}
    if number := visit.given("remove"):
        visit.call("DELETE /v1/nodes/{node}/notes/{number}", path | {"number": number})
    elif text := visit.given("text"):
        visit.call("POST /v1/nodes/{node}/notes", path, body={"text": text})
    return Redirect(f"/ui/machines/{visit.path['node']}")


def _select(visit: Visit) -> tuple[list[Node], bool]:
    """Return the machines of the form, and whether there are more than one action may have."""
    if visit.given("all") == "yes":
        ranked_uuids = ranked(visit, MachineSelection.of(visit.given))
        return _in_order(visit, ranked_uuids[:_MAX_SELECTED]), len(ranked_uuids) > _MAX_SELECTED
    uuids = [uuid for uuid in dict.fromkeys(visit.form.get("node", [])) if is_uuid(uuid)]
    return _in_order(visit, uuids[:_MAX_SELECTED]), len(uuids) > _MAX_SELECTED


def _in_order(visit: Visit, uuids: list[str]) -> list[Node]:
    return sorted(seen(visit, uuids), key=lambda node: node.name or node.uuid)


def _why_left_out(visit: Visit, action: BulkAction, node: Node) -> str:
    """Return why a machine that a search found, and the visitor did not choose, is left out; "" if it is not."""
    everything = visit.given("all") == "yes" and visit.given("state") != Provision.ENROLL
    if everything and action.verb == "inspect" and node.provision_state == Provision.ENROLL:
        return "in enroll: select it, or search for this state"
    return ""


def _why_not(action: BulkAction, node: Node) -> str:
    """Return why a machine is left out, "" if it is not."""
    verb = _choose_verb(action, node)
    if verb == "inspect" and node.maintenance:
        return "in maintenance"
    if verb == "inspect" and node.attributes.get("instance_uuid"):
        return "in use"
    if verb and verb not in provision.allowed_verbs(node):
        return f"not possible while it is {node.provision_state}" + (" (inbox)" if node.inbox else "")
    if action.policy == _CLEAR and not node.maintenance:
        return "not in maintenance"
    if (verb == "manage" or action.power) and node.state in ACTIVE:
        return "being inspected"
    if action.power and node.inbox:
        return "in the inbox"
    return ""


def _choose_verb(action: BulkAction, node: Node) -> str:
    """Return the provision state to request, "" for an action without one; a retry repeats what has failed."""
    if action.verb != "retry":
        return action.verb
    return "manage" if node.provision_state == Provision.ENROLL else "inspect"


def _carry_out(visit: Visit, action: BulkAction, node: Node) -> None:
    path = {"node": node.uuid}
    if verb := _choose_verb(action, node):
        visit.call("PUT /v1/nodes/{node}/states/provision", path, body={"target": verb})
    elif action.power:
        visit.call("PUT /v1/nodes/{node}/states/power", path, body={"target": action.power})
    elif action.policy == _DELETE:
        visit.call("DELETE /v1/nodes/{node}", path)
    elif action.policy == _CLEAR:
        visit.call("DELETE /v1/nodes/{node}/maintenance", path)
    else:
        body = {"reason": visit.given("reason")[:255], "until": _end(visit, visit.given("hours"))}
        body_fields = {name: value for name, value in body.items() if value}
        visit.call("PUT /v1/nodes/{node}/maintenance", path, body=body_fields or None)


def _end(visit: Visit, hours: str) -> str:
    """Return when a maintenance of so many hours ends, "" if it does not end by itself."""
    if not hours:
        return ""
    if hours not in HOURS:
        raise BadRequestError(f"Invalid duration of the maintenance: {hours[:20]!r} hours.")
    now = visit.context.data.store.read(lambda tx: tx.now)
    return datetime.fromtimestamp(now + 3600 * int(hours), UTC).isoformat(timespec="seconds")


def _label_changes(text: str) -> dict[str, str | None]:
    """Return the labels of ``rack=r1 spare role-`` with their values, None for one to remove; ``BadRequestError``."""
    changes: dict[str, str | None] = {}
    try:
        for word in text.replace(",", " ").split():
            removed = word.endswith("-") and "=" not in word
            key, value = labels.pair(word.removesuffix("-") if removed else word)
            changes[key] = None if removed else value
    except labels.LabelError as exc:
        raise BadRequestError(f"Invalid label: {exc}.") from None
    if not changes:
        raise BadRequestError("Say which labels: such as rack=r1, spare, or role- to remove one.")
    return changes


def _label(visit: Visit, node: Node, changes: dict[str, str | None]) -> None:
    patch = [
        {"op": "remove", "path": _pointer(key)}
        if value is None
        else {"op": "add", "path": _pointer(key), "value": value}
        for key, value in changes.items()
        if value is not None or key in node.labels
    ]
    if patch:
        visit.call("PATCH /v1/nodes/{node}", {"node": node.uuid}, body=patch)


def _pointer(key: str) -> str:
    """Return the path of a label in a JSON patch (RFC 6901)."""
    return "/labels/" + key.replace("~", "~0").replace("/", "~1")
