"""Takes back what a processed callback changed, if a different callback arrives before the inspection has ended.

The results are committed with the end of the processing, and the machine is powered off after that. What they replaced
is recorded in the payload of the request to ``finish``, in the same transaction: only the fields that have changed.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from ferroscope.contracts.store import Query
from ferroscope.core.model import Document, Node, Port
from ferroscope.core.node import STORED, merged_fields, three_way
from ferroscope.db.transaction import Transaction
from ferroscope.worker.attempt import Attempt

_KEY: Final = "undo"
# The digest of search data that is not there any more: the next inspection, or a rebuild, writes it anew.
_FORGOTTEN: Final = ""
# What a rule has set is not encrypted before it is stored, so it is not recorded.
_WITH_SECRETS: Final = frozenset(field.name for field in STORED if field.encrypted)
_PORT_FIELDS: Final = tuple(name for name in Port.__struct_fields__ if name not in ("uuid", "node", "updated_at"))


def recorded(attempt: Attempt) -> Document:
    """Return what the results replace, as a part of the payload of the request that follows."""
    before, after = attempt.before, attempt.node
    fields = [name for name in merged_fields() if getattr(before, name) != getattr(after, name)]
    shown = [name for name in fields if name not in _WITH_SECRETS]
    edits, present = attempt.port_changes, {port.uuid: port for port in attempt.ports}
    record = {
        "before": {name: getattr(before, name) for name in fields},
        "after": {name: getattr(after, name) for name in shown},
        "added": [port.uuid for port in edits.added],
        "updated": [_difference(present[uuid], port) for uuid, port in edits.updated.items() if uuid in present],
        "removed": [present[uuid] for uuid in edits.removed if uuid in present],
    }
    return {_KEY: msgspec.to_builtins(record)}


def restore(tx: Transaction, payload: Document, node: Node) -> Node:
    """Undo the results; return the node as it is stored then. What others have changed meanwhile is kept."""
    record = payload.get(_KEY)
    if not record:
        return node
    identity = {"uuid": node.uuid, "driver": node.driver}
    before = msgspec.convert(identity | record["before"], Node)
    after = msgspec.convert(identity | record["after"], Node)
    restored = three_way(after, before, node)
    for name in _WITH_SECRETS & record["before"].keys():
        setattr(restored, name, getattr(before, name))
    if node.search_digest is not None:
        tx.search_index.replace(node.uuid, [], had=True)
        restored.search_digest = None if record["before"].get("search_digest", "") is None else _FORGOTTEN
    if record["added"]:
        tx.ports.remove(record["added"])
    present = {port.uuid: port for port in tx.ports.list(Query(filters={"node": node.uuid}))}
    for change in record["updated"]:
        if (port := present.get(change["uuid"])) is not None:
            tx.ports.update(msgspec.structs.replace(port, **change["before"]))
    tx.ports.add([msgspec.convert(port, Port) for port in record["removed"]])
    return tx.nodes.update(restored)


def _difference(before: Port, after: Port) -> dict[str, Any]:
    names = [name for name in _PORT_FIELDS if getattr(before, name) != getattr(after, name)]
    return {"uuid": before.uuid, "before": {name: getattr(before, name) for name in names}}
