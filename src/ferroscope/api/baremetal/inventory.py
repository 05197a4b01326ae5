"""GET /v1/nodes/{node}/inventory: the inventory from the ramdisk, and the plugin data of hooks; with its revisions.

Provisioners read it for every node, so it takes only two indexed queries and a copy. Source: the Bare Metal API
reference.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from ferroscope.api.auth import access
from ferroscope.api.baremetal import stored_data
from ferroscope.api.errors import BadRequestError, MissingError
from ferroscope.api.http import decoding, schemas
from ferroscope.api.http.context import ApiContext, DataAccess
from ferroscope.api.http.decoding import node_ident
from ferroscope.api.http.route import NoQuery, Reply, RouteCall
from ferroscope.api.http.schemas import iso, one_of
from ferroscope.contracts.store import Part, Query
from ferroscope.core.model import Inspection, Node
from ferroscope.db import Transaction
from ferroscope.hardware import diff, parts
from ferroscope.storage.reader import StoredParts, locate
from ferroscope_client.core import json_safety
from ferroscope_client.hardware import readings

# The inventories of a node over time: one revision for each inspection, and the differences between two.
#
# A revision is identified by its inspection's UUID or by its number: 1 is the oldest that is kept, -1 the newest, -2
# the second newest.

_REVISION: Final = "A revision: the inspection's UUID, or a number: 1 is the oldest, -1 the newest."

_NUMBER: Final = re.compile(r"-?[0-9]{1,30}\Z", re.ASCII)

Revision = Annotated[str, msgspec.Meta(description=_REVISION)]


class DiffQuery(msgspec.Struct, frozen=True):
    """Query of GET /v1/nodes/{node}/inventory/diff; by default the two newest revisions.

    With ``other``, ``after`` is a revision of that node, and both default to the newest.
    """

    before: Revision | None = None
    after: Revision = "-1"
    other: Annotated[str, msgspec.Meta(description="Another node to compare with: its UUID or name.")] | None = None


class RevisionView(msgspec.Struct, frozen=True):
    """An inspection whose inventory is kept; ``stored_in`` is the storage backend."""

    number: int
    inspection: str
    state: str
    started_at: str | None
    finished_at: str | None
    stored_in: str
    bytes: int | None = None


class RevisionList(msgspec.Struct, frozen=True):
    """All revisions, oldest first."""

    revisions: list[RevisionView]


class DiffView(msgspec.Struct, frozen=True):
    """The differences between two revisions; of two nodes if ``other`` is set. ``changes`` may be empty."""

    node: str
    before: RevisionView
    after: RevisionView
    changes: list[diff.HardwareChange]
    other: str | None = None


def list_revisions(context: ApiContext, call: RouteCall[NoQuery, None]) -> Reply:
    """List the inspections of a node whose inventories are kept."""
    ident = node_ident(call)
    return Reply(
        200, RevisionList(revisions=context.data.store.read(lambda tx: revisions(tx, tx.nodes.get(ident).uuid)))
    )


def get_diff(context: ApiContext, call: RouteCall[DiffQuery, None]) -> Reply:
    """Compare two inventories of a node, or the inventories of two nodes."""
    ident, asked = node_ident(call), call.query
    before_node, revisions_before = context.data.store.read(lambda tx: _node_revisions(tx, ident))
    after_node, revisions_after = before_node, revisions_before
    if asked.other is not None:
        wanted = decoding.ident("other", asked.other)
        after_node, revisions_after = context.data.store.read(
            lambda tx: _node_revisions(tx, _visible(context, call, tx, wanted))
        )
    machines = 1 if after_node == before_node else 2
    before = pick(revisions_before, asked.before or ("-2" if machines == 1 else "-1"))
    after = pick(revisions_after, asked.after)
    data = [
        context.data.archive.load(revision.inspection, ("inventory", "plugin_data", "unprocessed"))
        for revision in (before, after)
    ]
    changes = diff.compare(_documents(data[0]), _documents(data[1]), machines=machines)
    return Reply(200, DiffView(before_node, before, after, changes, after_node if machines == 2 else None))


def _visible(context: ApiContext, call: RouteCall[Any, Any], tx: Transaction, ident: str) -> str:
    """Return the UUID of the node to compare with; ``NotFoundError`` also if the caller may not see its inventory."""
    node = access.see(context.access.policy, call.identity, tx.nodes.get(ident), ident)
    access.require(context.access.policy, "baremetal:node:inventory:get", call.identity, access.target_of(node))
    return node.uuid


def load(data: DataAccess, ident: str, revision: str) -> dict[Part, bytes]:
    """Return inventory and plugin data of one revision; the latter is empty if processing failed."""
    _, listed = data.store.read(lambda tx: _node_revisions(tx, ident))
    picked = pick(listed, revision)
    parts = data.archive.load(picked.inspection, stored_data.PROCESSED)
    if "inventory" not in parts:
        raise MissingError(f"The inventory of inspection {picked.inspection} was deleted concurrently.")
    parts.setdefault("plugin_data", b"{}")
    return parts


class LogQuery(msgspec.Struct, frozen=True):
    """Query of GET /v1/nodes/{node}/log; by default the newest inspection that has a log."""

    inspection: schemas.Uuid | None = None


def get_log(context: ApiContext, call: RouteCall[LogQuery, None]) -> Reply:
    """Return the ramdisk's log of an inspection as it was sent: usually a tar archive."""
    ident, wanted = node_ident(call), call.query.inspection
    if wanted is not None:
        wanted = decoding.uuid("inspection", wanted)

    def find(tx: Transaction) -> StoredParts | None:
        node = tx.nodes.get(ident)
        of = {row.inspection for row in tx.data.of_node(node.uuid) if row.part == "logs"}
        of |= {row.inspection for row in tx.objects.of_node(node.uuid) if row.part == "logs"}
        query = Query(filters={"node": node.uuid}, sort_key="started_at", descending=True)
        newest = (row.uuid for row in tx.inspections.list(query) if row.uuid in of and wanted in (None, row.uuid))
        chosen = next(newest, None)
        return None if chosen is None else locate(tx, chosen, ("logs",))

    location = context.data.store.read(find)
    if location is None:
        raise MissingError(
            f"Node {ident} has no ramdisk log: none was sent, or it was deleted after [inspector] logs_retention."
        )
    return Reply(200, context.data.archive.fetch(location)["logs"])


