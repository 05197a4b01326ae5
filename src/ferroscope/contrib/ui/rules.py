"""Inspection rules: the list with their matches, the editor with errors at the fields, and the dry run on machines."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from typing import Any, Final

import msgspec

from ferroscope.api.auth import access
from ferroscope.api.errors import ApiError, BadRequestError, BodyTooLargeError, MissingError
from ferroscope.contracts.store import Query
from ferroscope.contrib.ui import form
from ferroscope.contrib.ui.machine_list import MachineSelection, ranked, seen
from ferroscope.contrib.ui.page import HtmlPage, Redirect, Visit
from ferroscope.core.model import PHASES, Node
from ferroscope.db import Transaction
from ferroscope_client.core.json_safety import MAX_DEPTH
from ferroscope_client.enrollment.node_file import decode_document

SEE: Final = "baremetal:inspection_rule:get"
EXPLAIN: Final = "baremetal:inspection_rule:explain"
_CREATE: Final = "baremetal:inspection_rule:create"
_UPDATE: Final = "baremetal:inspection_rule:update"
_DELETE: Final = "baremetal:inspection_rule:delete"
_HISTORY: Final = "baremetal:node:history:get"

_NEW: Final = "new"
_TEXTS: Final = ("description", "scope", "phase", "priority")
_LISTS: Final = ("conditions", "actions")
_FIELDS: Final = (*_TEXTS, "sensitive", *_LISTS)
# The name of the wrong field in messages of the API.
_FIELD: Final = re.compile(r"(?:\A(?:Invalid )?|\bin |\$\.)(" + "|".join(_FIELDS) + r")\b")
# Inspections whose matches are counted; machines and seconds of one dry run; machines that it shows.
_MAX_INSPECTIONS: Final = 100
_MAX_TRIED: Final = 200
_STEP_SECONDS: Final = 2.0
_MAX_SHOWN: Final = 50
_MAX_CHANGES: Final = 20
_EXAMPLE: Final = {
    "conditions": [{"op": "eq", "args": ["{inventory[system_vendor][manufacturer]}", "ACME"]}],
    "actions": [{"op": "set-attribute", "args": {"path": "/extra/vendor", "value": "acme"}}],
}


def show(visit: Visit) -> HtmlPage:
    """List the rules in the order in which they run."""
    rules = _all(visit)
    matched, total = visit.context.data.store.read(lambda tx: _matches(visit, tx))
    rows = [
        {name: rule[name] for name in ("uuid", "description", "priority", "phase", "scope", "sensitive")}
        | {
            "conditions": None if rule["conditions"] is None else len(rule["conditions"]),
            "actions": None
            if rule["actions"] is None
            else list(dict.fromkeys(action["op"] for action in rule["actions"])),
            "matched": len(matched.get(rule["uuid"], ())),
        }
        for rule in rules
    ]
    data = {"rules": rows, "inspections": total, "may_create": visit.may(_CREATE)}
    return HtmlPage(template="rules.html", title="Rules", data=data)


def _all(visit: Visit) -> list[dict[str, Any]]:
    all_rules: list[dict[str, Any]] = []
    marker = None
    while True:
        page = visit.call("GET /v1/inspection_rules", detail=True, marker=marker)
        all_rules += page["inspection_rules"]
        if "next" not in page:
            return sorted(all_rules, key=lambda rule: -rule["priority"])  # stable: then in the order of creation
        marker = all_rules[-1]["uuid"]


def _matches(visit: Visit, tx: Transaction) -> tuple[dict[str, list[dict[str, str]]], int]:
    """Return the nodes of the newest inspections that each rule matched, and the number of these inspections."""
    newest = Query(
        before={"finished_at": tx.now + 1.0}, sort_key="finished_at", descending=True, limit=_MAX_INSPECTIONS
    )
    inspections = {inspection.uuid: inspection for inspection in tx.inspections.list(newest)}
    if not inspections:
        return {}, 0
    listed = tx.nodes.list(Query(filters={"uuid": tuple({inspection.node for inspection in inspections.values()})}))
    nodes = {node.uuid: node for node in listed if _sees_history(visit, node)}
    matches: dict[str, list[dict[str, str]]] = {}
    ran = set()
    if not nodes:
        return {}, 0
    filters = {"node": tuple(nodes), "inspection": tuple(inspections)}
    for entry in tx.journal.list(Query(filters=filters, descending=True)):
        if entry.step != "rules" or "applied" not in (entry.detail or {}):
            continue
        ran.add(entry.inspection)
        node = nodes[entry.node]
        for rule in (entry.detail or {})["applied"]:
            matches.setdefault(rule, []).append({"uuid": node.uuid, "name": node.name or node.uuid})
    return matches, len(ran)


def _sees_history(visit: Visit, node: Node) -> bool:
    return access.sees(visit.context.access.policy, visit.identity, node) and visit.may(_HISTORY, node)


def edit(visit: Visit) -> HtmlPage:
    """Show a rule, or the form for a new one."""
    if visit.path["rule"] == _NEW:
        fields = {"priority": "0", "phase": PHASES[0], **{name: _text(_EXAMPLE[name]) for name in _LISTS}}
        return _page(visit, None, fields)
    rule = visit.call("GET /v1/inspection_rules/{rule}", visit.path)
    return _page(visit, rule, _given_by(rule))


def _given_by(rule: dict[str, Any]) -> dict[str, str]:
    """Return the fields of the form for a stored rule; a sensitive one does not show its conditions and actions."""
    fields = {name: "" if rule[name] is None else str(rule[name]) for name in _TEXTS}
    fields |= {name: "" if rule[name] is None else _text(rule[name]) for name in _LISTS}
    return fields | ({"sensitive": "yes"} if rule["sensitive"] else {})


def _text(document: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode()


def act(visit: Visit) -> HtmlPage | Redirect:
    """Save a rule, delete it, or try it on stored machines."""
    rule = None if visit.path["rule"] == _NEW else visit.call("GET /v1/inspection_rules/{rule}", visit.path)
    fields = {name: (visit.form.get(name) or [""])[0] for name in _FIELDS}
    action = visit.given("action").partition(":")[0]
    if action == "delete" and rule is not None:
        if visit.given("confirm") == "yes":
            visit.call("DELETE /v1/inspection_rules/{rule}", visit.path)
            return Redirect("/ui/rules")
        return _page(visit, rule, _given_by(rule), asks=True)
    if action not in ("save", "try"):
        raise BadRequestError("Choose an action.")
    body, errors = _body(fields, hidden=rule is not None and rule["conditions"] is None)
    try:
        if errors:
            return _page(visit, rule, fields, errors=errors)
        if action == "try":
            return _page(visit, rule, fields, tried=_try(visit, rule, body))
        if rule is not None and visit.given("was") not in ("", _version(rule)):
            return _page(visit, rule, fields, errors={"": [_CHANGED]})
        if rule is None:
            return Redirect(f"/ui/rules/{visit.call('POST /v1/inspection_rules', body=body)['uuid']}?saved=yes")
        changed = [
            {"op": "replace", "path": f"/{name}", "value": value} for name, value in body.items() if rule[name] != value
        ]
        if changed:
            visit.call("PATCH /v1/inspection_rules/{rule}", visit.path, body=changed)
        return Redirect(f"/ui/rules/{rule['uuid']}?saved=yes")
    except (BadRequestError, BodyTooLargeError) as exc:
        return _page(visit, rule, fields, errors=_by_field(exc.message))


_CHANGED: Final = (
    "Another user changed this rule after you opened it. Nothing was saved. Your input is below; saving "
    "it again replaces theirs."
)


def _version(rule: dict[str, Any]) -> str:
    # Not its time, which has whole seconds.
    return hashlib.sha256(msgspec.json.encode([rule[name] for name in _FIELDS])).hexdigest()


def _body(fields: dict[str, str], *, hidden: bool) -> tuple[dict[str, Any], dict[str, list[str]]]:
    """Return the form's rule for the API, and the errors by field."""
    body: dict[str, Any] = {name: fields[name].strip() or None for name in ("description", "scope", "phase")}
    body |= {"priority": fields["priority"].strip() or 0, "sensitive": fields["sensitive"] == "yes"}
    if str(body["priority"]).isdecimal():
        body["priority"] = int(body["priority"])
    errors: dict[str, list[str]] = {}
    for name in () if hidden else _LISTS:
        try:
            body[name] = _check_list(name, form.plain(decode_document(fields[name], "yaml", aliases=False), MAX_DEPTH))
        except ValueError as exc:
            errors[name] = str(exc).splitlines()
    return body, errors


