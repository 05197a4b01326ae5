"""Machines that wait for a decision: discovered ones, and those whose inspection data contradicts the last one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Final

from ferroscope.api.auth import access
from ferroscope.api.errors import BadRequestError, ForbiddenError
from ferroscope.api.service import shared_macs
from ferroscope.contracts.store import Query, SharedMac
from ferroscope.contrib.ui import bulk, naming
from ferroscope.contrib.ui.bulk import BulkAction, BulkForm
from ferroscope.contrib.ui.page import HtmlPage, Redirect, Visit
from ferroscope.core.model import Node
from ferroscope.db import Transaction
from ferroscope.hardware import machine_identity
from ferroscope.hardware.search_index import fold
from ferroscope_client.core.values import MASK, is_uuid
from ferroscope_client.enrollment.importing import bmc_prefix, pointer, set_value
from ferroscope_client.hardware import names
from ferroscope_client.hardware.readings import mapping

LIST: Final = "baremetal:node:list"
_APPROVE: Final = "baremetal:node:create"
_REJECT: Final = "baremetal:node:delete"
_REJECTED: Final = "ferroscope:inbox:get"
_STATUS: Final = "ferroscope:status:get"
_PAGE_SIZE: Final = 50
# The most machines of one action, similar nodes of one machine, and rejected machines on the page.
_MAX_SELECTED: Final = 200
_MAX_ALIKE: Final = 4
_MAX_SHOWN: Final = 100
_FIELDS: Final = (
    "uuid", "name", "driver", "driver_info", "provision_state", "created_at", "last_error", "hardware",
    "auto_discovered", "owner", "lessee",
)  # fmt: skip
_MAX_VALUE_CHARACTERS: Final = 4096
# Seconds for which viewers see the same.
_CACHE_SECONDS: Final = 2.0
_ADDRESS: Final = "_address"


def show(visit: Visit) -> HtmlPage:
    """Show waiting machines, the oldest first, and rejected ones."""
    return HtmlPage(
        template="inbox.html", title="Inbox", shared=visit.shared("inbox", _CACHE_SECONDS, lambda: _list(visit))
    )


def _list(visit: Visit) -> dict[str, Any]:
    after = visit.asked("after")
    marker = after if is_uuid(after) else None
    page = visit.call(
        "GET /v1/nodes", fields=list(_FIELDS), inbox=True, limit=_PAGE_SIZE, marker=marker, sort_key="created_at"
    )
    rows = [_row(visit, view) for view in page["nodes"]]
    rows_by_uuid = {row["uuid"]: row for row in rows}
    visit.context.data.store.read(lambda tx: _add_what_is_stored(visit, tx, rows_by_uuid))
    sources = {row["source"] for row in rows if row["source"] and row["may_reject"]}
    rejected = visit.call_if_possible("GET /v1/rejections")
    refused = visit.call_if_possible("GET /v1/refused_callers")
    shared, named = _shared_macs(visit)
    whole = access.scope(visit.context.access.policy, visit.identity, "node") is None
    return {
        "rows": rows,
        "total": visit.context.data.store.read(lambda tx: tx.statistics.fleet()).census.inbox if whole else None,
        "sources": sorted(source for source in sources if sum(row["source"] == source for row in rows) > 1),
        "after": page["nodes"][-1]["uuid"] if "next" in page else None,
        "first": marker is None,
        "may_approve": any(row["may_approve"] for row in rows),
        "may_reject": any(row["may_reject"] for row in rows),
        "refused": [] if refused is None else refused["refused_callers"],
        "rejected": None if rejected is None else rejected["rejections"][:_MAX_SHOWN],
        "more_rejected": 0 if rejected is None else max(0, len(rejected["rejections"]) - _MAX_SHOWN),
        "may_readmit": visit.may(_APPROVE),
        "shared": shared[:_MAX_SHOWN],
        "shared_names": named,
        "shared_line": shared_macs.line(visit.context.settings.inspector, shared) if shared else "",
    }


def _shared_macs(visit: Visit) -> tuple[Sequence[SharedMac], dict[str, str]]:
    """Return the MAC addresses that several machines share, and their names, for visitors who may see all machines."""
    if not visit.may(_STATUS):
        return (), {}

    def work(tx: Transaction) -> tuple[Sequence[SharedMac], dict[str, str]]:
        shared = shared_macs.find(visit.context, tx).of_different_machines
        return shared, naming.names(tx, (uuid for mac in shared[:_MAX_SHOWN] for uuid in mac.nodes))

    return visit.context.data.store.read(work)


def _row(visit: Visit, view: dict[str, Any]) -> dict[str, Any]:
    hardware = mapping(view.get("hardware"))
    summary = {} if "content" in hardware else hardware
    node = Node(uuid="", driver="", owner=view.get("owner"), attributes={"lessee": view.get("lessee")})
    return {
        "uuid": view["uuid"],
        "name": view["name"],
        "suggested": names.suggestion(summary.get("serial")),
        "vendor": summary.get("vendor"),
        "product": names.model(str(summary["product"])) if summary.get("product") else None,
        "serial": summary.get("serial"),
        "cpus": summary.get("cpus"),
        "memory": summary.get("memory"),
        "driver": view["driver"],
        "bmc": _address(mapping(view.get("driver_info"))),
        "since": view["created_at"],
        "error": view["last_error"],
        "discovered": view["auto_discovered"],
        "source": "",
        "held": "",
        "macs": [],
        "alike": [],
        "may_approve": visit.may(_APPROVE, node),
        "may_reject": visit.may(_REJECT, node),
    }


def _address(info: dict[str, Any]) -> str:
    address = next((value for name, value in info.items() if name.endswith(_ADDRESS) and value != MASK), "")
    return str(address)


def _add_what_is_stored(visit: Visit, tx: Transaction, rows: dict[str, dict[str, Any]]) -> None:
    """Add each machine's source address, the claims of others, its NICs, and nodes that may be the same machine."""
    if not rows:
        return
    macs: dict[str, list[str]] = defaultdict(list)
    if visit.may("baremetal:port:list"):
        for port in tx.ports.list(Query(filters={"node": tuple(rows)})):
            macs[port.node].append(port.address)
    for node in tx.nodes.list(Query(filters={"uuid": tuple(rows)})):
        row, held = rows[node.uuid], mapping(machine_identity.hold_of(node))
        discovery = mapping(node.internal.get("discovery"))
        row["macs"] = sorted(macs[node.uuid])
        row["source"] = str(held.get("source") or discovery.get("source") or "")
        row["held"] = str(held.get("message") or "")
        claims = [str(mapping(claim).get("source")) for claim in discovery.get("claims") or []]
        row["alike"] += [
            {"uuid": "", "text": f"{source} claims the same MAC address"} for source in claims[:_MAX_ALIKE]
        ]
    _add_alike(visit, tx, rows)


