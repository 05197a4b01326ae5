"""The list of machines: searched, filtered and sorted."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from ferroscope.api.auth import access
from ferroscope.api.baremetal import nodes
from ferroscope.api.baremetal.history import hint_of
from ferroscope.api.http import paging
from ferroscope.api.http.errors import BadRequestError
from ferroscope.api.http.large_lists import Room
from ferroscope.api.http.route import Call, NoQuery
from ferroscope.api.http.versions import BARE_METAL
from ferroscope.contracts.store import Query
from ferroscope.contrib.ui.fleet import reasons_of
from ferroscope.contrib.ui.page import Download, Page, Visit
from ferroscope.core import labels, values
from ferroscope.core.explanations import HINTS
from ferroscope.core.model import Node
from ferroscope.core.states import PUBLISHED_STATES, Provision, State
from ferroscope.core.values import is_uuid
from ferroscope.db.transaction import Transaction
from ferroscope.hardware import expectations, names
from ferroscope.hardware.search_index import KINDS, OWN, text

SIZE: Final = 100
# Machines of an export.
_EXPORTED: Final = 20_000
_PAGE: Final = 1000
# Labels in the menu, and for how many seconds they are remembered.
_MENU: Final = 200
_MENU_SECONDS: Final = 10.0
INSPECT: Final = "baremetal:node:set_provision_state"
MAINTENANCE: Final = "baremetal:node:set_maintenance"
FIELDS: Final = (
    "uuid", "name", "provision_state", "power_state", "maintenance", "maintenance_reason", "driver", "owner",
    "lessee", "resource_class", "labels", "hardware", "last_error", "provision_updated_at",
    "inspection_finished_at", "inbox", expectations.KEY,
)  # fmt: skip


class Column(msgspec.Struct, frozen=True):
    """``sort``: the field of the API by which lists can be sorted; ``usual``: shown unless other columns are chosen."""

    name: str
    title: str
    sort: str = ""
    usual: bool = True


COLUMNS: Final = (
    Column("state", "State", "provision_state"),
    Column("model", "Model"),
    Column("serial", "Serial"),
    Column("cpu", "CPU"),
    Column("memory", "Memory"),
    Column("disks", "Disks"),
    Column("nics", "NICs"),
    Column("ports", "Switch ports", usual=False),
    Column("deviations", "Not as expected", usual=False),
    Column("labels", "Labels"),
    Column("power", "Power", "power_state"),
    Column("inspected", "Inspected", "inspection_finished_at"),
    Column("driver", "Driver", "driver", usual=False),
    Column("owner", "Owner", "owner", usual=False),
    Column("class", "Resource class", "resource_class", usual=False),
    Column("uuid", "UUID", usual=False),
    Column("error", "Last error", usual=False),
)
# What the search box completes: the fields of the language, and what they mean.
_SEARCHED: Final = [
    *((name, field.about) for name, field in OWN.items()),
    *((name, field.about) for name, field in KINDS["node"].items()),
    *((f"{kind}.{name}", field.about) for kind in KINDS if kind != "node" for name, field in KINDS[kind].items()),
]
# Columns that are made of other values of a row than that of their name.
_KEYS: Final = {"model": ("vendor", "product"), "cpu": ("cpu", "cpus"), "disks": ("disks", "storage")}
_OF_DEVIATING: Final = ("state", "model", "serial", "deviations", "labels", "inspected")
_USUAL: Final = tuple(column.name for column in COLUMNS if column.usual)
_SORTS: Final = {"name": "name", **{column.sort: column.sort for column in COLUMNS if column.sort}}


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Which machines: a search in the CLI's language, or filters."""

    q: str = ""
    state: str = ""
    reason: str = ""
    maintenance: str = ""
    inbox: str = ""
    labels: str = ""

    @classmethod
    def of(cls, get: Callable[[str], str]) -> Wanted:
        return cls(**{name: get(name) for name in cls.__struct_fields__})

    @property
    def query(self) -> str:
        """The search, together with the filters that the language has; ``BadRequestError`` for an invalid selector."""
        parts = [f"({self.q})", *map(_searched, nodes.selector(self.labels).terms if self.labels else ())]
        parts += [f"state == '{self.state}'"] if self.state in PUBLISHED_STATES else []
        parts += [f"maintenance == {self.maintenance}"] if self.maintenance in ("yes", "no") else []
        parts += [f"inbox == {self.inbox}"] if self.inbox in ("yes", "no") else []
        return " and ".join(parts) if len(parts) > 1 else self.q


def _searched(term: labels.Term) -> str:
    """Return a part of a selector in the language of searches, which compares without case."""
    values_of = [f"label.{term.key} == '{value}'" for value in sorted(term.values or ())]
    found = f"({' or '.join(values_of)})" if values_of else f"has label.{term.key}"
    return f"not {found}" if term.negated else found


