"""The list of machines: searched, filtered, sorted, and acted on, many at once."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from ferroscope.api.auth import access
from ferroscope.api.baremetal import node_states, nodes
from ferroscope.api.baremetal.history import hint_of
from ferroscope.api.http import paging
from ferroscope.api.http.errors import BadRequestError
from ferroscope.api.http.route import Call, NoQuery
from ferroscope.api.http.versions import BARE_METAL
from ferroscope.contracts.store import Query, Transaction
from ferroscope.core import labels, values
from ferroscope.core.explanations import HINTS
from ferroscope.core.model import Node
from ferroscope.core.states import ACTIVE, PUBLISHED_STATES, Provision, State
from ferroscope.core.values import is_uuid
from ferroscope.hardware import names
from ferroscope.hardware.search_index import KINDS, OWN, text
from ferroscope.ui import bulk
from ferroscope.ui.bulk import Action, Form
from ferroscope.ui.fleet import reasons_of
from ferroscope.ui.page import Download, Page, Visit

SIZE: Final = 100
# Machines of one action, and of an export.
_MOST: Final = 500
_EXPORTED: Final = 20_000
_PAGE: Final = 1000
FIELDS: Final = (
    "uuid", "name", "provision_state", "power_state", "maintenance", "maintenance_reason", "driver", "owner",
    "lessee", "resource_class", "labels", "hardware", "last_error", "provision_updated_at",
    "inspection_finished_at", "inbox",
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
_USUAL: Final = tuple(column.name for column in COLUMNS if column.usual)
_SORTS: Final = {"name": "name", **{column.sort: column.sort for column in COLUMNS if column.sort}}


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Which machines: a search in the CLI's language, or filters."""

    q: str = ""
    state: str = ""
    reason: str = ""
    maintenance: str = ""
    inbox: str = ""

    @classmethod
    def of(cls, get: Callable[[str], str]) -> Wanted:
        return cls(**{name: get(name) for name in cls.__struct_fields__})

    @property
    def query(self) -> str:
        """The search, together with the filters that the language has."""
        parts = [f"({self.q})"]
        parts += [f"state == '{self.state}'"] if self.state in PUBLISHED_STATES else []
        parts += [f"maintenance == {self.maintenance}"] if self.maintenance in ("yes", "no") else []
        return " and ".join(parts) if len(parts) > 1 else self.q


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
        found, after = _find(visit, wanted, SIZE, visit.asked("after"), sort=sort, descending=descending)
    except BadRequestError as exc:
        problem = exc.message
    rows = [_row(visit, node, wanted) for node in found]
    # Where nobody uses labels, they take no space.
    visible = chosen or [name for name in _USUAL if name != "labels" or any(row["labels"] for row in rows)]
    if "ports" in chosen:
        _add_ports(visit, rows)
    data = {
        "wanted": msgspec.to_builtins(wanted),
        "problem": problem,
        "rows": rows,
        "after": after,
        "first": not visit.asked("after"),
        "columns": [msgspec.to_builtins(column) | {"shown": column.name in visible} for column in COLUMNS],
        "chosen": chosen if chosen != list(_USUAL) else [],
        "sort": sort,
        "descending": descending,
        "states": [str(state) for state in Provision],
        "reason": {"code": wanted.reason, "hint": hint_of(wanted.reason) or ""} if wanted.reason else None,
        "may_act": any(row["may_act"] for row in rows),
        "searching": bool(wanted.q or wanted.reason),
        "fields": _SEARCHED,
    }
    return Page(template="machines.html", title="Machines", data=data)


def call_of(visit: Visit) -> Call[NoQuery, None]:
    """Return a call by the visitor, for representations of nodes."""
    return Call(path={}, query=NoQuery(), body=None, version=BARE_METAL.maximum, url="", identity=visit.identity)


def _find(
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
        return _failed(visit, wanted.reason, size, marker)
    filters: dict[str, Any] = {}
    if wanted.state in PUBLISHED_STATES:
        filters["provision_state"] = wanted.state
    if wanted.maintenance in ("yes", "no"):
        filters["maintenance"] = wanted.maintenance == "yes"
    if wanted.inbox in ("yes", "no"):
        filters["inbox"] = wanted.inbox == "yes"
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
    known = {node.uuid: node for node in _nodes(visit, uuids)}
    return nodes.views(visit.context, call_of(visit), (known[uuid] for uuid in uuids if uuid in known), FIELDS)


def _nodes(visit: Visit, uuids: Sequence[str]) -> list[Node]:
    if not uuids:
        return []
    found = visit.context.store.read(lambda tx: tx.nodes.list(Query(filters={"uuid": tuple(uuids)})))
    return [node for node in found if access.sees(visit.context.policy, visit.identity, node)]


def _failed(visit: Visit, reason: str, size: int, marker: str | None) -> tuple[list[dict[str, Any]], str | None]:
    """Return nodes whose last inspection failed for this reason, by name."""
    if reason not in HINTS:
        raise BadRequestError(f"Unknown reason {reason[:80]!r}.")
    project = access.scope(visit.context.policy, visit.identity, "node")

    def batch(tx: Transaction, found: Sequence[Node]) -> list[Node]:
        reasons = reasons_of(tx, [node.inspection for node in found if node.inspection])
        return [
            node
            for node in found
            if reasons.get(node.inspection or "") == reason and access.sees(visit.context.policy, visit.identity, node)
        ]

    def work(tx: Transaction) -> tuple[list[Node], bool]:
        query = Query(filters={"state": State.ERROR}, project=project, marker=marker, sort_key="name")
        return paging.read_some(tx.nodes.list, query, size, lambda some: batch(tx, some))

    found, more = visit.context.store.read(work)
    shown = nodes.views(visit.context, call_of(visit), found, FIELDS)
    return shown, found[-1].uuid if more else None


def labels_of(node: dict[str, Any], q: str = "") -> list[dict[str, str]]:
    """Return each label as text, with the search that finds the machines which have it too, among those of ``q``."""
    found = []
    for key, value in sorted((node.get("labels") or {}).items()):
        term = f"label.{key} == '{value}'" if value else f"has label.{key}"
        found.append(
            {"key": key, "text": labels.written({key: value}), "q": term if q in ("", term) else f"({q}) and {term}"}
        )
    return found


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
        "since": node["provision_updated_at"],
        "inspected": node["inspection_finished_at"],
        "ports": [],
        "may_act": visit.may(_INSPECT, target) or visit.may(_MAINTENANCE, target),
    }


