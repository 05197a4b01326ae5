"""Reads inspection data: its location is read in a transaction, objects are fetched after it.

No transaction waits for an object store. Data from an object store is not trusted: the unpacked size is limited to
the packed one's, and the digest must match.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import zlib
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import structlog

from ferroscope.contracts.data import Part, StoredObject
from ferroscope.contracts.errors import NotFoundError, StoreUnavailableError
from ferroscope.contracts.remote import ObjectDamagedError, ObjectStore, ObjectStoreError
from ferroscope.contracts.store import Query
from ferroscope.core.model import GIVEN, Entry, Inspection, Node, Severity
from ferroscope.core.reasons import Reason
from ferroscope.core.states import State
from ferroscope.db.store import Store
from ferroscope.db.transaction import Transaction

_PAGE = 20
_GZIP: Final = 31  # zlib's wbits for gzip
# For objects of a release that did not store the size; the largest body accepted by default results in a fraction of
# this.
_OF_UNKNOWN_SIZE: Final = 64 * 1024 * 1024
_DAMAGED: Final = 10_000

_log = structlog.get_logger(__name__)


class Found(msgspec.Struct, frozen=True):
    """The parts of one inspection: those in the database, and the locations of the others."""

    inspection: str
    here: dict[Part, bytes]
    elsewhere: Sequence[StoredObject] = ()


def locate(tx: Transaction, inspection: str, parts: Sequence[Part]) -> Found:
    """Return the stored parts, wherever they are."""
    here = tx.data.load(inspection, parts)
    missing = [part for part in parts if part not in here]
    return Found(inspection, here, tx.objects.find(inspection, missing) if missing else ())


def newest(tx: Transaction, node: Node, parts: Sequence[Part]) -> Found | None:
    """Return the parts of the newest inspection that has all of them; None if there is none.

    Processed data (``plugin_data``) counts only once its inspection has finished. An inspection that is in progress or
    failed does not hide earlier data, and supplied data that was rejected does not hide what the machine itself sent.
    """
    if node.state is State.FINISHED and node.inspection is not None:
        found = locate(tx, node.inspection, parts)
        if _complete(found, parts):
            return found
    marker: str | None = None
    while node.inspection is not None:
        query = Query(filters={"node": node.uuid}, sort_key="started_at", descending=True, limit=_PAGE, marker=marker)
        page = tx.inspections.list(query)
        for inspection in page:
            if _counts(inspection, parts) and _complete(found := locate(tx, inspection.uuid, parts), parts):
                return found
        if len(page) < _PAGE:
            break
        marker = page[-1].uuid
    return None


def previous(tx: Transaction, node: str, inspection: Inspection | None, parts: Sequence[Part]) -> Found | None:
    """Return the parts of the node's newest inspection that finished before this one; None if there is none.

    A reapply counts as the inspection whose data it processes.
    """
    if inspection is not None and inspection.reapplies not in (None, GIVEN):
        with contextlib.suppress(NotFoundError):  # deleted by retention
            inspection = tx.inspections.get(str(inspection.reapplies))
    query = Query(
        filters={"node": node, "state": State.FINISHED},
        before={} if inspection is None else {"started_at": inspection.started_at},
        sort_key="started_at",
        descending=True,
        limit=1,
    )
    found = tx.inspections.list(query)
    return locate(tx, found[0].uuid, parts) if found else None


def _counts(inspection: Inspection, parts: Sequence[Part]) -> bool:
    if "plugin_data" in parts:
        return inspection.state is State.FINISHED
    return not (inspection.reapplies == GIVEN and inspection.state is State.ERROR)


def _complete(found: Found, parts: Sequence[Part]) -> bool:
    return len(found.here) + len(found.elsewhere) == len(parts)


class Archive:
    """The database and the configured object stores, by name."""

    def __init__(self, store: Store, object_stores: Mapping[str, ObjectStore]) -> None:
        self._store = store
        self.object_stores = object_stores
        self._damaged: set[str] = set()

    def load(self, inspection: str, parts: Sequence[Part]) -> dict[Part, bytes]:
        """Return the stored parts; ``ObjectStoreError``, ``ObjectMissingError``."""
        return self.fetch(self._store.read(lambda tx: locate(tx, inspection, parts)))

    def fetch(self, found: Found) -> dict[Part, bytes]:
        """Return the data of ``found``; errors as for ``load``."""
        return found.here | {one.part: self.content(one) for one in found.elsewhere}

    def content(self, one: StoredObject) -> bytes:
        """Return the content of one object; errors as for ``load``, and ``ObjectDamagedError``."""
        object_store = self.object_stores.get(one.backend)
        if object_store is None:
            raise ObjectStoreError(f"the data is in {one.backend}, which is not configured; see [{one.backend}]")
        packed = object_store.get(one.key)
        try:
            return unpack(packed, one)
        except ValueError as exc:
            message = f"object {one.key} in {one.backend} is damaged: {exc}"
            self._note(one, message)
            raise ObjectDamagedError(message) from None

    def _note(self, one: StoredObject, message: str) -> None:
        """Report a damaged object in the log and on its node's timeline, once per process."""
        if one.key in self._damaged:
            return
        self._damaged = {one.key} if len(self._damaged) >= _DAMAGED else {*self._damaged, one.key}
        _log.error("object damaged", key=one.key, backend=one.backend, node=one.node, message=message)
        entry = Entry(
            node=one.node,
            inspection=one.inspection,
            step="data damaged",
            message=message,
            severity=Severity.ERROR,
            reason=str(Reason.DATA_DAMAGED),
        )

        def work(tx: Transaction) -> None:
            tx.nodes.get(one.node, lock=True)
            tx.journal.append([entry])

        with contextlib.suppress(NotFoundError, StoreUnavailableError):
            self._store.write(work)


def pack(content: bytes) -> bytes:
    """Return the content as stored in an object: gzip, so that standard tools can read it."""
    return gzip.compress(content, compresslevel=1, mtime=0)


def unpack(packed: bytes, one: StoredObject) -> bytes:
    """Return the content of this object; ``ValueError`` if it does not match."""
    most = _OF_UNKNOWN_SIZE if one.content_size is None else one.content_size
    stream = zlib.decompressobj(wbits=_GZIP)
    try:
        content = stream.decompress(packed, most + 1)
    except zlib.error:
        raise ValueError("it is not valid gzip data") from None
    if len(content) > most:
        raise ValueError(f"it unpacks to more than {most} bytes")
    if not stream.eof:
        raise ValueError("it is truncated")
    if stream.unused_data:
        raise ValueError("it has trailing data")
    if one.content_sha256 is not None and hashlib.sha256(content).hexdigest() != one.content_sha256:
        raise ValueError("its SHA-256 does not match")
    return content