def _check_list(name: str, document: Any) -> list[dict[str, Any]]:
    listed = [] if document is None else document
    if not isinstance(listed, list) or not all(isinstance(item, dict) for item in listed):
        raise ValueError(f"expected a list of {name}, each with op and args")
    return listed


def _by_field(message: str) -> dict[str, list[str]]:
    """Return the problems in an error of the API by field; "" for the whole rule."""
    by_field: dict[str, list[str]] = {}
    field = ""
    for problem in message.removeprefix("Invalid rule: ").rstrip(".").split("; "):
        named = _FIELD.search(problem)
        field = named[1] if named else field
        by_field.setdefault(field, []).append(problem)
    return by_field


def _page(
    visit: Visit,
    rule: dict[str, Any] | None,
    fields: dict[str, str],
    *,
    errors: dict[str, list[str]] | None = None,
    tried: dict[str, Any] | None = None,
    asks: bool = False,
) -> HtmlPage:
    matched, total = ({}, 0) if rule is None else visit.context.data.store.read(lambda tx: _matches(visit, tx))
    matches = matched.get(rule["uuid"], []) if rule else []
    data = {
        "rule": rule and {name: rule[name] for name in ("uuid", "dialect", "created_at", "updated_at")},
        "was": "" if rule is None else _version(rule),
        "hidden": rule is not None and rule["conditions"] is None,
        "given": {name: fields.get(name, "") for name in _FIELDS},
        "errors": errors or {},
        "phases": list(PHASES),
        "asks": asks,
        "saved": visit.asked("saved") == "yes" and not errors,
        "tried": tried,
        "q": visit.given("q"),
        "matches": matches[:_MAX_SHOWN],
        "matched": len(matches),
        "inspections": total,
        "may_save": visit.may(_CREATE if rule is None else _UPDATE),
        "may_delete": rule is not None and visit.may(_DELETE),
        "may_try": visit.may(EXPLAIN),
    }
    title = "New rule" if rule is None else (rule["description"] or "Rule")
    return HtmlPage(template="rule.html", title=title[:120], data=data, status=400 if errors else 200)