def _add_alike(visit: Visit, tx: Transaction, rows: dict[str, dict[str, Any]]) -> None:
    """Add the nodes that have the same BMC address, or whose machines have the same serial number."""
    serials = {
        uuid: fold(serial)
        for uuid, row in rows.items()
        if (serial := machine_identity.identify({"serial_number": row["serial"]}, None, ()).serial)
    }
    owners = tx.search_index.with_serials(sorted(set(serials.values()))) if serials else {}
    same_serial = {
        uuid: [other_uuid for other_uuid in owners.get(serial, ()) if other_uuid != uuid]
        for uuid, serial in serials.items()
    }
    alike = {"same BMC address as": tx.addresses.sharing(list(rows)), "same serial number as": same_serial}
    pairs = [
        (uuid, relation, other_uuid)
        for relation, by_node in alike.items()
        for uuid, others in by_node.items()
        for other_uuid in others[:_MAX_ALIKE]
    ]
    wanted = tuple({other_uuid for _, _, other_uuid in pairs})
    nodes = {node.uuid: node for node in tx.nodes.list(Query(filters={"uuid": wanted}))} if wanted else {}
    for uuid, relation, other_uuid in pairs:
        node = nodes.get(other_uuid)
        if node is not None and _sees(visit, node) and visit.may(access.INVENTORY, node):
            rows[uuid]["alike"].append({"uuid": other_uuid, "text": relation, "name": node.name or other_uuid})


def _sees(visit: Visit, node: Node) -> bool:
    return access.sees(visit.context.access.policy, visit.identity, node)


# Decisions about many machines; the first page also asks for missing values

_FORM: Final = BulkForm(template="inbox_act.html", url="/ui/inbox", back="/ui/inbox", back_to="the inbox")


DECISIONS: Final = {
    "approve": BulkAction(title="Accept", policy=_APPROVE, effect="This accepts {}", done="accepted"),
    "reject": BulkAction(
        title="Reject", policy=_REJECT, effect="This deletes {}, and discovery ignores further calls", done="rejected"
    ),
    "delete": BulkAction(
        title="Delete",
        policy=_REJECT,
        effect="This deletes {}; machines that call again are discovered again",
        done="deleted",
    ),
}