def menu(visit: Visit) -> list[tuple[str, int]]:
    """Return the labels of the machines that the caller may see, the most frequent first, and of how many they are."""
    project = access.scope(visit.context.access.policy, visit.identity, "node")
    found = visit.remembered(
        f"labels of {project}",
        _MENU_SECONDS,
        lambda: visit.context.data.store.read(lambda tx: tx.statistics.labels(project)),
    )
    frequent = sorted(found.items(), key=lambda one: (-one[1], one[0]))[:_MENU]
    return [(labels.written({key: value}), number) for (key, value), number in frequent]


def show(visit: Visit) -> Page | Download:
    """Show a page of machines, or all of them as CSV."""
    wanted = Wanted.of(visit.asked)
    if visit.asked("format") == "csv":
        return _export(visit, wanted)
    sort, descending = visit.asked("sort", "name"), visit.asked("dir") == "desc"
    chosen = [name for name in visit.query.get("c", []) if any(one.name == name for one in COLUMNS)]
    problem, after = "", None
    found: list[dict[str, Any]] = []
    try:
        found, after = find(visit, wanted, SIZE, visit.asked("after"), sort=sort, descending=descending)
    except BadRequestError as exc:
        problem = exc.message
    rows = [_row(visit, node, wanted) for node in found]
    # Who looks for machines that deviate wants to know how.
    wished = chosen or (_OF_DEVIATING if "deviating" in wanted.q.lower() else _USUAL)
    # What is known of no machine takes no space.
    visible = chosen or [
        name for name in wished if any(any(row[key] for key in _KEYS.get(name, (name,))) for row in rows)
    ]
    if "ports" in chosen:
        _add_ports(visit, rows)
    data = {
        "wanted": msgspec.to_builtins(wanted),
        "problem": problem,
        "rows": rows,
        "after": after,
        "first": not visit.asked("after"),
        "columns": [
            msgspec.to_builtins(column) | {"shown": column.name in visible, "wished": column.name in wished}
            for column in COLUMNS
        ],
        "chosen": chosen if chosen != list(_USUAL) else [],
        "sort": sort,
        "descending": descending,
        "states": [str(state) for state in Provision],
        "reason": {"code": wanted.reason, "hint": hint_of(wanted.reason) or ""} if wanted.reason else None,
        "may_act": any(row["may_act"] for row in rows),
        "searching": bool(wanted.q or wanted.reason),
        "fields": _SEARCHED,
        "menu": menu(visit),
    }
    return Page(template="machines.html", title="Machines", data=data)


def call_of(visit: Visit) -> Call[NoQuery, None]:
    """Return a call by the visitor, for representations of nodes."""
    return Call(path={}, query=NoQuery(), body=None, version=BARE_METAL.maximum, url="", identity=visit.identity)


def find(
    visit: Visit, wanted: Wanted, size: int, after: str, *, sort: str = "name", descending: bool = False
) -> tuple[list[dict[str, Any]], str | None]:
    """Return a page of nodes as the API shows them to the caller, and the marker of the next page.

    ``BadRequestError`` for an invalid search.
    """
    marker = after if is_uuid(after) else None
    if wanted.q and not wanted.reason:
        more: dict[str, Any] = {} if marker is None else {"marker": marker}
        page = visit.call("GET /v1/search", q=wanted.query, limit=size, **more)
        uuids = [one["uuid"] for one in page["nodes"]]
        return _views(visit, uuids), uuids[-1] if "next" in page else None
    if wanted.reason:
        return _failed(visit, wanted, size, marker)
    filters: dict[str, Any] = {}
    if wanted.state in PUBLISHED_STATES:
        filters["provision_state"] = wanted.state
    if wanted.maintenance in ("yes", "no"):
        filters["maintenance"] = wanted.maintenance == "yes"
    if wanted.inbox in ("yes", "no"):
        filters["inbox"] = wanted.inbox == "yes"
    if wanted.labels:
        filters["labels"] = wanted.labels
    page = visit.call(
        "GET /v1/nodes",
        fields=list(FIELDS),
        limit=size,
        marker=marker,
        sort_key=_SORTS.get(sort, "name"),
        sort_dir="desc" if descending else "asc",
        include_children=True,
        **filters,
    )
    found = page["nodes"]
    return found, found[-1]["uuid"] if "next" in page else None


def _views(visit: Visit, uuids: Sequence[str]) -> list[dict[str, Any]]:
    """Return these nodes, in this order, without those that the caller may not see."""

    def work(tx: Transaction, room: Room) -> dict[str, list[dict[str, Any]]]:
        found = paging.of_uuids(room, tx.nodes, uuids)
        return {node.uuid: nodes.views(visit.context, call_of(visit), [node], FIELDS) for node in found}

    known = visit.context.data.read_list(work)
    return [view for uuid in uuids for view in known.get(uuid, ())]


def seen(visit: Visit, uuids: Sequence[str]) -> list[Node]:
    if not uuids:
        return []
    return visit.context.data.read_list(
        lambda tx, room: [
            node
            for node in paging.of_uuids(room, tx.nodes, uuids)
            if access.sees(visit.context.access.policy, visit.identity, node)
        ]
    )


