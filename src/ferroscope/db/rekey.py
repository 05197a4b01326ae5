"""Renews the encryption of the secrets of all nodes, and counts how they are stored.

It works in small transactions, and can be interrupted and repeated at any time, while the service runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import msgspec

from ferroscope.contracts.errors import NotFoundError, SecretKeyError
from ferroscope.contracts.store import Query
from ferroscope.core.model import Node
from ferroscope.core.secrets import ENCRYPTED, Path, count_plain, encrypted_values, is_encrypted, replace_values
from ferroscope.db.store import Store
from ferroscope.db.transaction import Transaction
from ferroscope.secrets.keys import DecryptionError, KeyRing, key_id
from ferroscope_client.core.node import STORED, Document

Report = Callable[[str], None]
Advance = Callable[[int], None]

_BATCH_SIZE: Final = 25
_PAGE_SIZE: Final = 500
_FIELDS: Final = tuple(field.name for field in STORED if field.encrypted)


class Rekeyed(msgspec.Struct):
    """How many nodes were checked and changed, and how many have secrets that cannot be decrypted."""

    nodes: int = 0
    changed: int = 0
    failed: int = 0


class SecretCensus(msgspec.Struct):
    """How many secrets of nodes are in plain text, and how many are encrypted with each key, by its ID."""

    plain: int = 0
    by_key: dict[str, int] = {}


def rekey(store: Store, keys: KeyRing, report: Report, advance: Advance, lost: Iterable[str] = ()) -> Rekeyed:
    """Encrypt the secrets of all nodes with the first key, without the keys that are ``lost``.

    ``SecretKeyError``: the key file lacks a key that is in use.
    """
    done = Rekeyed()
    store.write(lambda tx: tx.secret_keys.forget(lost))
    keys.check(store.read(lambda tx: tx.secret_keys.used()))
    for batch in _batches(store, lambda node: _is_outdated(node, keys)):
        _rekey(store, keys, batch, done, report)
        advance(len(batch))
    if not done.failed:
        store.write(lambda tx: _forget_unused(tx, keys))
    done.nodes = sum(len(page) for page in _pages(store))
    return done


def census(store: Store) -> SecretCensus:
    """Count the secrets of all nodes by how they are stored."""
    census = SecretCensus()
    for node in (node for page in _pages(store) for node in page):
        for document in _documents(node).values():
            census.plain += count_plain(document)
            for text in encrypted_values(document):
                census.by_key[key_id(text)] = census.by_key.get(key_id(text), 0) + 1
    return census


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
        decrypted = {name: _decrypt(node, name, document, keys) for name, document in _documents(node).items()}
    except NotFoundError:  # deleted meanwhile
        return False
    except (SecretKeyError, DecryptionError) as exc:
        failures[node.name or uuid] = str(exc)
        return False
    if not _is_outdated(node, keys):
        return False
    tx.nodes.update(msgspec.structs.replace(node, **decrypted))
    return True


def _decrypt(node: Node, field: str, document: Document, keys: KeyRing) -> Document:
    def decrypt(path: Path, value: Document) -> object:
        return keys.decrypt(value[ENCRYPTED], node.uuid, (field, *path))

    return replace_values(document, lambda _key, value: is_encrypted(value), decrypt)


def _is_outdated(node: Node, keys: KeyRing) -> bool:
    """Whether a secret of the node is not stored as the first line of the key file says."""
    active = keys.active
    documents = _documents(node).values()
    used = {key_id(text) for document in documents for text in encrypted_values(document)}
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
        for start in range(0, len(uuids), _BATCH_SIZE):
            yield uuids[start : start + _BATCH_SIZE]


def _pages(store: Store) -> Iterator[Sequence[Node]]:
    marker: str | None = None

    def read(tx: Transaction) -> Sequence[Node]:
        return tx.nodes.list(Query(limit=_PAGE_SIZE, marker=marker))

    while page := store.read(read):
        yield page
        marker = page[-1].uuid
