"""Operations on all that is stored: move inspection data, rebuild the search index, renew the encryption of secrets.

All work in small steps or transactions, and can be interrupted and repeated at any time, while the service runs.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Final

import msgspec
import structlog

from ferroscope.config.errors import SetupError
from ferroscope.config.options import Settings
from ferroscope.contracts.data import Held, Part, StoredObject
from ferroscope.contracts.errors import NotFoundError, SecretKeyError, StaleError
from ferroscope.contracts.queue import Clock
from ferroscope.contracts.remote import ObjectMissingError, ObjectStoreError
from ferroscope.contracts.store import Query
from ferroscope.core.model import Node
from ferroscope.core.node import STORED
from ferroscope.core.secrets import ENCRYPTED, Document, Path, count_plain, encrypted, is_encrypted, replaced
from ferroscope.db.store import Store
from ferroscope.db.transaction import Transaction
from ferroscope.hardware import search_index
from ferroscope.runtime.backend import ensure_schema, open_backend, opened
from ferroscope.runtime.externals import build_archive
from ferroscope.runtime.system import SystemClock
from ferroscope.secrets.keys import DecryptionError, KeyRing, key_id
from ferroscope.storage.mover import Mover, MoveResult
from ferroscope.storage.reader import Archive, newest
from ferroscope.telemetry.finding import Finding

_BATCH: Final = 32
_PROCESSED: Final[tuple[Part, ...]] = ("inventory", "plugin_data")
Report = Callable[[str], None]
Advance = Callable[[int], None]


class Moved(msgspec.Struct):
    """How many parts were moved or skipped (changed meanwhile, or gone); ``error``: why it stopped early."""

    moved: int = 0
    skipped: int = 0
    error: str = ""


class Rebuilt(msgspec.Struct):
    """How many nodes were checked, and how many search indexes changed."""

    nodes: int = 0
    changed: int = 0
    errors: int = 0


def move(settings: Settings, source: str, target: str, advance: Advance) -> Moved:
    """Move all data of ended inspections; ``SetupError`` if a store is not configured.

    ``advance`` gets the number of parts that were moved or skipped since.
    """
    with _opened(settings) as (store, archive):
        for name in {source, target} - {"database"}:
            if name not in archive.object_stores:
                option = "endpoint" if name == "s3" else "auth_url"
                raise SetupError(f"{name} is not configured: set [{name}] {option}")
        mover = Mover(store, archive, process="move-data")
        done = Moved()
        for batch in _held(store) if source == "database" else _stored(store, source):
            _move(mover, batch, target, done)
            if done.error:
                break
            advance(len(batch))
        return done


def rebuild(settings: Settings, report: Report, advance: Advance) -> Rebuilt:
    """Rebuild the search index of every node from its newest inventory; report errors, and each node that is done."""
    done = Rebuilt()
    with _opened(settings) as (store, archive):
        for node in _nodes(store):
            done.nodes += 1
            advance(1)
            try:
                done.changed += _rebuild(store, archive, node)
            except (NotFoundError, StaleError):
                continue  # deleted or inspected meanwhile
            except ObjectStoreError as exc:
                done.errors += 1
                report(f"{node.name or node.uuid}: {exc}")
    return done


def _move(mover: Mover, batch: Sequence[Held | StoredObject], target: str, done: Moved) -> None:
    if target == "database":
        for one in batch:
            try:
                back = mover.move_to_database(one) if isinstance(one, StoredObject) else False
                done.moved, done.skipped = done.moved + int(back), done.skipped + int(not back)
            except ObjectMissingError:
                done.skipped += 1
            except ObjectStoreError as exc:
                done.error = str(exc)
                return
        return
    carried: list[MoveResult] = []
    for job in mover.plan(batch, target):
        carried.append(mover.carry(job))
        if carried[-1].error and not carried[-1].lost:
            done.error = carried[-1].error
            break
    moved = mover.record_moves(carried)
    done.moved += moved
    done.skipped += len(carried) - moved - bool(done.error)


def _rebuild(store: Store, archive: Archive, node: Node) -> bool:
    found = store.read(lambda tx: newest(tx, node, _PROCESSED))
    if found is None:
        return False
    parts = archive.fetch(found)
    learned = search_index.learn(msgspec.json.decode(parts["inventory"]), msgspec.json.decode(parts["plugin_data"]))
    if learned.digest == node.search_digest:
        return False

    def work(tx: Transaction) -> None:
        tx.nodes.update(msgspec.structs.replace(node, search_digest=learned.digest, hardware=learned.summary))
        tx.search_index.replace(node.uuid, learned.rows, had=True)

    store.write(work)
    return True


def _held(store: Store) -> Iterator[Sequence[Held]]:
    after = ("", "")

    def read(tx: Transaction) -> Sequence[Held]:
        return tx.data.held(_BATCH, after=after)

    while page := store.read(read):
        yield page
        after = (page[-1].inspection, page[-1].part)


def _stored(store: Store, backend: str) -> Iterator[Sequence[StoredObject]]:
    after = ""

    def read(tx: Transaction) -> Sequence[StoredObject]:
        return tx.objects.list("stored", _BATCH, backend=backend, after=after)

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


@contextmanager
def _opened(settings: Settings) -> Iterator[tuple[Store, Archive]]:
    with opened(settings) as backend:
        yield backend.store, build_archive(settings, backend, threading.Event())


_BATCH_SECRETS = 25
_PAGE = 500
_CHECK_INTERVAL = 15.0
_FIELDS = tuple(field.name for field in STORED if field.encrypted)

_log = structlog.get_logger(__name__)


class Rekeyed(msgspec.Struct):
    """How many nodes were checked and changed, and how many have secrets that cannot be decrypted."""

    nodes: int = 0
    changed: int = 0
    failed: int = 0


class Census(msgspec.Struct):
    """How many secrets of nodes are in plain text, and how many are encrypted with each key, by its ID."""

    plain: int = 0
    by_key: dict[str, int] = {}


def rekey(settings: Settings, report: Report, advance: Advance, lost: Iterable[str] = ()) -> Rekeyed:
    """Encrypt the secrets of all nodes with the first key, without the keys that are ``lost``.

    ``SetupError``: there is no key file. ``SecretKeyError``: it lacks a key that is in use.
    """
    if not settings.secrets.key_file:
        raise SetupError("[secrets] key_file is not set", "to create one, run: ferroscope secret generate-key FILE")
    ensure_schema(settings, upgrade=False)
    backend = open_backend(settings, clock=SystemClock(), stop=threading.Event(), listen=False)
    done = Rekeyed()
    with closing(backend):
        store, keys = backend.store, backend.keys
        store.write(lambda tx: tx.secret_keys.forget(lost))
        keys.check(store.read(lambda tx: tx.secret_keys.used()))
        for batch in _batches(store, lambda node: _outdated(node, keys)):
            _rekey(store, keys, batch, done, report)
            advance(len(batch))
        if not done.failed:
            store.write(lambda tx: _forget_unused(tx, keys))
        done.nodes = sum(len(page) for page in _pages(store))
    return done


def census(store: Store) -> Census:
    """Count the secrets of all nodes by how they are stored."""
    found = Census()
    for node in (node for page in _pages(store) for node in page):
        for document in _documents(node).values():
            found.plain += count_plain(document)
            for text in encrypted(document):
                found.by_key[key_id(text)] = found.by_key.get(key_id(text), 0) + 1
    return found


def missing_keys(store: Store, keys: KeyRing) -> Finding | None:
    """Return the finding if keys in use are not in this process's key file."""
    missing = keys.missing(store.read(lambda tx: tx.secret_keys.used()))
    if not missing:
        return None
    summary = f"[secrets] key_file lacks the key {', '.join(missing)}, with which secrets of nodes are encrypted"
    advice = "add it from the key file of the other hosts, or of a backup; until then, BMC calls of these nodes fail"
    return Finding("encryption-key-missing", "wrong", summary, advice)