def _try(visit: Visit, rule: dict[str, Any] | None, body: dict[str, Any]) -> dict[str, Any]:
    """Return the effect of the form's rule on machines, until the time is over; nothing is stored.

    A hidden rule, or one of the Introspection API, is tried in its stored form.
    """
    if not visit.may(EXPLAIN):
        raise access.forbidden_error((EXPLAIN,), visit.identity)
    stored = rule is not None and (rule["conditions"] is None or rule["dialect"] != "bare-metal")
    draft = body | ({} if rule is None else {"uuid": rule["uuid"]})
    target = {"rule": rule["uuid"]} if stored and rule is not None else {"draft": draft}
    first = _first(visit.given("action"))
    machines, total = _machines(visit, visit.given("q"), first)
    began, clock = visit.context.process.clock.monotonic(), visit.context.process.clock
    counts: Counter[str] = Counter()
    results: list[dict[str, Any]] = []
    for machine in machines:
        if sum(counts.values()) and clock.monotonic() - began >= _STEP_SECONDS:
            break
        try:
            explained = visit.call("POST /v1/inspection_rules/explain", body={"node": machine["uuid"], **target})
        except BadRequestError:
            raise
        except MissingError:
            counts["without data"] += 1
            continue
        except ApiError as exc:
            counts["not possible"] += 1
            results.append({**_node_names(machine), "result": "not possible", "error": exc.message, "changes": []})
            continue
        (report,) = explained["rules"]
        counts[report["result"]] += 1
        if report["result"] in ("applied", "failed"):
            results.append(
                {**_node_names(machine), "result": report["result"], "error": report["error"]} | changes_of(explained)
            )
    return {
        "counts": dict(sorted(counts.items())),
        "tried": sum(counts.values()),
        "first": first,
        "machines": total,
        "found": results[:_MAX_SHOWN],
        "more": max(0, len(results) - _MAX_SHOWN),
        "stored": stored,
    }


def _first(action: str) -> int:
    """Return the machine to continue with, such as 150 of "try:150"."""
    number = action.partition(":")[2]
    return int(number) if number.isascii() and number.isdigit() and len(number) < 8 else 0


def _machines(visit: Visit, q: str, first: int) -> tuple[list[dict[str, Any]], int]:
    """Return the machines on which to try, from the one with this number on, and how many match the search in all."""
    uuids = ranked(visit, MachineSelection(q=q))
    some = uuids[first : first + _MAX_TRIED]
    by_uuid = {node.uuid: {"uuid": node.uuid, "name": node.name} for node in seen(visit, some)}
    return [by_uuid[uuid] for uuid in some if uuid in by_uuid], len(uuids)


def _node_names(node: dict[str, Any]) -> dict[str, str]:
    return {"uuid": node["uuid"], "name": node["name"] or node["uuid"]}


def changes_of(explained: dict[str, Any], most: int = _MAX_CHANGES) -> dict[str, Any]:
    """Return the changes of a dry run as rows for a table, at most so many."""
    rows = [("node", change) for change in explained["node"]]
    rows += [(f"port {port['address']}", change) for port in explained["ports"] for change in port["changes"]]
    rows += [("plugin data", change) for change in explained["plugin_data"]]
    changes = [
        {"where": where, "path": change["path"], **{side: _value(change, side) for side in ("before", "after")}}
        for where, change in rows[:most]
    ]
    calls = [f"HTTP call to {url}" for url in explained["calls"]]
    return {"changes": changes, "more_changes": max(0, len(rows) - most), "calls": calls}


def _value(change: dict[str, Any], side: str) -> str:
    return msgspec.json.encode(change[side]).decode()[:300] if side in change else ""
