"""What tasks, hooks and rules read besides their node: other nodes, and the inspection before this one."""

from __future__ import annotations

from collections.abc import Iterable

from ferroscope.contracts.data import Part
from ferroscope.contracts.remote import ObjectStoreError
from ferroscope.contracts.store import Query
from ferroscope.core import json_safety
from ferroscope.core.model import Document, Severity
from ferroscope.storage.reader import previous
from ferroscope.worker.attempt import Attempt, Journal
from ferroscope.worker.services import Services


class HookRun:
    """What hooks and rules work on, as ``hooks.base.HookContext`` and ``rules.data.RuleTaskContext`` say."""

    def __init__(self, attempt: Attempt, journal: Journal, services: Services) -> None:
        self.node, self.ports, self.port_changes = attempt.node, attempt.ports, attempt.port_changes
        self.note = journal.note
        self.attempt, self.journal, self.services = attempt, journal, services

    def ports_elsewhere(self, macs: Iterable[str]) -> dict[str, str]:
        return ports_elsewhere(self.attempt, self.services, macs)

    def named(self, name: str) -> str | None:
        found = self.services.store.read(lambda tx: tx.nodes.list(Query(filters={"name": name})))
        return next((node.uuid for node in found if node.uuid != self.node.uuid), None)

    def previous_inventory(self) -> Document | None:
        found = previous_data(self.attempt, self.journal, self.services, ("inventory",), "continuing without it")
        return found.get("inventory")


def ports_elsewhere(attempt: Attempt, services: Services, macs: Iterable[str]) -> dict[str, str]:
    """Return which of these MACs are ports of other nodes: MAC -> that node's UUID."""
    query = Query(filters={"address": tuple(macs)})
    if not query.filters["address"]:
        return {}
    found = services.store.read(lambda tx: tx.ports.list(query))
    return {port.address: port.node for port in found if port.node != attempt.node.uuid}


def previous_data(
    attempt: Attempt, journal: Journal, services: Services, parts: tuple[Part, ...], without: str
) -> dict[Part, Document]:
    """Return data of the node's newest inspection that finished before this one, all of it or none.

    It is helpful, not required: an object store that is down must not fail the inspection. ``without`` says what
    happens without the data, for the note.
    """
    found = services.store.read(lambda tx: previous(tx, attempt.node.uuid, attempt.inspection, parts))
    try:
        stored = services.archive.fetch(found) if found is not None else {}
        if len(stored) < len(parts):
            return {}
        return {part: json_safety.decode_clean(stored[part]) for part in parts}
    except (ObjectStoreError, json_safety.TooManyContainersError) as exc:
        message = f"cannot read the previous inventory, {without}: {exc}"
        journal.note("previous inventory", message, severity=Severity.WARNING)
        return {}
