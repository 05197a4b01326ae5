"""One machine: its hardware, the timeline of its inspections, the changes between them, and the raw data."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime
from itertools import groupby
from typing import Any, Final

import msgspec

from ferroscope.api.auth import access
from ferroscope.api.baremetal import node_bmc, notes, provision
from ferroscope.api.errors import ApiError, StateConflictError
from ferroscope.contracts.store import Query
from ferroscope.contrib.ui import alike, bmc_form, naming, progress, ramdisk_log, remedy, rules
from ferroscope.contrib.ui.bulk import BulkAction
from ferroscope.contrib.ui.machine_actions import ACTIONS, say_done
from ferroscope.contrib.ui.machines import deviations_of
from ferroscope.contrib.ui.page import FileDownload, HtmlPage, Visit
from ferroscope.core.model import Node
from ferroscope.core.node_changes import ValueSource
from ferroscope.hardware import diff, parts
from ferroscope.hardware.sources import IN_BAND
from ferroscope_client.core import json_safety
from ferroscope_client.core.states import ACTIVE, Provision
from ferroscope_client.core.values import natural
from ferroscope_client.hardware import health, readings
from ferroscope_client.hardware.names import VENDORS
from ferroscope_client.hardware.search_fields import KINDS

TABS: Final = {
    "hardware": "Hardware", "health": "Health", "timeline": "Timeline", "history": "History", "rules": "Rules",
    "audit": "Audit", "log": "Ramdisk log", "raw": "Raw data",
}  # fmt: skip
_TITLES: Final = {
    "node": "System", "cpu": "Processors", "dimm": "Memory", "nic": "Network interfaces", "disk": "Disks",
    "result": "Collectors",
}  # fmt: skip
# Kinds of parts that have names, by which they are sorted.
_NAMED: Final = frozenset({"nic", "disk"})
# Fields that have the ID of a product instead of its name.
_CODES: Final = frozenset({("nic", "product"), ("gpu", "product")})
_PCI: Final = "PCI ID"
_FIELDS: Final = (
    "uuid", "name", "driver", "provision_state", "power_state", "target_power_state", "maintenance",
    "maintenance_reason", "maintenance_until", "notes", "last_error", "owner", "lessee", "resource_class",
    "description", "conductor", "driver_info", "properties", "extra", "traits", "inspection_started_at",
    "inspection_finished_at", "provision_updated_at", "created_at", "inbox", "hardware", "labels", "deviations",
)  # fmt: skip
# The most rows of one table, inspections and steps of a timeline, audit events, and characters of raw data on a page.
_MAX_ROWS: Final = 256
_MAX_INSPECTIONS: Final = 5
_MAX_STEPS: Final = 200
_MAX_EVENTS: Final = 100
_MAX_RAW_CHARACTERS: Final = 200_000
_HISTORY: Final = "baremetal:node:history:get"
_ADDRESSES: Final = ("redfish_address", "ipmi_address", "sim_address")


def show(visit: Visit) -> HtmlPage | FileDownload:
    """Show the machine."""
    path = {"node": visit.path["node"]}
    if visit.asked("download") == "inventory":
        body = visit.call("GET /v1/nodes/{node}/inventory", path)
        return FileDownload(name="inventory.json", body=_bytes(body), media="application/json")
    if visit.asked("download") == "log":
        body = visit.call("GET /v1/nodes/{node}/log", path)
        return FileDownload(name="ramdisk-log.tar.gz", body=_bytes(body), media="application/octet-stream")
    shown = visit.call("GET /v1/nodes/{node}", path, fields=list(_FIELDS))
    path = {"node": shown["uuid"]}
    node = visit.context.data.store.read(lambda tx: tx.nodes.get(shown["uuid"]), snapshot=False)
    # An attached Ironic does not say who has set a value.
    sources = node.sources if visit.context.services.attached is None else {}
    in_trouble = node.provision_state == Provision.INSPECT_FAILED or node.state in ACTIVE
    tab = visit.asked("tab") if visit.asked("tab") in TABS else "timeline" if in_trouble else "hardware"
    trouble = remedy.card(visit, node, shown)
    more = _more(visit, path, shown, node)
    build = {
        "hardware": _hardware, "health": _health, "timeline": _timeline, "history": _history, "rules": _rules,
        "audit": _audit, "log": _log, "raw": _raw,
    }[tab]  # fmt: skip
    made: Any = build(visit, path, shown)
    data = {
        "node": shown | {"driver_info": _visible(shown["driver_info"]), "name": naming.label(shown)},
        "labels": alike.labels_of(shown),
        "deviations": deviations_of(shown),
        "bmc": _bmc(shown["driver_info"]),
        "done": say_done(visit.asked("done"), naming.label(shown)),
        "tab": tab,
        "tabs": [{"name": name, "title": title, "more": more.get(name, "")} for name, title in TABS.items()],
        "alike": {
            name: alike.term(name, shown.get(name)) for name in ("driver", "owner", "resource_class") if shown.get(name)
        },
        "sources": sources,
        "properties": [
            {"text": f"{name}={_text(value)}", "source": sources.get(f"properties.{name}", "")}
            for name, value in sorted(shown["properties"].items())
        ],
        "actions": _actions(visit, node),
        "active": node.state in ACTIVE,
        "progress": progress.of(node, _usual(visit)) if node.state in ACTIVE else None,
        "may_note": visit.may(notes.POLICY, node),
        "trouble": trouble,
        "trial": remedy.trial(visit, node, made if tab == "timeline" else None),
        "bmc_page": remedy.bmc_page(_visible(shown["driver_info"])),
        "bmc_fields": bmc_form.fields(visit, node, shown["driver_info"]),
        tab: made,
    }
    return HtmlPage(template="machine.html", title=naming.label(shown), data=data)


def _more(visit: Visit, path: dict[str, str], shown: dict[str, Any], node: Node) -> dict[str, str]:
    """Return the texts beside the titles of tabs: a health that is not good, and counts."""
    badges = {}
    summary = _visible(shown.get("hardware"))
    if summary.get("health") in ("warning", "critical"):
        badges["health"] = str(summary["health"])
    if visit.may(_HISTORY, node):
        badges["timeline"] = str(
            len(visit.context.data.store.read(lambda tx: tx.inspections.list(Query(filters={"node": node.uuid}))))
        )
    kept = visit.call_if_possible("GET /v1/nodes/{node}/inventory/revisions", path)
    if kept is not None:
        badges["history"] = str(len(kept["revisions"]))
    return {name: text for name, text in badges.items() if text != "0"}


def _usual(visit: Visit) -> dict[str, progress.Usual]:
    """Return how long inspections of the whole fleet take, if the visitor may see it."""
    if access.scope(visit.context.access.policy, visit.identity, "node") is not None:
        return {}
    return progress.shared(visit)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _actions(visit: Visit, node: Node) -> dict[str, str]:
    """Return the titles of the actions that are possible now and allowed for the caller, by name."""
    verbs, failed = provision.allowed_verbs(node), node.provision_state == Provision.INSPECT_FAILED

    def possible(name: str, action: BulkAction) -> bool:
        if action.verb:
            return action.verb in verbs
        if name in ("maintenance", "clear"):
            return node.maintenance == (name == "clear")
        return not action.power or not (node.state in ACTIVE or node.inbox)

    titles = {name: action.title for name, action in ACTIONS.items() if visit.may(action.policy, node)}
    titles = {name: title for name, title in titles.items() if possible(name, ACTIONS[name])}
    if visit.may(node_bmc.TRIAL_POLICY, node) and not (node.state in ACTIVE or node.inbox):
        titles["try"] = "Try the BMC now"
    return titles | ({"inspect": "Retry"} if failed and "inspect" in titles else {})


def _visible(document: Any) -> dict[str, Any]:
    return document if isinstance(document, dict) else {}


def _bmc(info: Any) -> str:
    """Return the address of the BMC, "" if it is unknown or hidden."""
    return next((str(_visible(info)[name]) for name in _ADDRESSES if _visible(info).get(name)), "")


def _bytes(body: Any) -> bytes:
    return body if isinstance(body, bytes) else msgspec.json.encode(body)


def _documents(visit: Visit, path: dict[str, str]) -> tuple[Any, Any] | None:
    """Return inventory and plugin data; None if there are none, or the caller may not see them."""
    body = visit.call_if_possible("GET /v1/nodes/{node}/inventory", path)
    if body is None:
        return None
    try:
        document = json_safety.decode(_bytes(body), max_containers=json_safety.MAX_DERIVED)
    except json_safety.JsonTooLargeError as exc:
        raise StateConflictError(f"The inventory is too large to show: {exc}.") from None
    return document["inventory"], document["plugin_data"]


def _hardware(visit: Visit, path: dict[str, str], _node: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a table for each kind of part; ``source``: of all its values, "" if each cell has its own."""
    documents = _documents(visit, path)
    sourced = [] if documents is None else [row for row in sourced_parts(*documents) if row[0].kind != "health"]
    sourced.sort(key=lambda row: list(KINDS).index(row[0].kind))
    tables = []
    for kind, members in groupby(sourced, key=lambda row: row[0].kind):
        listed = list(members)
        if kind in _NAMED:
            listed.sort(key=lambda row: natural(str(row[0].fields.get("name", ""))))
        names = [name for name in KINDS[kind] if any(name in part.fields for part, _ in listed)]
        sources = {sources[name] for part, sources in listed for name in part.fields}
        rows = [
            [
                {"text": _format(kind, name, part.fields[name]), "source": sources[name], "q": alike.part(part, name)}
                if name in part.fields and not _repeats(part, name)
                else {"text": "-", "source": "", "q": ""}
                for name in names
            ]
            for part, sources in listed[:_MAX_ROWS]
        ]
        titles = [_PCI if (kind, name) in _CODES else name.replace("_", " ") for name in names]
        title = _TITLES.get(kind, kind.upper() if len(kind) <= 3 else kind.capitalize())
        tables.append(
            {"kind": kind, "title": title, "names": titles, "rows": rows,
             "more": max(0, len(listed) - _MAX_ROWS), "source": sources.pop() if len(sources) == 1 else ""}
        )  # fmt: skip
    return sorted(tables, key=lambda table: len(table["rows"]) > 1)  # short tables beside each other


