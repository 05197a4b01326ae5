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

from ferroscope.contracts.errors import NotFoundError, StoreError
from ferroscope.contracts.remote import ObjectDamagedError, ObjectStore, ObjectStoreError
from ferroscope.contracts.store import Part, Query, StoredObject
from ferroscope.core.model import GIVEN, Entry, Inspection, Node, Severity
from ferroscope.db import Store, Transaction
from ferroscope_client.core.reasons import Reason
from ferroscope_client.core.states import State

_INSPECTIONS_PER_PAGE = 20
_GZIP_WBITS: Final = 31  # zlib's wbits for gzip
# For objects of a release that did not store the size; the largest body accepted by default results in a fraction of
# this.
_MAX_BYTES_OF_UNKNOWN_SIZE: Final = 64 * 1024 * 1024
_MAX_REMEMBERED_DAMAGED: Final = 10_000

_log = structlog.get_logger(__name__)


class StoredParts(msgspec.Struct, frozen=True):
    """The parts of one inspection: those in the database, and the locations of the others."""

    inspection: str
    here: dict[Part, bytes]
    elsewhere: Sequence[StoredObject] = ()


def locate(tx: Transaction, inspection: str, parts: Sequence[Part]) -> StoredParts:
    """Return the stored parts, wherever they are."""
    here = tx.data.load(inspection, parts)
    missing = [part for part in parts if part not in here]
    return StoredParts(inspection, here, tx.objects.find(inspection, missing) if missing else ())


def newest(tx: Transaction, node: Node, parts: Sequence[Part]) -> StoredParts | None:
    """Return the parts of the newest inspection that has all of them; None if there is none.

    Processed data (``plugin_data``) counts only once its inspection has finished. An inspection that is in progress or
    failed does not hide earlier data, and supplied data that was rejected does not hide what the machine itself sent.
    """
    if node.state is State.FINISHED and node.inspection is not None:
        stored = locate(tx, node.inspection, parts)
        if _complete(stored, parts):
            return stored
    marker: str | None = None
    while node.inspection is not None:
        query = Query(
            filters={"node": node.uuid},
            sort_key="started_at",
            descending=True,
            limit=_INSPECTIONS_PER_PAGE,
            marker=marker,
        )
        page = tx.inspections.list(query)
        for inspection in page:
            if _counts(inspection, parts) and _complete(stored := locate(tx, inspection.uuid, parts), parts):
                return stored
        if len(page) < _INSPECTIONS_PER_PAGE:
            break
        marker = page[-1].uuid
    return None


def previous(tx: Transaction, node: str, inspection: Inspection | None, parts: Sequence[Part]) -> StoredParts | None:
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
    inspections = tx.inspections.list(query)
    return locate(tx, inspections[0].uuid, parts) if inspections else None


def _counts(inspection: Inspection, parts: Sequence[Part]) -> bool:
    if "plugin_data" in parts:
        return inspection.state is State.FINISHED
    return not (inspection.reapplies == GIVEN and inspection.state is State.ERROR)


def _complete(stored: StoredParts, parts: Sequence[Part]) -> bool:
    return len(stored.here) + len(stored.elsewhere) == len(parts)


class Archive:
    """The database and the configured object stores, by name."""

    def __init__(self, store: Store, object_stores: Mapping[str, ObjectStore]) -> None:
        self._store = store
        self.object_stores = object_stores
        self._damaged: set[str] = set()

    def load(self, inspection: str, parts: Sequence[Part]) -> dict[Part, bytes]:
        """Return the stored parts; ``ObjectStoreError``, ``ObjectMissingError``."""
        return self.fetch(self._store.read(lambda tx: locate(tx, inspection, parts)))

    def fetch(self, stored: StoredParts) -> dict[Part, bytes]:
        """Return the data of ``stored``; errors as for ``load``."""
        return stored.here | {record.part: self.content(record) for record in stored.elsewhere}

    def content(self, record: StoredObject) -> bytes:
        """Return the content of one object; errors as for ``load``, and ``ObjectDamagedError``."""
        object_store = self.object_stores.get(record.backend)
        if object_store is None:
            raise ObjectStoreError(f"the data is in {record.backend}, which is not configured; see [{record.backend}]")
        packed = object_store.get(record.key)
        try:
            return unpack(packed, record)
        except ValueError as exc:
            message = f"object {record.key} in {record.backend} is damaged: {exc}"
            self._note(record, message)
            raise ObjectDamagedError(message) from None

    def _note(self, record: StoredObject, message: str) -> None:
        """Report a damaged object in the log and on its node's timeline, once per process."""
        if record.key in self._damaged:
            return
        self._damaged = {record.key} if len(self._damaged) >= _MAX_REMEMBERED_DAMAGED else {*self._damaged, record.key}
        _log.error("object damaged", key=record.key, backend=record.backend, node=record.node, message=message)
        entry = Entry(
            node=record.node,
            inspection=record.inspection,
            step="data damaged",
            message=message,
            severity=Severity.ERROR,
            reason=str(Reason.DATA_DAMAGED),
        )

        def work(tx: Transaction) -> None:
            tx.nodes.get(record.node, lock=True)
            tx.journal.append([entry])

        with contextlib.suppress(NotFoundError, StoreError):
            self._store.write(work)


def pack(content: bytes) -> bytes:
    """Return the content as stored in an object: gzip, so that standard tools can read it."""
    return gzip.compress(content, compresslevel=1, mtime=0)


def unpack(packed: bytes, record: StoredObject) -> bytes:
    """Return the content of this object; ``ValueError`` if it does not match."""
    limit = _MAX_BYTES_OF_UNKNOWN_SIZE if record.content_size is None else record.content_size
    stream = zlib.decompressobj(wbits=_GZIP_WBITS)
    try:
        content = stream.decompress(packed, limit + 1)
    except zlib.error:
        raise ValueError("it is not valid gzip data") from None
    if len(content) > limit:
        raise ValueError(f"it unpacks to more than {limit} bytes")
    if not stream.eof:
        raise ValueError("it is truncated")
    if stream.unused_data:
        raise ValueError("it has trailing data")
    if record.content_sha256 is not None and hashlib.sha256(content).hexdigest() != record.content_sha256:
        raise ValueError("its SHA-256 does not match")
    return content
