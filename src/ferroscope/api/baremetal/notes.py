"""Notes on nodes: what people tell each other about a machine, with who wrote it and when. The newest is last."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from ferroscope.api.errors import BadRequestError, MissingError, StateConflictError
from ferroscope.api.http.context import ApiContext
from ferroscope.api.http.decoding import node_ident
from ferroscope.api.http.route import Call, NoQuery, Reply
from ferroscope.api.http.schemas import iso
from ferroscope.core.model import Document, Node
from ferroscope.db.transaction import Transaction

POLICY: Final = "baremetal:node:update_extra"
MOST: Final = 50
_LAST: Final = "last_note"


class NewNote(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The text of a note."""

    text: Annotated[str, msgspec.Meta(min_length=1, max_length=2000)]


class Note(msgspec.Struct, frozen=True):
    """A note; ``number`` is for deleting it."""

    number: int
    text: str
    by: str
    at: str | None


class Notes(msgspec.Struct, frozen=True):
    """All notes of a node, the newest last."""

    notes: list[Note]


def add_note(context: ApiContext, call: Call[NoQuery, NewNote]) -> Reply:
    """Add a note to a node."""
    text = call.body.text.strip()
    if not text:
        raise BadRequestError("The note is empty.")

    def change(tx: Transaction, known: list[Document], last: int) -> list[Document]:
        if len(known) >= MOST:
            raise StateConflictError(f"A node has at most {MOST} notes; delete one first.")
        return [*known, {"number": last + 1, "text": text, "by": str(call.identity)[:255], "at": iso(tx.now)}]

    return Reply(201, _changed(context, call, change))


def remove_note(context: ApiContext, call: Call[NoQuery, None]) -> Reply:
    """Delete a note of a node."""

    def change(_tx: Transaction, known: list[Document], _last: int) -> list[Document]:
        left = [one for one in known if str(one["number"]) != call.path["number"]]
        if len(left) == len(known):
            raise MissingError(f"Node {call.path['node']} has no note {call.path['number'][:20]!r}.")
        return left

    _changed(context, call, change)
    return Reply(204)


def _changed(context: ApiContext, call: Call[Any, Any], change: Any) -> Notes:
    ident = node_ident(call)

    def work(tx: Transaction) -> Node:
        node = tx.nodes.get(ident, lock=True)
        attributes = {name: value for name, value in node.attributes.items() if name != "notes"}
        known: list[Document] = list(node.attributes.get("notes") or [])
        last = max([node.internal.get(_LAST, 0), *(int(one["number"]) for one in known)])
        notes = change(tx, known, last)
        if notes:
            attributes["notes"] = notes
        # A number that was seen once is never another note's, or who deletes by number deletes what they have not read.
        internal = node.internal | {_LAST: max([last, *(int(one["number"]) for one in notes)])}
        return tx.nodes.update(msgspec.structs.replace(node, attributes=attributes, internal=internal))

    return Notes(msgspec.convert(context.data.store.write(work).attributes.get("notes") or [], list[Note]))