def _repeats(part: parts.Part, name: str) -> bool:
    """Whether the name only repeats the component, such as a BIOS named bios."""
    return part.kind == "firmware" and name == "name" and part.fields.get("component") == part.fields[name]


def _format(kind: readings.Kind, name: str, value: parts.Value) -> str:
    """Return a value for display; a vendor's PCI ID with the name that searches use."""
    text = diff.format_value(kind, name, value)
    vendor = VENDORS.get(text.lower().removeprefix("0x")) if KINDS[kind][name].vendor else None
    return f"{vendor} ({text})" if vendor else text


def _health(visit: Visit, path: dict[str, str], _node: dict[str, Any]) -> dict[str, Any] | None:
    """Return the health that the BMC reported, problems first; None if it reported none."""
    documents = _documents(visit, path)
    report = None if documents is None else health.read(documents[1])
    return None if report is None else msgspec.to_builtins(report)


def sourced_parts(inventory: Any, plugin_data: Any) -> list[tuple[parts.Part, dict[str, str]]]:
    """Return each part with the sources of its values: the ramdisk's, and those that only the BMC reported."""
    own = parts.parts(inventory, plugin_data)
    hardware = readings.mapping(readings.mapping(plugin_data).get("hardware"))
    sources = readings.mapping(hardware.get("sources"))
    if not sources:
        return [(part, dict.fromkeys(part.fields, ValueSource.IN_BAND)) for part in own]
    if IN_BAND not in sources.values():
        return [(part, dict.fromkeys(part.fields, ValueSource.OUT_OF_BAND)) for part in own]
    # The combined parts begin with the ramdisk's, in their order.
    in_band = defaultdict(list)
    for part in own:
        in_band[part.kind].append(part.fields)
    sourced = []
    for part in parts.parts(hardware.get("inventory"), plugin_data):
        mine = in_band[part.kind].pop(0) if in_band[part.kind] else {}
        # A value such as the sum of all disks may come from both.
        by = {
            name: ValueSource.OUT_OF_BAND if name not in mine else ValueSource.IN_BAND if mine[name] == value else ""
            for name, value in part.fields.items()
        }
        sourced.append((part, by))
    return sourced