def _add_ports(visit: Visit, rows: list[dict[str, Any]]) -> None:
    """Add the switch ports to the rows of machines whose inventory the caller may see."""
    known = [row["uuid"] for row in rows if row["nics"]]
    found = visit.context.store.read(lambda tx: tx.search_index.some(known, ("nic",)) if known else {})
    for row in rows:
        named = [(text(nic, "switch"), text(nic, "port")) for nic in found.get(row["uuid"], [])]
        row["ports"] = [f"{switch} {port or ''}".strip() for switch, port in named if switch]


def _export(visit: Visit, wanted: Wanted) -> Download:
    """Return all machines that match as CSV."""
    output, after, count = io.StringIO(), "", 0
    writer = csv.writer(output)
    titles = ("name", "uuid", "state", "power", "maintenance", "vendor", "product", "serial", "cpu", "cpus", "memory",
             "disks", "storage", "nics", "driver", "owner", "class", "labels", "inspected", "error")  # fmt: skip
    writer.writerow(titles)
    while count < _EXPORTED:
        found, following = _find(visit, wanted, _PAGE, after)
        for node in found:
            row = _row(visit, node, wanted) | {"labels": labels.written(node.get("labels") or {})}
            writer.writerow([values.spreadsheet_cell(row[name]) for name in titles])
        count += len(found)
        if following is None:
            break
        after = following
    return Download(
        name="machines.csv", body=output.getvalue().encode("utf-8", "replace"), media="text/csv; charset=utf-8"
    )


# Actions on many machines

_INSPECT: Final = "baremetal:node:set_provision_state"
_MAINTENANCE: Final = "baremetal:node:set_maintenance"
_CLEAR: Final = "baremetal:node:clear_maintenance"


ACTIONS: Final = {
    "inspect": Action(
        title="Inspect", policy=_INSPECT, verb="inspect", effect="This power-cycles", done="inspections requested"
    ),
    "abort": Action(
        title="Abort", policy=_INSPECT, verb="abort", effect="This aborts the inspections of", done="aborts requested"
    ),
    "manage": Action(
        title="Manage", policy=_INSPECT, verb="manage", effect="This makes manageable", done="machines managed"
    ),
    "maintenance": Action(
        title="Set maintenance",
        policy=_MAINTENANCE,
        effect="This puts into maintenance",
        done="machines in maintenance",
    ),
    "clear": Action(
        title="End maintenance", policy=_CLEAR, effect="This takes out of maintenance",
        done="machines out of maintenance",
    ),
}  # fmt: skip


def act(visit: Visit) -> Page:
    """Say what an action on many machines would do; do it if the form confirms it."""
    action = ACTIONS.get(visit.given("action"))
    if action is None:
        raise BadRequestError("Choose an action.")
    selected, more = _selected(visit)
    back = visit.given("back") if visit.given("back").startswith("/ui/") else "/ui/machines"
    return bulk.act(
        visit,
        action,
        Form(template="act.html", url="/ui/machines/act", back=back, back_to="the machines"),
        selected,
        more=more,
        asked=lambda node: {"uuid": node.uuid, "name": node.name or node.uuid},
        why_not=lambda node: _why_not(action, node),
        carry_out=lambda node: _carry_out(visit, action, node),
    )


def _selected(visit: Visit) -> tuple[list[Node], bool]:
    """Return the machines of the form, and whether there are more than one action may have."""
    if visit.given("all") == "yes":
        found, after = _find(visit, Wanted.of(visit.given), _MOST, "")
        return _in_order(visit, [node["uuid"] for node in found]), after is not None
    uuids = [uuid for uuid in dict.fromkeys(visit.form.get("node", [])) if is_uuid(uuid)]
    return _in_order(visit, uuids[:_MOST]), len(uuids) > _MOST


def _in_order(visit: Visit, uuids: list[str]) -> list[Node]:
    return sorted(_nodes(visit, uuids), key=lambda node: node.name or node.uuid)


def _why_not(action: Action, node: Node) -> str:
    """Return why a machine is left out, "" if it is not."""
    if action.verb == "inspect" and node.maintenance:
        return "in maintenance"
    if action.verb and action.verb not in node_states.allowed_verbs(node):
        return f"not possible while it is {node.provision_state}" + (" (inbox)" if node.inbox else "")
    if action.policy == _CLEAR and not node.maintenance:
        return "not in maintenance"
    if action.verb == "manage" and node.state in ACTIVE:
        return "being inspected"
    return ""


def _carry_out(visit: Visit, action: Action, node: Node) -> None:
    path = {"node": node.uuid}
    if action.verb:
        visit.call("PUT /v1/nodes/{node}/states/provision", path, body={"target": action.verb})
    elif action.policy == _CLEAR:
        visit.call("DELETE /v1/nodes/{node}/maintenance", path)
    else:
        reason = visit.given("reason")[:255]
        visit.call("PUT /v1/nodes/{node}/maintenance", path, body={"reason": reason} if reason else None)