def act(visit: Visit) -> HtmlPage | Redirect:
    """Apply a decision to one or many machines; or discover a rejected one again."""
    if visit.given("readmit"):
        visit.call("DELETE /v1/rejections/{address}", {"address": visit.given("readmit")})
        return Redirect("/ui/inbox")
    if visit.given("source"):
        return _reject_source(visit, visit.given("source"))
    decision = DECISIONS.get(visit.given("action"))
    if decision is None:
        raise BadRequestError("Choose an action.")
    selected, more = _select(visit)
    return bulk.act(
        visit,
        decision,
        _FORM,
        selected,
        more=more,
        again=decision.policy == _APPROVE,
        asked=lambda node: _form_of(visit, node),
        why_not=lambda node: _why_not(visit, node),
        carry_out=lambda node: _carry_out(visit, node),
        entered={name: visit.given(name) for name in ("driver", "username")},
        drivers=sorted(visit.context.services.drivers),
    )


def _select(visit: Visit) -> tuple[list[Node], bool]:
    """Return the machines of the form that still wait, and whether there are too many for one action."""
    uuids: Iterable[str] = [uuid for uuid in dict.fromkeys(visit.form.get("node", [])) if is_uuid(uuid)]
    filters: dict[str, Any] = {"inbox": True}
    if visit.given("all") != "yes":
        filters["uuid"] = tuple(uuids)
        if not uuids:
            return [], False
    selected = visit.context.data.store.read(
        lambda tx: tx.nodes.list(Query(filters=filters, limit=_MAX_SELECTED + 1, sort_key="created_at"))
    )
    seen = [node for node in selected if _sees(visit, node)]
    return seen[:_MAX_SELECTED], len(seen) > _MAX_SELECTED


def _why_not(visit: Visit, node: Node) -> str:
    """Return why a machine cannot be rejected or deleted, "" if it can."""
    if not node.auto_discovered and visit.given("action") == "delete":
        return "it was enrolled, not discovered: reject its data, or delete it as a machine"
    return ""


def _label(node: Node) -> str:
    return node.name or str(node.hardware.get("serial") or node.uuid)


def _form_of(visit: Visit, node: Node) -> dict[str, Any]:
    """Return the form's fields for a machine, with what the user entered before."""
    suggested = node.name or names.suggestion(node.hardware.get("serial")) or ""
    return {
        "uuid": node.uuid,
        "name": _label(node),
        "suggested": visit.given(f"name-{node.uuid}") or suggested,
        "bmc": visit.given(f"address-{node.uuid}") or _address(node.driver_info),
        "held": machine_identity.hold_of(node) is not None,
    }


def _carry_out(visit: Visit, node: Node) -> None:
    path = {"node": node.uuid}
    if visit.given("action") == "approve":
        if changes := _changes(visit, node):
            visit.call("PATCH /v1/nodes/{node}", path, body=changes)
        visit.call("POST /v1/nodes/{node}/approve", path)
    elif visit.given("action") == "reject":
        visit.call("POST /v1/nodes/{node}/reject", path)
    else:
        visit.call("DELETE /v1/nodes/{node}", path)


def _changes(visit: Visit, node: Node) -> list[dict[str, Any]]:
    """Return the patch with the form's values for a machine; empty fields change nothing."""
    changes = []
    name = visit.given(f"name-{node.uuid}")[:_MAX_VALUE_CHARACTERS]
    if name and name != node.name:
        changes.append(set_value("name", value=name))
    driver = visit.given("driver") or node.driver
    if driver not in visit.context.services.drivers:
        raise BadRequestError(f"Driver {driver[:80]!r} is not enabled.")
    prefix = bmc_prefix(visit.context.services.drivers[driver].properties)
    if driver != node.driver:
        changes.append(set_value("driver", value=driver))
    credentials = {
        "address": visit.given(f"address-{node.uuid}"),
        "username": visit.given("username"),
        "password": (visit.form.get("password") or [""])[0],
    }
    credentials = {end: value[:_MAX_VALUE_CHARACTERS] for end, value in credentials.items() if value}
    if credentials and not prefix:
        raise BadRequestError(f"Driver {driver} has no BMC address.")
    for end, value in credentials.items():
        if str(node.driver_info.get(f"{prefix}_{end}")) != value:
            changes.append(set_value("driver_info", f"{prefix}_{end}", value=value))
    if driver != node.driver:
        old = [key for key in node.driver_info if key.endswith(_ADDRESS) and key != f"{prefix}{_ADDRESS}"]
        changes += [{"op": "remove", "path": pointer("driver_info", key)} for key in old]
    return changes


def _reject_source(visit: Visit, source: str) -> HtmlPage:
    """Reject all machines that were discovered from one address."""
    number = None
    if visit.given("confirm") == "yes":
        number = len(visit.call("POST /v1/rejections", body={"source": source})["nodes"])
    elif not visit.may(_REJECT):
        raise ForbiddenError(f"The policy {_REJECT} does not allow this for {visit.identity}.")
    data = {"source": source[:64], "number": number}
    return HtmlPage(template="inbox_source.html", title=f"Reject all from {source[:64]}", data=data)
