"""The form that corrects the address and credentials of a machine's BMC, and has a worker try it at once.

A password goes one way only: the stored password is never shown, and an empty field keeps it.
"""

from __future__ import annotations

from typing import Any, Final

from ferroscope.api.baremetal.node_bmc import TRIAL_POLICY
from ferroscope.api.errors import ApiError, BadRequestError, ForbiddenError, StateConflictError
from ferroscope.contrib.ui.machine_actions import TRY, add_done
from ferroscope.contrib.ui.page import HtmlPage, Redirect, Visit
from ferroscope.core.model import Node

UPDATE: Final = "baremetal:node:update:driver_info"
# A driver's properties for a BMC's address, its login, and the check of its identity.
_ENDINGS: Final = {
    "_address": "Address", "_username": "User", "_password": "Password", "_port": "Port", "_system_id": "System",
    "_verify_ca": "Certificate check",
}  # fmt: skip
_OTHERS: Final = ("target_", "transit_", "local_", "snmp", "terminal")
_MAX_VALUE_CHARACTERS: Final = 4096


def fields(visit: Visit, node: Node, info: Any) -> list[dict[str, Any]]:
    """Return the fields of the form with their stored values; none if the visitor may not change them."""
    driver = visit.context.services.drivers.get(node.driver)
    if driver is None or not visit.may(UPDATE, node):
        return []
    stored = info if isinstance(info, dict) else {}
    form = []
    for ending, title in _ENDINGS.items():
        for name, about in driver.properties.items():
            if not name.endswith(ending) or any(part in name for part in _OTHERS):
                continue
            secret, value = ending == "_password", stored.get(name)
            plain = not secret and isinstance(value, str | int) and "***" not in str(value)
            form.append(
                {"name": name, "title": title, "about": about, "secret": secret, "stored": value is not None,
                 "value": str(value) if plain else "", "was": str(value) if plain else "",
                 "shown": plain or value is None}
            )  # fmt: skip
    return form


def act(visit: Visit) -> HtmlPage | Redirect:
    """Store the corrections, and try the BMC."""
    shown = visit.call("GET /v1/nodes/{node}", {"node": visit.path["node"]}, fields=["uuid", "name", "driver_info"])
    path = {"node": shown["uuid"]}
    node = visit.context.data.store.read(lambda tx: tx.nodes.get(shown["uuid"]), snapshot=False)
    form = fields(visit, node, shown["driver_info"])
    try:
        if visit.given("action") == "correct":
            if not form:
                raise ForbiddenError(f"The policy {UPDATE} does not allow this for {visit.identity}.")
            if patch := _patch(visit, form):
                visit.call("PATCH /v1/nodes/{node}", path, body=patch)
        elif visit.given("action") != TRY:
            raise BadRequestError("Choose an action.")
        if visit.may(TRIAL_POLICY, node):
            visit.call("POST /v1/nodes/{node}/bmc/trial", path)
    except ApiError as exc:
        kept = [field | {"value": "" if field["secret"] else visit.given(field["name"])} for field in form]
        data = {"uuid": node.uuid, "name": node.name or node.uuid, "fields": kept, "problem": exc.message}
        return HtmlPage(template="bmc.html", title="Correct the BMC", data=data, status=exc.status)
    return Redirect(add_done(f"/ui/machines/{node.uuid}?tab=timeline", TRY))


def _patch(visit: Visit, form: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the changes; an emptied field is removed, an empty password is kept.

    ``StateConflictError`` if another user has changed the same fields meanwhile.
    """
    operations: list[dict[str, Any]] = []
    for field in form:
        if field["name"] not in visit.form:
            continue
        value, where = visit.given(field["name"])[:_MAX_VALUE_CHARACTERS], f"/driver_info/{field['name']}"
        was = visit.form.get(f"was-{field['name']}")
        if was is not None and not field["secret"] and was[0] != field["was"]:
            if value == was[0]:
                continue  # unchanged in the form: keep what another user has entered
            raise StateConflictError(
                f"Another user changed {field['name']} meanwhile: it is {field['was'][:200]!r} now. Nothing was "
                "saved. Your input is below; saving it again replaces theirs."
            )
        if value and (field["secret"] or value != field["value"]):
            operations.append({"op": "add", "path": where, "value": value})
        elif not value and field["shown"] and not field["secret"] and field["stored"]:
            operations.append({"op": "remove", "path": where})
    return operations