class KeyCheck:
    """Calls ``missing_keys`` every ``_CHECK_INTERVAL`` seconds at most; logs what is found when it changes."""

    def __init__(self, store: Store, keys: KeyRing, clock: Clock) -> None:
        self._store, self._keys, self._clock = store, keys, clock
        self._due = -math.inf
        self._found: Finding | None = None

    def __call__(self) -> Finding | None:
        now = self._clock.monotonic()
        if now >= self._due:
            self._due = now + _CHECK_INTERVAL
            found = missing_keys(self._store, self._keys)
            if found is not None and found != self._found:
                _log.error(found.summary, advice=found.advice)
            self._found = found
        return self._found


def _rekey(store: Store, keys: KeyRing, uuids: Sequence[str], done: Rekeyed, report: Report) -> None:
    failures: dict[str, str] = {}

    def work(tx: Transaction) -> int:
        failures.clear()
        return sum(_rekey_node(tx, uuid, keys, failures) for uuid in uuids)

    done.changed += store.write(work)
    done.failed += len(failures)
    for name, why in failures.items():
        report(f"{name}: {why}")


def _rekey_node(tx: Transaction, uuid: str, keys: KeyRing, failures: dict[str, str]) -> bool:
    try:
        node = tx.nodes.get(uuid, lock=True)
        decrypted = {name: _decrypted(node, name, document, keys) for name, document in _documents(node).items()}
    except NotFoundError:  # deleted meanwhile
        return False
    except (SecretKeyError, DecryptionError) as exc:
        failures[node.name or uuid] = str(exc)
        return False
    if not _outdated(node, keys):
        return False
    tx.nodes.update(msgspec.structs.replace(node, **decrypted))
    return True


