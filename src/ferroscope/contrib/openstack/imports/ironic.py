"""Import from an Ironic through its API: chassis, nodes with ports, port groups, traits and inventories, and rules.

Ironic is only read, one node after the other. A node is created in one transaction, with the UUIDs that it, its ports
and its port groups have there; existing objects here do not change. Ironic masks secrets, so the caller
provides them, or they are left out.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final

import msgspec

from ferroscope import transition
from ferroscope.api.baremetal import callback_body
from ferroscope.api.errors import ApiError
from ferroscope.config.options import Settings
from ferroscope.contracts.errors import ConflictError, NotFoundError
from ferroscope.contracts.store import Part, Query
from ferroscope.contrib.openstack.imports.documents import FIELDS, IronicDocuments
from ferroscope.contrib.openstack.imports.imported import (
    ImportedData,
    ImportItem,
    Track,
    add_chassis,
    add_rule,
    remove_chassis,
    remove_rule,
    write,
)
from ferroscope.core import bmc_access, ironic_nodes
from ferroscope.core.model import Document, Entry, Inspection, Node, Port, Portgroup
from ferroscope.db import Store, Transaction
from ferroscope.runtime.backend import open_for_command
from ferroscope.shared_places import find_shared
from ferroscope_client.core import bmc_place, labels, values
from ferroscope_client.core.states import Provision, State

# The key of the import in a node's internal data.
KEY: Final = "ironic_import"
_NAMESPACE: Final = uuid.UUID("5a1f3c54-8a4e-4d59-9d0b-3c1f6f6b7a10")
_SAME: Final = frozenset({Provision.ENROLL, Provision.MANAGEABLE, Provision.AVAILABLE})
# Nodes that are or were in use there are not inspected here until an operator decides so.
_IN_USE: Final = frozenset(
    {
        "active", "adopt failed", "clean failed", "clean hold", "deploy failed", "deploy hold", "error", "rescue",
        "rescue failed", "service failed", "service hold", "unrescue failed",
    }
)  # fmt: skip
_NODES_PER_PAGE: Final = 200


class IronicImportOptions(msgspec.Struct, frozen=True, kw_only=True):
    """``drivers``: the driver here for a driver there, if they differ. ``driver_info``: additional values by a node's
    UUID or name.
    """

    dry_run: bool = False
    drivers: Mapping[str, str] = {}
    driver_info: Mapping[str, Document] = {}


def run(
    settings: Settings, source: IronicDocuments, options: IronicImportOptions, track: Track = iter
) -> list[ImportItem]:
    """Import everything; return the result for each node, rule and chassis. ``track`` passes the nodes on."""
    with open_for_command(settings) as backend:
        chassis = list(source.chassis())
        items = [add_chassis(backend.store, unit, dry_run=options.dry_run) for unit in chassis]
        members = {node: unit.uuid for unit in chassis for node in source.nodes_in(unit.uuid)}
        importer = _IronicImporter(settings, backend.store, source, options, members)
        items += [importer.node(document) for document in track(source.every_node())]
        for rule in source.rules():
            if rule.sensitive:
                items.append(
                    ImportItem("rule", rule.uuid, "skipped", "it is sensitive: Ironic does not show what it does")
                )
            elif values.holds_mask([*rule.conditions, *rule.actions]):
                items.append(ImportItem("rule", rule.uuid, "skipped", f"its secrets are shown as {values.MASK} there"))
            else:
                items.append(add_rule(backend.store, rule, dry_run=options.dry_run))
        return items


def roll_back(
    settings: Settings, source: IronicDocuments, track: Track = iter, *, dry_run: bool = False
) -> list[ImportItem]:
    """Undo imports, except for objects that changed since."""
    with open_for_command(settings) as backend:
        store = backend.store
        uuids = [node.uuid for node in _list_imported(store)]
        items = [write(store, partial(_remove, ident=ident), dry_run=dry_run) for ident in track(uuids)]
        items += [write(store, partial(remove_rule, rule=rule), dry_run=dry_run) for rule in source.rules()]
        gone = {item.uuid for item in items if item is not None and item.result == "rolled back"}
        for unit in source.chassis():
            items.append(write(store, partial(remove_chassis, chassis=unit, gone=gone), dry_run=dry_run))
        return [item for item in items if item is not None]


def _list_imported(store: Store) -> Iterator[Node]:
    marker: str | None = None
    while page := store.read(lambda tx, marker=marker: tx.nodes.list(Query(limit=_NODES_PER_PAGE, marker=marker))):  # type: ignore[misc]
        yield from (node for node in page if KEY in node.internal)
        marker = page[-1].uuid


def _remove(tx: Transaction, ident: str) -> ImportItem | None:
    try:
        node = tx.nodes.get(ident, lock=True)
    except NotFoundError:
        return None
    if node.version != node.internal[KEY].get("version"):
        return ImportItem(
            "node", ident, "changed since", "the node was changed or inspected after the import; it is kept"
        )
    transition.remove_node(tx, node)
    return ImportItem("node", ident, "rolled back")


class _IronicImporter:
    """``chassis``: the UUID of the chassis of a node, by that of the node."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        source: IronicDocuments,
        options: IronicImportOptions,
        chassis: Mapping[str, str],
    ) -> None:
        self._settings, self._store, self._source, self._options = settings, store, source, options
        self._chassis = chassis

    def node(self, document: Document) -> ImportItem:
        ident = str(document["uuid"])
        try:
            stored = self._store.read(lambda tx: tx.nodes.get(ident))
        except NotFoundError:
            stored = None
        if stored is not None:
            return ImportItem("node", ident, *_existing(stored))
        driver = str(document.get("driver"))
        driver = self._options.drivers.get(driver, driver)
        if driver not in self._settings.drivers.enabled:
            detail = f"the driver {driver} is not in [drivers] enabled; choose another one: --driver {driver}=redfish"
            return ImportItem("node", ident, "skipped", detail)
        state, remark = _provision(str(document.get("provision_state")))
        if state is None:
            return ImportItem("node", ident, "in progress", remark)
        node, missing = self._make_node(document, driver, state)
        details = [remark] if remark else []
        ports, groups = self._ports(ident), self._source.portgroups_of(ident)
        try:
            parts = self._parts(ident)
        except (ApiError, ValueError) as exc:
            parts = {}
            details.append(f"its inventory is invalid: {exc}")
        if missing:
            details.append(
                f"Ironic does not show {', '.join(missing)}: ferroscope node set {ident} --driver-info "
                f"{missing[0]}=secret://... or import with --driver-info-file"
            )

        data = ImportedData.of(parts)
        if why := bmc_place.refusal(node.driver_info):
            return ImportItem("node", ident, "skipped", f"{why}; correct it in Ironic")

        def work(tx: Transaction) -> ImportItem:
            if (shared := find_shared(tx, node, ())) is not None:
                where = f"belongs to node {shared[1].name or shared[1].uuid}"
                return ImportItem("node", ident, "skipped", bmc_place.shared_message(shared[0], where))
            saved = self._store_node(tx, document, node, data)
            remarks = [*details, *_store_ports(tx, ports, groups)]
            return ImportItem("node", saved.uuid, "imported", "; ".join(remarks))

        try:
            return write(self._store, work, dry_run=self._options.dry_run)
        except ConflictError as exc:
            return ImportItem("node", ident, "skipped", str(exc))

    def _make_node(self, document: Document, driver: str, state: Provision) -> tuple[Node, list[str]]:
        """Return the node, and the fields of ``driver_info`` that Ironic does not show."""
        ident = str(document["uuid"])
        fields = {field.name: ironic_nodes.fitting(field, document.get(field.name)) for field in FIELDS if field.stored}
        extra_info: dict[str, Any] = {}
        for name in (ident, str(document.get("name"))):
            extra_info |= self._options.driver_info.get(name, {})
        info = fields["driver_info"]
        missing = sorted(name for name in info if info[name] == values.MASK and name not in extra_info)
        fields["driver_info"] = {name: value for name, value in info.items() if value != values.MASK} | extra_info
        fields["instance_info"] = {
            name: value for name, value in fields["instance_info"].items() if value != values.MASK
        }
        attributes = {
            field.name: value
            for field in FIELDS
            if not field.stored and (value := ironic_nodes.fitting(field, document.get(field.name))) != field.default
        }
        fields["chassis_uuid"] = self._chassis.get(ident)
        fields["labels"] = labels.valid_labels(fields["extra"].get("labels"))
        internal = {KEY: {"version": 0}}
        node = Node(
            **fields | {"driver": driver}, uuid=ident, provision_state=state, attributes=attributes, internal=internal
        )
        return node, missing

    def _ports(self, ident: str) -> list[Port]:
        ports = []
        for document in self._source.ports_of(ident):
            port = ironic_nodes.port(document)
            if port is not None:
                ports.append(msgspec.structs.replace(port, portgroup=document.get("portgroup_uuid")))
        return ports

    def _parts(self, ident: str) -> dict[Part, bytes]:
        """Return the inventory and the plugin data in the form in which they are stored here."""
        stored = self._source.inventory_of(ident)
        if stored is None:
            return {}
        inventory, plugin_data = stored.get("inventory"), stored.get("plugin_data") or {}
        if not isinstance(inventory, dict) or not isinstance(plugin_data, dict):
            raise ValueError("it is not an object")  # noqa: TRY004  # data of another service, not a wrong call
        body = msgspec.json.encode({**plugin_data, "inventory": inventory})
        if len(body) > self._settings.api.max_body_size:
            raise ValueError(f"{len(body)} bytes, more than [api] max_body_size")
        parsed = callback_body.parse(body, None, ignored=self._settings.inspector.ignored)
        return {"inventory": parsed.parts["inventory"], "plugin_data": parsed.parts["unprocessed"]}

    def _store_node(self, tx: Transaction, document: Document, node: Node, data: ImportedData) -> Node:
        node = msgspec.structs.replace(node, created_at=tx.now)
        inspection = None
        if data.learned is not None:
            started, finished = (_seconds(document.get(f"inspection_{name}_at")) for name in ("started", "finished"))
            ended = finished or started or tx.now
            inspection = Inspection(
                uuid=str(uuid.uuid5(_NAMESPACE, f"{node.uuid} {ended}")),
                node=node.uuid,
                state=State.FINISHED,
                started_at=min(started or ended, ended),
                finished_at=ended,
            )
            node = msgspec.structs.replace(
                node,
                state=State.FINISHED,
                inspection=inspection.uuid,
                inspection_started_at=inspection.started_at,
                inspection_finished_at=ended,
                search_digest=data.learned.digest,
                hardware=data.learned.summary,
            )
        transition.add_node(tx, node)
        if literal := bmc_access.literal_addresses(node.driver_info):
            tx.addresses.set_bmc(node.uuid, literal)
        if inspection is not None and data.learned is not None:
            tx.inspections.add(inspection)
            tx.data.save(inspection.uuid, node.uuid, data.parts)
            tx.search_index.replace(node.uuid, data.learned.rows, had=False)
        tx.journal.append(
            [
                Entry(
                    node=node.uuid,
                    inspection=node.inspection,
                    step="imported",
                    message="imported from Ironic",
                    process="import",
                )
            ]
        )
        return node


