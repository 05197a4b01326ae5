"""Moves parts of inspection data one by one, so that a crash at any point loses and duplicates nothing.

The order is: record the object (``uploading``); upload it; then, in one transaction, mark it as stored and delete the
part that it replaces, provided that this is unchanged. If interrupted, the data stays in its place, and a new object is
discarded later.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from typing import Final

import msgspec

from ferroscope.contracts.errors import NotFoundError, StoreUnavailableError
from ferroscope.contracts.remote import ObjectMissingError, ObjectStoreError
from ferroscope.contracts.store import Held, StoredObject, packed
from ferroscope.core.model import Entry, Severity
from ferroscope.db import Fence, Store, Transaction
from ferroscope.storage.reader import Archive, pack

UPLOAD_TIMEOUT_SECONDS: Final = 3600.0
"""Seconds; longer than any upload, so that an older object in ``uploading`` may be deleted."""


class MoveJob(msgspec.Struct, frozen=True):
    """A part to be moved to ``target``: from the database (``held``), or from another store (``source``)."""

    target: StoredObject
    held: Held | None = None
    source: StoredObject | None = None


class MoveResult(msgspec.Struct, frozen=True):
    """The result of a job: the target as stored, or why it failed."""

    job: MoveJob
    error: str | None = None
    lost: bool = False


def skip_fence(_tx: Transaction) -> None:
    """For callers without a lease."""


class Mover:
    """The steps of a move; ``process`` is our name on timelines."""

    def __init__(self, store: Store, archive: Archive, *, process: str) -> None:
        self._store = store
        self._archive = archive
        self._process = process

    def plan(self, parts: Sequence[Held | StoredObject], to: str, fence: Fence = skip_fence) -> list[MoveJob]:
        """Record the objects about to be created, and return the jobs."""
        # Recorded before the upload: if this process dies in between, the record leads to the orphaned object.
        jobs = [self._job(part, to) for part in parts]

        def work(tx: Transaction) -> None:
            fence(tx)
            tx.objects.add(job.target for job in jobs)

        self._store.write(work)
        return jobs

    def carry(self, job: MoveJob) -> MoveResult:
        """Upload one part, without changing the database. Errors of the stores are returned, not raised."""
        try:
            if job.source is not None:
                content = self._archive.content(job.source)
            else:
                target = job.target
                content = self._store.read(lambda tx: tx.data.load(target.inspection, (target.part,)))[target.part]
            packed = pack(content)
            self._archive.object_stores[job.target.backend].put(job.target.key, packed)
            digest = hashlib.sha256(content).hexdigest()
            uploaded = msgspec.structs.replace(
                job.target, size=len(packed), content_size=len(content), content_sha256=digest
            )
            return MoveResult(msgspec.structs.replace(job, target=uploaded))
        except KeyError:
            return MoveResult(job, error="it was deleted meanwhile", lost=True)
        except ObjectMissingError as exc:
            return MoveResult(job, error=str(exc), lost=True)
        except (ObjectStoreError, StoreUnavailableError) as exc:
            return MoveResult(job, error=str(exc))

    def record_moves(self, carried: Sequence[MoveResult], fence: Fence = skip_fence) -> int:
        """Mark uploaded objects as stored, and delete what they replace; return how many they were."""
        arrived = [result for result in carried if result.error is None]

        def work(tx: Transaction) -> int:
            fence(tx)
            return sum(self._record_arrival(tx, result) for result in arrived)

        return self._store.write(work) if arrived else 0

    def move_to_database(self, source: StoredObject) -> bool:
        """Move one object into the database; errors as for ``Archive.content``."""
        parts = packed({source.part: self._archive.content(source)})

        def work(tx: Transaction) -> bool:
            # Nothing was locked during the download: the node may be deleted, or the object replaced by now.
            try:
                tx.nodes.get(source.node, lock=True)
            except NotFoundError:
                return False
            if source.key not in [record.key for record in tx.objects.find(source.inspection, (source.part,))]:
                return False
            tx.data.save(source.inspection, source.node, parts)
            tx.objects.discard(source.inspection, (source.part,))
            return True

        return self._store.write(work)

    def remove(self, record: StoredObject) -> None:
        """Delete an object in its store; idempotent; ``ObjectStoreError``."""
        object_store = self._archive.object_stores.get(record.backend)
        if object_store is None:
            raise ObjectStoreError(f"cannot delete an object in {record.backend}: it is not configured")
        object_store.delete(record.key)

    def forget(self, keys: Sequence[str], fence: Fence = skip_fence) -> None:
        """Delete the records of discarded objects that were deleted."""

        def work(tx: Transaction) -> None:
            fence(tx)
            tx.objects.forget(keys)

        if keys:
            self._store.write(work)

    def warn(self, job: MoveJob, error: str, fence: Fence = skip_fence) -> None:
        """Record on the node's timeline that its data could not be moved yet."""
        message = f"the {job.target.part} stays in the database for now, and the move will be retried: {error}"
        entry = Entry(
            node=job.target.node,
            inspection=job.target.inspection,
            step="not moved",
            message=message,
            process=self._process,
            severity=Severity.WARNING,
        )

        def work(tx: Transaction) -> None:
            fence(tx)
            tx.journal.append([entry])

        self._store.write(work)

    def _job(self, part: Held | StoredObject, to: str) -> MoveJob:
        key = f"{part.node}/{part.inspection}/{part.part}-{secrets.token_hex(6)}.json.gz"
        target = StoredObject(key=key, backend=to, inspection=part.inspection, node=part.node, part=part.part)
        return MoveJob(target, held=part) if isinstance(part, Held) else MoveJob(target, source=part)

    def _record_arrival(self, tx: Transaction, carried: MoveResult) -> bool:
        """Mark the object as stored; False if there is newer data or the node is gone: then it is discarded."""
        # Nothing was locked during the upload, so check that the part is still the one that was uploaded.
        job, target = carried.job, carried.job.target
        before = [record.key for record in tx.objects.find(target.inspection, (target.part,))]
        if job.source is not None and job.source.key not in before:
            return False
        if not tx.objects.keep(target):
            return False
        if job.held is not None and not tx.data.drop(job.held):
            tx.objects.discard_keys([target.key])  # only this object: another one may be the only copy
            return False
        tx.objects.discard_keys(before)
        return True