def _decrypted(node: Node, field: str, document: Document, keys: KeyRing) -> Document:
    def decrypt(path: Path, value: Document) -> object:
        return keys.decrypt(value[ENCRYPTED], node.uuid, (field, *path))

    return replaced(document, lambda _key, value: is_encrypted(value), decrypt)


def _outdated(node: Node, keys: KeyRing) -> bool:
    """Whether a secret of the node is not stored as the first line of the key file says."""
    active = keys.active
    documents = _documents(node).values()
    used = {key_id(text) for document in documents for text in encrypted(document)}
    if active is None:
        return bool(used)
    return bool(used - {active.id}) or any(count_plain(document) for document in documents)


def _forget_unused(tx: Transaction, keys: KeyRing) -> None:
    active = keys.active
    tx.secret_keys.forget(ident for ident in tx.secret_keys.used() if active is None or ident != active.id)


def _documents(node: Node) -> dict[str, Document]:
    return {name: getattr(node, name) for name in _FIELDS}


def _batches(store: Store, wanted: Callable[[Node], bool]) -> Iterator[Sequence[str]]:
    for page in _pages(store):
        uuids = sorted(node.uuid for node in page if wanted(node))
        for start in range(0, len(uuids), _BATCH_SECRETS):
            yield uuids[start : start + _BATCH_SECRETS]


def _pages(store: Store) -> Iterator[Sequence[Node]]:
    marker: str | None = None

    def read(tx: Transaction) -> Sequence[Node]:
        return tx.nodes.list(Query(limit=_PAGE, marker=marker))

    while page := store.read(read):
        yield page
        marker = page[-1].uuid


def findings(store: Store, keys: KeyRing) -> Iterable[Finding]:
    """Yield what ``ferroscope doctor`` reports about secrets of nodes."""
    if missing := missing_keys(store, keys):
        yield missing
    found = census(store)
    total = found.plain + sum(found.by_key.values())
    if not keys.keys:
        if found.plain:
            summary = f"{found.plain} secrets of nodes, such as BMC passwords, are stored in plain text"
            advice = "to encrypt them, see: ferroscope docs encrypt-bmc-passwords"
            yield Finding("secrets-plain", "note", summary, advice)
    elif keys.active is None:
        summary = "the first line of [secrets] key_file is 'identity': new secrets are stored in plain text"
        yield Finding("secrets-plain", "note", summary, "unless that is intended, move a key to the first line")
    elif rest := total - found.by_key.get(keys.active.id, 0):
        summary = f"{rest} of {total} secrets of nodes are not encrypted with the first key of [secrets] key_file"
        yield Finding("secrets-plain", "note", summary, "run: ferroscope db rekey")
    else:
        yield Finding("secrets", "ok", f"all {total} secrets of nodes are encrypted with the key {keys.active.id}")
