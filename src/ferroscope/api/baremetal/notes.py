"""Notes that people leave on a node, with author and time. The newest is last."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from ferroscope.api.errors import BadRequestError, MissingError, StateConflictError
from ferroscope.api.http.context import ApiContext
from ferroscope.api.http.decoding import node_ident
from ferroscope.api.http.route import NoQuery, Reply, RouteCall
from ferroscope.api.http.schemas import iso
from ferroscope.core.model import Document, Node
from ferroscope.db import Transaction

POLICY: Final = "baremetal:node:update_extra"
MAX_NOTES: Final = 50
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


def add_note(context: ApiContext, call: RouteCall[NoQuery, NewNote]) -> Reply:
    """Add a note to a node."""
    text = call.body.text.strip()
    if not text:
        raise BadRequestError("The note is empty.")

    def change(tx: Transaction, notes: list[Document], last: int) -> list[Document]:
        if len(notes) >= MAX_NOTES:
            raise StateConflictError(f"A node has at most {MAX_NOTES} notes; delete one first.")
        return [*notes, {"number": last + 1, "text": text, "by": str(call.identity)[:255], "at": iso(tx.now)}]

    return Reply(201, _change_notes(context, call, change))


def remove_note(context: ApiContext, call: RouteCall[NoQuery, None]) -> Reply:
    """Delete a note of a node."""

    def change(_tx: Transaction, notes: list[Document], _last: int) -> list[Document]:
        left = [note for note in notes if str(note["number"]) != call.path["number"]]
        if len(left) == len(notes):
            raise MissingError(f"Node {call.path['node']} has no note {call.path['number'][:20]!r}.")
        return left

    _change_notes(context, call, change)
    return Reply(204)


def _change_notes(context: ApiContext, call: RouteCall[Any, Any], change: Any) -> Notes:
    ident = node_ident(call)

    def work(tx: Transaction) -> Node:
        node = tx.nodes.get(ident, lock=True)
        attributes = {name: value for name, value in node.attributes.items() if name != "notes"}
        earlier: list[Document] = list(node.attributes.get("notes") or [])
        last = max([node.internal.get(_LAST, 0), *(int(note["number"]) for note in earlier)])
        notes = change(tx, earlier, last)
        if notes:
            attributes["notes"] = notes
        # A number is never used again: a caller who deletes by number must not delete a note that they have not read.
        internal = node.internal | {_LAST: max([last, *(int(note["number"]) for note in notes)])}
        return tx.nodes.update(msgspec.structs.replace(node, attributes=attributes, internal=internal))

    return Notes(msgspec.convert(context.data.store.write(work).attributes.get("notes") or [], list[Note]))
