"""Reads inspection data from where it is: a place is found in a transaction, objects are fetched after it.

No transaction waits for an object store.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Mapping, Sequence

import msgspec

from ferroscope.domain.model import Node
from ferroscope.ports.data import Part, StoredObject
from ferroscope.ports.objects import ObjectMissingError, ObjectStore, ObjectStoreError
from ferroscope.ports.store import Query, Store, Transaction

_PAGE = 20


class Found(msgspec.Struct, frozen=True):
    """The parts of one inspection: those that are here, and where the others are."""

    inspection: str
    here: dict[Part, bytes]
    elsewhere: Sequence[StoredObject] = ()


def locate(tx: Transaction, inspection: str, parts: Sequence[Part]) -> Found:
    """Return those of the parts that are stored, wherever."""
    here = tx.data.load(inspection, parts)
    missing = [part for part in parts if part not in here]
    return Found(inspection, here, tx.objects.find(inspection, missing) if missing else ())


def newest(tx: Transaction, node: Node, parts: Sequence[Part]) -> Found | None:
    """Return the parts of the newest inspection that has all of them; None where none has.

    An inspection that is under way, or that failed early, does not hide the data before it.
    """
    if node.inspection is None:
        return None
    marker: str | None = None
    found = locate(tx, node.inspection, parts)
    while not _complete(found, parts):
        query = Query(filters={"node": node.uuid}, sort_key="started_at", descending=True, limit=_PAGE, marker=marker)
        page = tx.inspections.list(query)
        for inspection in page:
            found = locate(tx, inspection.uuid, parts)
            if _complete(found, parts):
                return found
        if len(page) < _PAGE:
            return None
        marker = page[-1].uuid
    return found


def _complete(found: Found, parts: Sequence[Part]) -> bool:
    return len(found.here) + len(found.elsewhere) == len(parts)


class Archive:
    """The database and the object stores that are configured, by name."""

    def __init__(self, store: Store, shelves: Mapping[str, ObjectStore]) -> None:
        self._store = store
        self.shelves = shelves

    def load(self, inspection: str, parts: Sequence[Part]) -> dict[Part, bytes]:
        """Return those of the parts that are stored; ``ObjectStoreError``, ``ObjectMissingError``."""
        return self.fetch(self._store.read(lambda tx: locate(tx, inspection, parts)))

    def fetch(self, found: Found) -> dict[Part, bytes]:
        """Return what was found; errors as of ``load``."""
        return found.here | {one.part: self.content(one) for one in found.elsewhere}

    def content(self, one: StoredObject) -> bytes:
        """Return the content of one object; errors as of ``load``."""
        shelf = self.shelves.get(one.backend)
        if shelf is None:
            raise ObjectStoreError(f"the data is in {one.backend}, which is not configured: see [{one.backend}]")
        try:
            return gzip.decompress(shelf.get(one.key))
        except (OSError, EOFError, zlib.error) as exc:
            raise ObjectMissingError(f"the object {one.key} in {one.backend} is not what was stored there") from exc


def pack(content: bytes) -> bytes:
    """Return what an object contains: gzip, so that a person can read it with what every system has."""
    return gzip.compress(content, compresslevel=1, mtime=0)