def _timeline(visit: Visit, path: dict[str, str], _node: dict[str, Any]) -> dict[str, Any] | None:
    timeline = visit.call_if_possible("GET /v1/nodes/{node}/timeline", path, limit=_MAX_INSPECTIONS)
    if timeline is None:
        return None
    for inspection in timeline["inspections"]:
        began = _seconds(inspection["started_at"])
        for step in inspection["entries"]:
            step["offset"] = round(max(0.0, _seconds(step["at"]) - began), 2)
        inspection["seconds"] = (
            None if inspection["finished_at"] is None else _seconds(inspection["finished_at"]) - began
        )
        inspection["left_out"] = max(0, len(inspection["entries"]) - _MAX_STEPS)
        inspection["entries"] = inspection["entries"][-_MAX_STEPS:]
        inspection |= _wait_times(visit, inspection["uuid"])
    return {
        "inspections": timeline["inspections"],
        "entries": timeline["entries"][-_MAX_STEPS:],
        "more": "next" in timeline,
    }


def _wait_times(visit: Visit, uuid: str) -> dict[str, Any]:
    """Return how long the inspection has waited for workers."""
    inspections = visit.context.data.store.read(lambda tx: tx.inspections.list(Query(filters={"uuid": uuid})))
    return {"queued": round(inspections[0].queued, 1) if inspections else 0.0}


