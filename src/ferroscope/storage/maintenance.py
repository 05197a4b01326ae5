"""Operations on all data of inspections: move it to another backend, rebuild the search index from it.

Both work in small transactions, and can be interrupted and repeated at any time, while the service runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from ferroscope.config.errors import SetupError
from ferroscope.contracts.errors import NotFoundError, StaleError
from ferroscope.contracts.remote import ObjectMissingError, ObjectStoreError
from ferroscope.contracts.store import Held, Part, Query, StoredObject
from ferroscope.core.model import Node
from ferroscope.db import Store, Transaction
from ferroscope.hardware import search_index
from ferroscope.storage.mover import Mover, MoveResult
from ferroscope.storage.reader import Archive, newest
from ferroscope_client.core import json_safety

_PARTS_PER_BATCH: Final = 32
_PROCESSED: Final[tuple[Part, ...]] = ("inventory", "plugin_data")
Report = Callable[[str], None]
Advance = Callable[[int], None]


class MoveReport(msgspec.Struct):
    """How many parts were moved or skipped (changed meanwhile, or gone); ``error``: why it stopped early."""

    moved: int = 0
    skipped: int = 0
    error: str = ""


class RebuildReport(msgspec.Struct):
    """How many nodes were checked, and how many search indexes changed."""

    nodes: int = 0
    changed: int = 0
    errors: int = 0


def move(store: Store, archive: Archive, source: str, target: str, advance: Advance) -> MoveReport:
    """Move all data of ended inspections; ``SetupError`` if a store is not configured.

    ``advance`` gets the number of parts that were moved or skipped since.
    """
    for name in {source, target} - {"database"}:
        if name not in archive.object_stores:
            option = "endpoint" if name == "s3" else "auth_url"
            raise SetupError(f"{name} is not configured: set [{name}] {option}")
    mover = Mover(store, archive, process="move-data")
    totals = MoveReport()
    for batch in _list_held(store) if source == "database" else _list_stored(store, source):
        _move(mover, batch, target, totals)
        if totals.error:
            break
        advance(len(batch))
    return totals


def rebuild(store: Store, archive: Archive, report: Report, advance: Advance) -> RebuildReport:
    """Rebuild the search index of every node from its newest inventory; report errors, and each node that is done."""
    totals = RebuildReport()
    for node in _nodes(store):
        totals.nodes += 1
        advance(1)
        try:
            totals.changed += _rebuild(store, archive, node)
        except (NotFoundError, StaleError):
            continue  # deleted or inspected meanwhile
        except ObjectStoreError as exc:
            totals.errors += 1
            report(f"{node.name or node.uuid}: {exc}")
    return totals


def _move(mover: Mover, batch: Sequence[Held | StoredObject], target: str, totals: MoveReport) -> None:
    if target == "database":
        for part in batch:
            try:
                back = mover.move_to_database(part) if isinstance(part, StoredObject) else False
                totals.moved, totals.skipped = totals.moved + int(back), totals.skipped + int(not back)
            except ObjectMissingError:
                totals.skipped += 1
            except ObjectStoreError as exc:
                totals.error = str(exc)
                return
        return
    carried: list[MoveResult] = []
    for job in mover.plan(batch, target):
        carried.append(mover.carry(job))
        if carried[-1].error and not carried[-1].lost:
            totals.error = carried[-1].error
            break
    moved = mover.record_moves(carried)
    totals.moved += moved
    totals.skipped += len(carried) - moved - bool(totals.error)


def _rebuild(store: Store, archive: Archive, node: Node) -> bool:
    stored = store.read(lambda tx: newest(tx, node, _PROCESSED))
    if stored is None:
        return False
    parts = archive.fetch(stored)
    inventory = json_safety.decode(parts["inventory"])
    plugin_data = json_safety.decode(parts["plugin_data"], max_containers=json_safety.MAX_DERIVED)
    learned = search_index.learn(inventory, plugin_data)
    if learned.digest == node.search_digest:
        return False

    def work(tx: Transaction) -> None:
        tx.nodes.update(msgspec.structs.replace(node, search_digest=learned.digest, hardware=learned.summary))
        tx.search_index.replace(node.uuid, learned.rows, had=True)

    store.write(work)
    return True


def _list_held(store: Store) -> Iterator[Sequence[Held]]:
    after = ("", "")

    def read(tx: Transaction) -> Sequence[Held]:
        return tx.data.held(_PARTS_PER_BATCH, after=after)

    while page := store.read(read):
        yield page
        after = (page[-1].inspection, page[-1].part)


def _list_stored(store: Store, backend: str) -> Iterator[Sequence[StoredObject]]:
    after = ""

    def read(tx: Transaction) -> Sequence[StoredObject]:
        return tx.objects.list("stored", _PARTS_PER_BATCH, backend=backend, after=after)

    while page := store.read(read):
        yield page
        after = page[-1].key


def _nodes(store: Store) -> Iterator[Node]:
    marker: str | None = None

    def read(tx: Transaction) -> Sequence[Node]:
        return tx.nodes.list(Query(limit=500, marker=marker))

    while page := store.read(read):
        yield from page
        marker = page[-1].uuid