def pick(listed: list[RevisionView], text: str) -> RevisionView:
    """Return the revision that ``text`` identifies; ``BadRequestError``, ``MissingError``."""
    if not _NUMBER.match(text):
        uuid = decoding.uuid("revision", text)
        matches = [revision for revision in listed if revision.inspection == uuid]
        if not matches:
            raise MissingError(f"The node has no inventory of inspection {uuid}.")
        return matches[0]
    number = int(text)
    if number == 0 or abs(number) > 1_000_000:
        raise BadRequestError(f"Invalid revision {text[:20]}: 1 is the oldest, -1 the newest.")
    if abs(number) > len(listed):
        raise MissingError(f"Revision {number} could not be found; {len(listed)} revisions are kept.")
    return listed[number - 1 if number > 0 else number]


def revisions(tx: Transaction, node: str) -> list[RevisionView]:
    """Return all revisions of the node, oldest first."""
    places: dict[str, tuple[str, int | None]] = {
        row.inspection: ("database", None) for row in tx.data.of_node(node) if row.part == "inventory"
    }
    for stored in tx.objects.of_node(node):
        if stored.part == "inventory":
            places.setdefault(stored.inspection, (stored.backend, stored.size))
    listed = tx.inspections.list(Query(filters={"node": node}, sort_key="started_at"))
    kept = [inspection for inspection in listed if inspection.uuid in places]
    return [_view(number, inspection, *places[inspection.uuid]) for number, inspection in enumerate(kept, 1)]


def _node_revisions(tx: Transaction, ident: str) -> tuple[str, list[RevisionView]]:
    node = tx.nodes.get(ident).uuid
    return node, revisions(tx, node)


def _view(number: int, inspection: Inspection, place: str, size: int | None) -> RevisionView:
    return RevisionView(
        number=number,
        inspection=inspection.uuid,
        state=str(inspection.state),
        started_at=iso(inspection.started_at),
        finished_at=iso(inspection.finished_at),
        stored_in=place,
        bytes=size,
    )


def _documents(parts: Any) -> tuple[Any, Any]:
    if "inventory" not in parts:
        raise MissingError("One of the two inventories was deleted concurrently.")
    beside = parts.get("plugin_data") or parts.get("unprocessed") or b"{}"
    try:
        return json_safety.decode(parts["inventory"]), json_safety.decode(
            beside, max_containers=json_safety.MAX_DERIVED
        )
    except json_safety.JsonTooLargeError as exc:
        raise BadRequestError(f"One of the two inventories is too large to compare: {exc}.") from None


class NodeInventory(msgspec.Struct, frozen=True):
    """The inventory as defined by ironic-python-agent, and all other data from the ramdisk and hooks."""

    inventory: dict[str, Any]
    plugin_data: dict[str, Any]


class InventoryQuery(msgspec.Struct, frozen=True):
    """Query of GET /v1/nodes/{node}/inventory; by default the newest processed inventory."""

    revision: Revision | None = None


def get_inventory(context: ApiContext, call: RouteCall[InventoryQuery, None]) -> Reply:
    """Return the data of the newest processed inspection, or of the requested revision."""
    ident = node_ident(call)
    if call.query.revision is not None:
        chosen = load(context.data, ident, call.query.revision)
        return Reply(200, stored_data.side_by_side(chosen))

    _, parts = stored_data.of_node(context.data, lambda tx: tx.nodes.get(ident), stored_data.PROCESSED)
    if parts is None:
        raise MissingError(f"Node {ident} has no inventory: no inspection has finished. Inspect it first.")
    return Reply(200, stored_data.side_by_side(parts))