def _store_ports(tx: Transaction, ports: Sequence[Port], groups: Sequence[Portgroup]) -> Iterator[str]:
    """Store the ports and port groups that do not exist here; yield remarks on the others."""
    present = {port.address for port in tx.ports.list(Query(filters={"address": tuple(p.address for p in ports)}))}
    present_groups = {group.uuid for group in groups if _exists(tx, group)}
    for group in groups:
        if group.uuid not in present_groups:
            tx.portgroups.add(group)
    members = {group.uuid for group in groups} - present_groups
    tx.ports.add(
        port if port.portgroup in members else msgspec.structs.replace(port, portgroup=None)
        for port in ports
        if port.address not in present
    )
    if present:
        yield f"other nodes here have its MAC addresses {', '.join(sorted(present))}"
    if present_groups:
        names = ", ".join(sorted(group.name or group.uuid for group in groups if group.uuid in present_groups))
        yield f"other port groups here have the UUID, name or address of {names}"


def _exists(tx: Transaction, group: Portgroup) -> bool:
    """Whether a port group here has the UUID, the name or the address of this one."""
    for name, value in (("uuid", group.uuid), ("name", group.name), ("address", group.address)):
        if value is not None and tx.portgroups.list(Query(filters={name: value}, limit=1)):
            return True
    return False


def _existing(stored: Node) -> tuple[Any, str]:
    if KEY in stored.internal:
        return "already imported", ""
    return "skipped", "a node with this UUID exists here"


def _provision(state: str) -> tuple[Provision | None, str]:
    """Return the provision state here for the one there, and a remark; None: it is about to change there."""
    if state in _SAME:
        return Provision(state), ""
    if state == Provision.INSPECT_FAILED:
        return Provision.MANAGEABLE, ""
    if state in _IN_USE:
        return Provision.AVAILABLE, f"it is {state} in Ironic, and available here"
    return None, f"it is {state} in Ironic; repeat the import when that has ended"


def _seconds(moment: Any) -> float | None:
    try:
        return datetime.fromisoformat(moment).timestamp() if isinstance(moment, str) else None
    except ValueError:
        return None
