"""The list of machines, a page of it or all as CSV."""

from __future__ import annotations

import csv
import io
from typing import Any, Final

import msgspec

from ferroscope.api.baremetal.history import hint_of
from ferroscope.api.errors import BadRequestError
from ferroscope.contrib.ui import alike, naming, saved_searches, view
from ferroscope.contrib.ui.machine_list import MachineSelection, menu, ranked, views
from ferroscope.contrib.ui.page import FileDownload, HtmlPage, Redirect, ViewerPart, Visit
from ferroscope.contrib.ui.render import link
from ferroscope.core.model import Node
from ferroscope.hardware import expectations
from ferroscope.hardware.search_index import text
from ferroscope_client.core import advice, labels, values
from ferroscope_client.core.states import Provision
from ferroscope_client.hardware import names
from ferroscope_client.hardware.search_fields import KINDS, OWN

# Machines of an export.
_MAX_EXPORTED: Final = 20_000
_EXPORT_PAGE_SIZE: Final = 1000
# Seconds for which viewers of the same list share a view.
_CACHE_SECONDS: Final = 2.0
INSPECT: Final = "baremetal:node:set_provision_state"
MAINTENANCE: Final = "baremetal:node:set_maintenance"


class MachineColumn(msgspec.Struct, frozen=True):
    """``sort``: one of ``contracts.store.SORTS``; ``usual``: shown unless other columns are chosen."""

    name: str
    title: str
    sort: str = ""
    usual: bool = True


COLUMNS: Final = (
    MachineColumn("state", "State", "provision_state"),
    MachineColumn("error", "Cause", usual=False),
    MachineColumn("model", "Model", "model"),
    MachineColumn("serial", "Serial", "serial"),
    MachineColumn("cpu", "CPU", "cpu"),
    MachineColumn("memory", "Memory", "memory"),
    MachineColumn("disks", "Disks", "storage"),
    MachineColumn("nics", "NICs", "nics"),
    MachineColumn("ports", "Switch ports", usual=False),
    MachineColumn("deviations", "Not as expected", usual=False),
    MachineColumn("labels", "Labels"),
    MachineColumn("power", "Power", "power_state"),
    MachineColumn("inspected", "Inspected", "inspection_finished_at"),
    MachineColumn("driver", "Driver", "driver", usual=False),
    MachineColumn("owner", "Owner", "owner", usual=False),
    MachineColumn("class", "Resource class", "resource_class", usual=False),
    MachineColumn("uuid", "UUID", "uuid", usual=False),
    MachineColumn("since", "In this state", "provision_updated_at", usual=False),
    MachineColumn("age", "Enrolled", "created_at", usual=False),
)
# The completions of the search box: the fields of the language, and their meanings.
_SEARCHED: Final = [
    *((name, field.about) for name, field in OWN.items()),
    *((name, field.about) for name, field in KINDS["node"].items()),
    *((f"{kind}.{name}", field.about) for kind in KINDS if kind != "node" for name, field in KINDS[kind].items()),
]
# Columns whose values are not in the row's value of the same name.
_KEYS: Final = {"model": ("vendor", "product"), "cpu": ("cpu", "cpus"), "disks": ("disks", "storage")}
_HARDWARE: Final = ("model", "serial", "cpu", "memory", "disks", "nics")
_FAILED: Final = (Provision.INSPECT_FAILED, Provision.ENROLL)
_OF_DEVIATING: Final = ("state", "model", "serial", "deviations", "labels", "inspected")
_OF_FAILED: Final = ("state", "error", "model", "serial", "labels", "power", "since")
_USUAL: Final = tuple(column.name for column in COLUMNS if column.usual)
_NAMES: Final = frozenset(column.name for column in COLUMNS)