_SETS: Final = "baremetal:node:update:properties"


def reapply(context: ApiContext, call: RouteCall[NoQuery, None]) -> Reply:
    """Run hooks and rules again on the stored data, or on the given data."""

    def may_set(node: Node) -> None:
        # The caller's own data sets what an inspection sets.
        access.require(context.access.policy, _SETS, call.identity, access.target_of(node))

    stored_data.submit(context, call, node_ident(call), may_set)
    return Reply(202)


_DEFAULT: Final = ("component", "initial_version", "current_version", "last_version_flashed")
_IDENTITY: Final = ("vendor", "model", "serial_number")
_IDENTITY_SINCE: Final = 114
_FIELDS: Final = ("created_at", "updated_at", *_DEFAULT, *_IDENTITY)


class Component(msgspec.Struct, frozen=True):
    """A component of a node's firmware."""

    created_at: str | None
    updated_at: str | None
    component: str | UnsetType = UNSET
    initial_version: str | UnsetType | None = UNSET
    current_version: str | UnsetType | None = UNSET
    last_version_flashed: str | UnsetType | None = UNSET
    vendor: str | UnsetType | None = UNSET
    model: str | UnsetType | None = UNSET
    serial_number: str | UnsetType | None = UNSET


class Firmware(msgspec.Struct, frozen=True):
    """The components of a node's firmware."""

    firmware: list[Component]


class FirmwareQuery(msgspec.Struct, frozen=True):
    """Query of GET /v1/nodes/{node}/firmware."""

    detail: bool | None = None
    fields: list[Annotated[str, one_of(*_FIELDS)]] | None = None


def list_firmware(context: ApiContext, call: RouteCall[FirmwareQuery, None]) -> Reply:
    """List the firmware components of a node."""
    names = _chosen_fields(call.query, call.minor)
    listed = context.data.store.read(lambda tx: revisions(tx, tx.nodes.get(node_ident(call)).uuid))
    parts_by_name: dict[str, list[tuple[RevisionView, dict[str, Any]]]] = {}
    for revision in _ends(listed):
        for name, part in _components(context.data, revision.inspection).items():
            parts_by_name.setdefault(name, []).append((revision, part))
    components = []
    for name, history in parts_by_name.items():
        (oldest, initial), (newest, current) = history[0], history[-1]
        values: dict[str, Any] = {
            "component": name,
            "initial_version": initial["version"],
            "current_version": current["version"],
            "last_version_flashed": None,
            "vendor": current.get("vendor"),
            "model": current.get("model"),
            "serial_number": current.get("serial"),
        }
        changed = newest.finished_at if newest is not oldest else None
        shown = {name: value for name, value in values.items() if name in names}
        components.append(Component(oldest.finished_at, changed, **shown))
    return Reply(200, Firmware(firmware=components))


def _chosen_fields(query: FirmwareQuery, minor: int) -> tuple[str, ...]:
    if query.fields is None:
        return _DEFAULT if minor < _IDENTITY_SINCE else (*_DEFAULT, *_IDENTITY)
    if query.detail:
        raise BadRequestError("detail and fields are mutually exclusive.")
    unknown = sorted(set(query.fields) - set(_FIELDS))
    if unknown:
        raise BadRequestError(f"Unknown field(s) of a firmware component: {', '.join(n[:80] for n in unknown[:8])}.")
    if minor < _IDENTITY_SINCE and set(query.fields) & set(_IDENTITY):
        raise BadRequestError(f"{', '.join(_IDENTITY)} require API version 1.{_IDENTITY_SINCE}.")
    return tuple(query.fields)


def _ends(listed: list[RevisionView]) -> list[RevisionView]:
    return listed if len(listed) < 2 else [listed[0], listed[-1]]


def _components(data: DataAccess, inspection: str) -> dict[str, dict[str, Any]]:
    """Return the firmware that this inspection found, by the component: bios and bmc, or such as nic:NIC.1."""
    stored = data.archive.load(inspection, ("inventory", "plugin_data"))
    try:
        inventory, beside = (
            json_safety.decode(stored.get(part, b"{}"), max_containers=json_safety.MAX_DERIVED)
            for part in ("inventory", "plugin_data")
        )
    except json_safety.JsonTooLargeError:
        return {}
    vendor = readings.mapping(readings.mapping(readings.mapping(inventory).get("system_vendor")).get("firmware")).get(
        "vendor"
    )
    components: dict[str, dict[str, Any]] = {"bios": {"vendor": readings.text(vendor)}}
    for part in parts.parts(inventory, beside):
        if part.kind == "firmware":
            kind, name = part.fields["component"], part.fields.get("name")
            title = str(kind) if kind in ("bios", "bmc") or not name else f"{kind}:{name}"
            components[title] = components.get(title, {}) | part.fields
    return {name: component for name, component in components.items() if "version" in component}