def _seconds(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()


def _history(visit: Visit, path: dict[str, str], _node: dict[str, Any]) -> dict[str, Any] | None:
    """Return the revisions, and the differences between two of them or to another machine."""
    history = visit.call_if_possible("GET /v1/nodes/{node}/inventory/revisions", path)
    if history is None:
        return None
    revisions = history["revisions"]
    before, after, other_node = visit.asked("before"), visit.asked("after"), visit.asked("other")
    if other_node and any(revision["inspection"] == after for revision in revisions):
        after = ""  # the form has inventories of this machine: of the other one, the newest is meant
    compared, problem = None, ""
    if other_node or len(revisions) > 1:
        query = {"before": before, "after": after, "other": other_node}
        try:
            compared = visit.call(
                "GET /v1/nodes/{node}/inventory/diff", path, **{name: value for name, value in query.items() if value}
            )
        except ApiError as exc:
            problem = exc.message
    return {
        "revisions": revisions[::-1],
        "diff": compared,
        "problem": problem,
        "before": before or (compared["before"]["inspection"] if compared else ""),
        "after": after or (compared["after"]["inspection"] if compared else ""),
        "other": other_node,
    }


def _rules(visit: Visit, path: dict[str, str], _node: dict[str, Any]) -> dict[str, Any] | None:
    """Return the effect that each rule would have on the data of the last inspection, and why; None if not allowed."""
    if not visit.may(rules.EXPLAIN):
        return None
    try:
        explained = visit.call("POST /v1/inspection_rules/explain", body={"node": path["node"]})
    except ApiError as exc:
        return {"problem": exc.message}
    for rule in explained["rules"]:
        rule["conditions"] = [_condition(condition) for condition in rule["conditions"] or ()]
        rule["actions"] = [f"{action['op']} {_arguments(action['args'])}" for action in rule["actions"] or ()]
    return {
        "problem": "",
        "failed": explained["failed"],
        "rules": explained["rules"],
        **rules.changes_of(explained, _MAX_ROWS),
    }


def _audit(visit: Visit, path: dict[str, str], _node: dict[str, Any]) -> dict[str, Any] | None:
    """Return the audit events of the machine, newest first; None if the caller may not see them."""
    events: dict[str, Any] | None = visit.call_if_possible("GET /v1/audit", node=path["node"], limit=_MAX_EVENTS)
    return events


def _condition(asked: dict[str, Any]) -> dict[str, Any]:
    """Return a condition with the values that it compared, and missing data."""
    checks = [
        f"{check['missing']} not found" if check["missing"] else _arguments(check["args"]) for check in asked["checks"]
    ]
    return {"op": asked["op"], "holds": asked["holds"], "checks": checks, "left_out": asked["left_out"]}


def _arguments(args: dict[str, Any] | None) -> str:
    set_args = {name: value for name, value in (args or {}).items() if value not in (None, False)}
    return ", ".join(f"{name}={msgspec.json.encode(value).decode()[:200]}" for name, value in set_args.items())


def _log(visit: Visit, path: dict[str, str], _node: dict[str, Any]) -> dict[str, Any] | None:
    """Return the end of each text in the ramdisk's log; None if there is no log, or the caller may not see it."""
    body = visit.call_if_possible("GET /v1/nodes/{node}/log", path)
    return None if body is None else ramdisk_log.read_log(_bytes(body))


def _raw(visit: Visit, path: dict[str, str], node: dict[str, Any]) -> dict[str, Any]:
    documents = _documents(visit, path)
    raw_documents = {"node": node} if documents is None else {"node": node, "inventory": documents[0]}
    texts = {
        name: msgspec.json.format(msgspec.json.encode(document), indent=2).decode()
        for name, document in raw_documents.items()
    }
    return {
        "texts": [
            {"name": name, "text": text[:_MAX_RAW_CHARACTERS], "cut": len(text) > _MAX_RAW_CHARACTERS}
            for name, text in texts.items()
        ],
        "downloads": documents is not None,
    }