def show(visit: Visit) -> HtmlPage | FileDownload | Redirect:
    """Show a page of machines, or all of them as CSV; or have the browser remember columns and page size."""
    wanted = MachineSelection.of(visit.asked)
    if visit.asked("keep"):
        columns = () if visit.asked("keep") == "usual" else tuple(_chosen_columns(visit))
        kept = view.View(() if columns == _USUAL else columns, view.size_of(visit.asked("size")))
        order = {name: visit.asked(name) for name in ("sort", "dir")}
        return Redirect(link("/ui/machines", **msgspec.to_builtins(wanted), **order), kept.written)
    if visit.asked("format") == "csv":
        return _export(visit, wanted)
    shared = visit.shared("machines", _CACHE_SECONDS, lambda: _list(visit, wanted))
    own = ViewerPart("machines_saved.html", {"saved": saved_searches.list_searches(visit)})
    return HtmlPage(template="machines.html", title="Machines", shared=shared, own=own)


def _list(visit: Visit, wanted: MachineSelection) -> dict[str, Any]:
    """Return a page of machines for display."""
    sort, descending = visit.asked("sort", "name"), visit.asked("dir") == "desc"
    chosen, kept = _chosen_columns(visit), view.read(visit.view, _NAMES)
    problem, uuids = "", []
    try:
        uuids = ranked(visit, wanted, sort, descending=descending)
    except BadRequestError as exc:
        problem = exc.message
    pages = max(1, -(-len(uuids) // kept.size))
    number = min(pages, _number(visit.asked("page")))
    first = (number - 1) * kept.size
    rows = [_row(visit, node, wanted) for node in views(visit, uuids[first : first + kept.size])]
    wished = chosen or _wished_columns(wanted, rows)
    if wished == _USUAL and kept.columns:
        wished = kept.columns
    # A column without any value takes no space.
    visible = chosen or [name for name in wished if any(_knows(row, name) for row in rows)]
    if "ports" in wished:
        _add_ports(visit, rows, wanted.q)
    hardware = [name for name in _HARDWARE if name in visible]
    for row in rows:
        row["known"] = {name: _knows(row, name) for name in visible}
        row["shows_cause"] = bool(row["error"] and hardware and "error" not in visible) and row["state"] in _FAILED
    return {
        "hardware": hardware,
        "wanted": msgspec.to_builtins(wanted),
        "problem": problem,
        "rows": rows,
        "total": len(uuids),
        "first": first + 1,
        "page": number,
        "pages": pages,
        "columns": [
            msgspec.to_builtins(column) | {"shown": column.name in visible, "wished": column.name in wished}
            for column in COLUMNS
        ],
        "chosen": [] if chosen == list(kept.columns or _USUAL) else chosen,
        "size": kept.size,
        "sizes": view.SIZES,
        "whole_cause": _is_about_failures(wanted) or "error" in wished,
        "sort": sort,
        "descending": descending,
        "states": [str(state) for state in Provision],
        "reason": {"code": wanted.reason, "hint": hint_of(wanted.reason) or ""} if wanted.reason else None,
        "may_act": any(row["may_act"] for row in rows),
        "fields": _SEARCHED,
        "menu": menu(visit),
        "command": "" if problem else saved_searches.command(wanted),
    }


def _number(text: str) -> int:
    return max(1, int(text)) if text.isascii() and text.isdigit() and len(text) < 7 else 1


def _chosen_columns(visit: Visit) -> list[str]:
    """Return the columns that the URL names."""
    return [name for name in visit.query.get("c", []) if name in _NAMES]


def _is_about_failures(wanted: MachineSelection) -> bool:
    asked = wanted.q.lower()
    return bool(wanted.reason) or wanted.state == Provision.INSPECT_FAILED or "fail" in asked or "reason" in asked


def _wished_columns(wanted: MachineSelection, rows: list[dict[str, Any]]) -> tuple[str, ...]:
    """Return the columns that fit the search: for deviating or failed machines, the deviation or the error."""
    if "deviating" in wanted.q.lower():
        return _OF_DEVIATING
    if _is_about_failures(wanted):
        return _OF_FAILED
    # In other lists, the cause replaces the hardware, if there is one.
    without = not any(_knows(row, name) for row in rows for name in _HARDWARE)
    return ("state", "error", *_USUAL[1:]) if without and any(row["error"] for row in rows) else _USUAL


def _knows(row: dict[str, Any], column: str) -> bool:
    return any(row[key] for key in _KEYS.get(column, (column,)))


def deviations_of(node: dict[str, Any]) -> list[dict[str, str]]:
    """Return how the hardware deviates from the expectations; nothing if the caller may not see that."""
    return [deviation for deviation in node[expectations.KEY] if "condition" in deviation]


def _row(visit: Visit, node: dict[str, Any], wanted: MachineSelection) -> dict[str, Any]:
    """Return a node's row; ``hardware`` is hidden from callers who may not see inventories."""
    hardware = node.get("hardware") or {}
    summary = hardware if isinstance(hardware, dict) and "content" not in hardware else {}
    target = Node(uuid="", driver="", owner=node.get("owner"), attributes={"lessee": node.get("lessee")})
    return {
        "uuid": node["uuid"],
        "name": node["name"] or node["uuid"],
        "label": naming.label(node),
        "state": node["provision_state"],
        "maintenance": node["maintenance"],
        "maintenance_reason": node.get("maintenance_reason"),
        "inbox": node.get("inbox", False),
        "power": (node["power_state"] or "").removeprefix("power "),
        "vendor": summary.get("vendor"),
        "product": names.model(str(summary["product"])) if summary.get("product") else None,
        "serial": summary.get("serial"),
        "cpu": names.cpu(str(summary["cpu"])) if summary.get("cpu") else None,
        "cpus": summary.get("cpus"),
        "memory": summary.get("memory"),
        "storage": summary.get("storage"),
        "disks": summary.get("disks"),
        "nics": summary.get("nics"),
        "driver": node["driver"],
        "owner": node.get("owner"),
        "class": node.get("resource_class"),
        "labels": alike.labels_of(node, wanted.q),
        "alike": {
            name: alike.narrow_search(wanted.q, term)
            for name, term in (
                ("model", alike.model(summary.get("vendor"), summary.get("product"))),
                ("driver", alike.term("driver", node["driver"])),
                ("owner", alike.term("owner", node.get("owner"))),
                ("class", alike.term("resource_class", node.get("resource_class"))),
            )
        },
        "error": node["last_error"],
        "cause": advice.cause_of(node["last_error"]),
        "deviations": deviations_of(node),
        "since": node["provision_updated_at"],
        "age": node["created_at"],
        "inspected": node["inspection_finished_at"],
        "ports": [],
        "may_act": visit.may(INSPECT, target) or visit.may(MAINTENANCE, target),
    }


def _add_ports(visit: Visit, rows: list[dict[str, Any]], q: str) -> None:
    """Add the switch ports to the rows of machines whose inventory the caller may see."""
    with_nics = [row["uuid"] for row in rows if row["nics"]]
    nics = visit.context.data.store.read(lambda tx: tx.search_index.some(with_nics, ("nic",)) if with_nics else {})
    for row in rows:
        named = [(text(nic, "switch"), text(nic, "port")) for nic in nics.get(row["uuid"], [])]
        row["ports"] = [
            {"switch": switch, "port": port or "", "q": alike.narrow_search(q, alike.term("nic.switch", switch))}
            for switch, port in named
            if switch
        ]


def _export(visit: Visit, wanted: MachineSelection) -> FileDownload:
    """Return all machines that match as CSV."""
    output = io.StringIO()
    writer = csv.writer(output)
    titles = ("name", "uuid", "state", "power", "maintenance", "vendor", "product", "serial", "cpu", "cpus", "memory",
             "disks", "storage", "nics", "driver", "owner", "class", "labels", "inspected", "deviations",
             "error")  # fmt: skip
    writer.writerow(titles)
    uuids = ranked(visit, wanted)[:_MAX_EXPORTED]
    for first in range(0, len(uuids), _EXPORT_PAGE_SIZE):
        for node in views(visit, uuids[first : first + _EXPORT_PAGE_SIZE]):
            row = _row(visit, node, wanted) | {"labels": labels.format_labels(node.get("labels") or {})}
            row["deviations"] = "; ".join(
                f"{deviation['condition']}: {deviation['found']}" for deviation in row["deviations"]
            )
            writer.writerow([values.spreadsheet_cell(row[name]) for name in titles])
    return FileDownload(
        name="machines.csv", body=output.getvalue().encode("utf-8", "replace"), media="text/csv; charset=utf-8"
    )
