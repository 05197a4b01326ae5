"""Import from ironic-inspector 12.5.0: its introspections with their data, and its rules, out of its database.

The source is only read (``inspector_source``). Imported objects get identifiers that follow from the source, so a
repeated import finds them and adds nothing. Each node is imported in one transaction, which also records its previous
state. A rollback restores that, unless the node was changed since.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from ferroscope import transition
from ferroscope.api.baremetal import callback_body
from ferroscope.api.errors import ApiError
from ferroscope.config.options import Settings
from ferroscope.contracts.errors import NotFoundError
from ferroscope.contracts.remote import Introspected
from ferroscope.contracts.store import Part, Query
from ferroscope.contrib.openstack.imports.imported import (
    ImportedData,
    ImportItem,
    Result,
    Track,
    add_rule,
    remove_rule,
    write,
)
from ferroscope.contrib.openstack.imports.inspector_source import (
    NAMESPACE,
    InspectorSource,
    Introspection,
    connect,
    introspections,
    rules,
)
from ferroscope.core.delivery import Fail
from ferroscope.core.model import Document, Entry, Inspection, Node, Port, Rule
from ferroscope.db import Store, Transaction
from ferroscope.hardware import search_index
from ferroscope.runtime.backend import open_for_command
from ferroscope.storage.reader import newest
from ferroscope_client.core import json_safety
from ferroscope_client.core.reasons import CANCELED, Reason
from ferroscope_client.core.states import RESTING, TERMINAL, Provision, State

T = TypeVar("T")

# The key of the import in a node's internal data.
KEY: Final = "inspector_import"
_BEFORE: Final = (
    "state", "inspection", "inspection_started_at", "inspection_finished_at", "last_error", "hardware", "search_digest",
)  # fmt: skip
_TIMED_OUT: Final = "Introspection timeout"


class InspectorImportOptions(msgspec.Struct, frozen=True, kw_only=True):
    """``create``: the provision state of nodes that are unknown here, with ``driver``; None: they are only reported."""

    dry_run: bool = False
    create: Provision | None = None
    driver: str = ""


# The import


def run(settings: Settings, source: str, options: InspectorImportOptions, track: Track = iter) -> list[ImportItem]:
    """Import everything; return the result for each node and rule. ``track`` passes the nodes on. ``SetupError``."""
    with open_for_command(settings) as backend, connect(source) as read:
        importer = _InspectorImporter(settings, backend.store, options)
        items = [importer.node(read, introspection) for introspection in track(introspections(read.connection))]
        return items + [importer.rule(rule, disabled=disabled) for rule, disabled in rules(read.connection)]


def roll_back(settings: Settings, source: str, track: Track = iter, *, dry_run: bool = False) -> list[ImportItem]:
    """Undo an import of the same source, except for objects that changed since. ``SetupError``."""
    with open_for_command(settings) as backend, connect(source) as read:
        store = backend.store
        ended, imported_rules = introspections(read.connection), rules(read.connection)
        items = [
            write(store, partial(_restore, introspection=introspection), dry_run=dry_run)
            for introspection in track(ended)
        ]
        items += [write(store, partial(remove_rule, rule=rule), dry_run=dry_run) for rule, _ in imported_rules]
        return [item for item in items if item is not None]


def prepare_fetched(settings: Settings, store: Store) -> Callable[[Introspected], Callable[[Transaction], str]]:
    """Return a function that prepares an introspection from ironic-inspector's API for storing, like an import.

    ``ValueError`` if its data is invalid.
    """
    importer = _InspectorImporter(settings, store, InspectorImportOptions())

    def prepare(introspected: Introspected) -> Callable[[Transaction], str]:
        introspection = Introspection(
            introspected.node,
            introspected.state,
            introspected.started_at,
            introspected.finished_at,
            introspected.error,
            True,
        )
        try:
            data, macs = importer.data(introspected.data)
        except ApiError as exc:
            raise ValueError(exc.message) from None
        return lambda tx: importer.store_node(tx, introspection, data, macs).result

    return prepare


class _InspectorImporter:
    def __init__(self, settings: Settings, store: Store, options: InspectorImportOptions) -> None:
        self._settings, self._store, self._options = settings, store, options

    def node(self, source: InspectorSource, introspection: Introspection) -> ImportItem:
        if introspection.finished_at is None:
            detail = f"{introspection.state} since {_utc(introspection.started_at)}; to start it here: --start"
            return ImportItem(
                "node", introspection.uuid, "in progress", detail, introspection.started_at, introspection.manage_boot
            )
        if introspection.state not in TERMINAL or introspection.started_at is None:
            return ImportItem("node", introspection.uuid, "skipped", f"unexpected state {introspection.state}")
        try:
            data, macs = self.data(source.data_of(introspection.uuid))
        except (ApiError, ValueError) as exc:
            return ImportItem("node", introspection.uuid, "skipped", f"its data is invalid: {exc}")
        return write(
            self._store, lambda tx: self.store_node(tx, introspection, data, macs), dry_run=self._options.dry_run
        )

    def data(self, raw: dict[bool, bytes]) -> tuple[ImportedData, tuple[str, ...]]:
        """Return the data in the form in which it is stored here, and the MACs of the machine."""
        api, ignored = self._settings.api, self._settings.inspector.ignored
        parts: dict[Part, bytes] = {}
        macs: tuple[str, ...] = ()
        for processed in (True, False):
            if (body := raw.get(processed)) is None:
                continue
            if len(body) > api.max_body_size:
                raise ValueError(f"{len(body)} bytes, more than [api] max_body_size")
            parsed = callback_body.parse(body, None, ignored=ignored)
            rest = parsed.parts.pop("unprocessed")
            parsed.parts.pop("logs", None)
            parts |= parsed.parts | {"plugin_data" if processed else "unprocessed": rest}
            macs = parsed.evidence.macs
        return ImportedData.of(parts), macs

    def store_node(
        self, tx: Transaction, introspection: Introspection, data: ImportedData, macs: tuple[str, ...]
    ) -> ImportItem:
        result: Result = "imported"
        try:
            node = tx.nodes.get(introspection.uuid, lock=True)
        except NotFoundError:
            if self._options.create is None:
                return ImportItem(
                    "node", introspection.uuid, "unknown", "enroll it with this UUID, or create it: --create enroll"
                )
            node, result = self._create(tx, introspection, macs), "created"
        if _is_imported(tx, introspection):
            return ImportItem("node", introspection.uuid, "already imported")
        failed = introspection.state == State.ERROR
        failure = Fail(_reason(introspection.error), introspection.error or "") if failed else None
        inspection = Inspection(
            uuid=introspection.ident,
            node=introspection.uuid,
            state=State(introspection.state),
            started_at=introspection.started_at or 0.0,
            finished_at=introspection.finished_at,
            manage_boot=introspection.manage_boot,
            reason=None if failure is None else str(failure.reason),
            error=None if failure is None else failure.message,
        )
        tx.inspections.add(inspection)
        tx.data.save(introspection.ident, introspection.uuid, data.parts)
        entry = Entry(
            node=introspection.uuid,
            inspection=introspection.ident,
            step="imported",
            message="imported from ironic-inspector",
            process="import",
        )
        tx.journal.append([entry])
        detail = "" if data.parts else "without data"
        if node.state not in RESTING or (node.inspection_started_at or 0.0) >= inspection.started_at:
            return ImportItem(
                "node", introspection.uuid, result, detail or "as an earlier inspection: the node has a newer one here"
            )
        self._make_current(tx, node, inspection, failure, data, created=result == "created")
        return ImportItem("node", introspection.uuid, result, detail)

    def _make_current(
        self,
        tx: Transaction,
        node: Node,
        inspection: Inspection,
        failure: Fail | None,
        data: ImportedData,
        *,
        created: bool,
    ) -> None:
        record: Document = {"inspection": inspection.uuid, "created": created, "version": node.version + 1}
        record["before"] = {name: msgspec.to_builtins(getattr(node, name)) for name in _BEFORE}
        changes: Document = {
            "state": inspection.state,
            "inspection": inspection.uuid,
            "inspection_started_at": inspection.started_at,
            "inspection_finished_at": inspection.finished_at,
            "last_error": None if failure is None else transition.explain(failure),
            "internal": node.internal | {KEY: record},
        }
        learned = data.learned
        if failure is None and learned is not None:
            tx.search_index.replace(node.uuid, learned.rows, had=node.search_digest is not None)
            changes |= {"search_digest": learned.digest, "hardware": learned.summary}
        tx.nodes.update(msgspec.structs.replace(node, **changes))

    def _create(self, tx: Transaction, introspection: Introspection, macs: tuple[str, ...]) -> Node:
        provision = self._options.create or Provision.ENROLL
        tx.nodes.add(
            Node(uuid=introspection.uuid, driver=self._options.driver, provision_state=provision, created_at=tx.now)
        )
        taken_macs = {port.address for port in tx.ports.list(Query(filters={"address": macs}))} if macs else set()
        tx.ports.add(
            Port(uuid=str(uuid.uuid5(NAMESPACE, mac)), node=introspection.uuid, address=mac)
            for mac in macs
            if mac not in taken_macs
        )
        return tx.nodes.get(introspection.uuid, lock=True)

    def rule(self, rule: Rule, *, disabled: bool) -> ImportItem:
        if disabled:
            return ImportItem("rule", rule.uuid, "skipped", "it is disabled")
        return add_rule(self._store, rule, dry_run=self._options.dry_run)


def _is_imported(tx: Transaction, introspection: Introspection) -> bool:
    try:
        tx.inspections.get(introspection.ident)
    except NotFoundError:
        return False
    return True


def _reason(error: str | None) -> Reason:
    return {CANCELED: Reason.ABORTED, _TIMED_OUT: Reason.TIMEOUT}.get(error or "", Reason.IMPORTED)


def _utc(seconds: float | None) -> str:
    return "?" if seconds is None else f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"


# The rollback


def _restore(tx: Transaction, introspection: Introspection) -> ImportItem | None:
    """Undo the import of a node; None if it was not imported."""
    try:
        node = tx.nodes.get(introspection.uuid, lock=True)
    except NotFoundError:
        return None
    if not _is_imported(tx, introspection):
        return None
    record = node.internal.get(KEY)
    if not isinstance(record, dict) or record.get("inspection") != introspection.ident:
        tx.inspections.remove([introspection.ident])  # it was added as an earlier one
        return ImportItem("node", introspection.uuid, "rolled back")
    if node.version != record.get("version"):
        return ImportItem(
            "node",
            introspection.uuid,
            "changed since",
            "the node was changed or inspected after the import; it is kept",
        )
    if record.get("created"):
        tx.nodes.remove(introspection.uuid)
        return ImportItem("node", introspection.uuid, "rolled back", "the node is deleted")
    tx.inspections.remove([introspection.ident])
    before = record["before"]
    previous = msgspec.structs.replace(
        node,
        **before | {"state": State(before["state"])},
        internal={key: value for key, value in node.internal.items() if key != KEY},
    )
    _restore_index(tx, previous, had=node.search_digest is not None)
    tx.nodes.update(previous)
    return ImportItem("node", introspection.uuid, "rolled back")


def _restore_index(tx: Transaction, node: Node, *, had: bool) -> None:
    """Derive the search index again from the data that was the newest before, as far as it is in the database."""
    data = newest(tx, node, ("inventory", "plugin_data")) if node.search_digest is not None else None
    rows: Any = ()
    if data is not None and not data.elsewhere:
        inventory, plugin_data = (
            json_safety.decode(data.here[part], max_containers=json_safety.MAX_DERIVED)
            for part in ("inventory", "plugin_data")
        )
        rows = search_index.learn(inventory, plugin_data).rows
    tx.search_index.replace(node.uuid, rows, had=had)