def _failed(visit: Visit, wanted: Wanted, size: int, marker: str | None) -> tuple[list[dict[str, Any]], str | None]:
    """Return nodes whose last inspection failed for this reason, by name."""
    reason, chosen = wanted.reason, nodes.selector(wanted.labels) if wanted.labels else None
    if reason not in HINTS:
        raise BadRequestError(f"Unknown reason {reason[:80]!r}.")
    project = access.scope(visit.context.access.policy, visit.identity, "node")

    def batch(tx: Transaction, found: Sequence[Node]) -> list[Node]:
        reasons = reasons_of(tx, [node.inspection for node in found if node.inspection])
        return [
            node
            for node in found
            if reasons.get(node.inspection or "") == reason
            and (chosen is None or chosen.fits(node.labels))
            and access.sees(visit.context.access.policy, visit.identity, node)
        ]

    def show(node: Node) -> dict[str, Any]:
        return nodes.views(visit.context, call_of(visit), [node], FIELDS)[0]

    def work(tx: Transaction, room: Room) -> paging.Page:
        query = Query(filters={"state": State.ERROR}, project=project, marker=marker, sort_key="name")
        return paging.page(room, tx.nodes, query, size, show, lambda some: batch(tx, some))

    page = visit.context.data.read_list(work)
    return [msgspec.json.decode(one) for one in page.items], page.last


def labels_of(node: dict[str, Any], q: str = "") -> list[dict[str, str]]:
    """Return each label as text, with the search that finds the machines which have it too, among those of ``q``."""
    found = []
    for key, value in sorted((node.get("labels") or {}).items()):
        term = f"label.{key} == '{value}'" if value else f"has label.{key}"
        found.append(
            {"key": key, "text": labels.written({key: value}), "q": term if q in ("", term) else f"({q}) and {term}"}
        )
    return found


def deviations_of(node: dict[str, Any]) -> list[dict[str, str]]:
    """Return how the hardware deviates from what is expected; nothing if the caller may not see that."""
    return [one for one in node[expectations.KEY] if "condition" in one]


def _row(visit: Visit, node: dict[str, Any], wanted: Wanted) -> dict[str, Any]:
    """Return what the list shows of a node; ``hardware`` is hidden from callers who may not see inventories."""
    hardware = node.get("hardware") or {}
    known = hardware if isinstance(hardware, dict) and "content" not in hardware else {}
    target = Node(uuid="", driver="", owner=node.get("owner"), attributes={"lessee": node.get("lessee")})
    return {
        "uuid": node["uuid"],
        "name": node["name"] or node["uuid"],
        "state": node["provision_state"],
        "maintenance": node["maintenance"],
        "maintenance_reason": node.get("maintenance_reason"),
        "inbox": node.get("inbox", False),
        "power": (node["power_state"] or "").removeprefix("power "),
        "vendor": known.get("vendor"),
        "product": names.model(str(known["product"])) if known.get("product") else None,
        "serial": known.get("serial"),
        "cpu": names.cpu(str(known["cpu"])) if known.get("cpu") else None,
        "cpus": known.get("cpus"),
        "memory": known.get("memory"),
        "storage": known.get("storage"),
        "disks": known.get("disks"),
        "nics": known.get("nics"),
        "driver": node["driver"],
        "owner": node.get("owner"),
        "class": node.get("resource_class"),
        "labels": labels_of(node, wanted.q),
        "error": node["last_error"],
        "deviations": deviations_of(node),
        "since": node["provision_updated_at"],
        "inspected": node["inspection_finished_at"],
        "ports": [],
        "may_act": visit.may(INSPECT, target) or visit.may(MAINTENANCE, target),
    }


def _add_ports(visit: Visit, rows: list[dict[str, Any]]) -> None:
    """Add the switch ports to the rows of machines whose inventory the caller may see."""
    known = [row["uuid"] for row in rows if row["nics"]]
    found = visit.context.data.store.read(lambda tx: tx.search_index.some(known, ("nic",)) if known else {})
    for row in rows:
        named = [(text(nic, "switch"), text(nic, "port")) for nic in found.get(row["uuid"], [])]
        row["ports"] = [f"{switch} {port or ''}".strip() for switch, port in named if switch]


def _export(visit: Visit, wanted: Wanted) -> Download:
    """Return all machines that match as CSV."""
    output, after, count = io.StringIO(), "", 0
    writer = csv.writer(output)
    titles = ("name", "uuid", "state", "power", "maintenance", "vendor", "product", "serial", "cpu", "cpus", "memory",
             "disks", "storage", "nics", "driver", "owner", "class", "labels", "inspected", "deviations",
             "error")  # fmt: skip
    writer.writerow(titles)
    while count < _EXPORTED:
        found, following = find(visit, wanted, _PAGE, after)
        for node in found:
            row = _row(visit, node, wanted) | {"labels": labels.written(node.get("labels") or {})}
            row["deviations"] = "; ".join(f"{one['condition']}: {one['found']}" for one in row["deviations"])
            writer.writerow([values.spreadsheet_cell(row[name]) for name in titles])
        count += len(found)
        if following is None:
            break
        after = following
    return Download(
        name="machines.csv", body=output.getvalue().encode("utf-8", "replace"), media="text/csv; charset=utf-8"
    )
