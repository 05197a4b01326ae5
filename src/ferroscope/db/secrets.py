"""Encryption of a node's secrets when its row is written, and the keys in use, in SQL.

Rows that are read stay encrypted: only ``secrets.references`` decrypts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from sqlalchemy import bindparam, delete, select

from ferroscope.core.model import Node
from ferroscope.core.secrets import ENCRYPTED, Path, is_plain, replace_values
from ferroscope.db import schema
from ferroscope.db.mapping import upsert
from ferroscope.db.session import Repository, Session
from ferroscope_client.core.node import STORED, Document

FIELDS: Final = tuple(field.name for field in STORED if field.encrypted)
_k = schema.secret_keys.c
_USED = select(_k.id).order_by(_k.id)
_FORGET = delete(schema.secret_keys).where(_k.id == bindparam("_id"))


class SecretKeys(Repository):
    """The IDs of the keys that have encrypted secrets of nodes, recorded by the first write with each key."""

    def used(self) -> Sequence[str]:
        return list(self._tx.run(_USED).scalars())

    def forget(self, idents: Iterable[str]) -> None:
        """Remove keys with which nothing is encrypted any more."""
        for ident in idents:
            self._tx.ask(_FORGET, {"_id": ident})


def encrypted(tx: Session, node: Node, unchanged: Iterable[str]) -> dict[str, Document]:
    """Return the documents of ``node`` with secrets in plain text, with these encrypted.

    Those that are ``unchanged`` may be in plain text from before there was a key; without one, they are left alone.
    ``SecretKeyError``: the key file lacks a key that is in use, so it may be the wrong one.
    """
    documents: dict[str, Document] = {}
    for field in FIELDS:
        document: Document = getattr(node, field)
        if document and (field not in unchanged or tx.keys.active is not None):
            documents |= _encrypt_changed(tx, node.uuid, field, document)
    if documents:
        keys, used = tx.keys, set(SecretKeys(tx).used())
        keys.check(used)
        if keys.active is None:
            return {}
        if keys.active.id not in used:
            tx.ask(upsert(tx.dialect.name, schema.secret_keys), {"id": keys.active.id, "at": tx.now})
    return documents


def _encrypt_changed(tx: Session, uuid: str, field: str, document: Document) -> dict[str, Document]:
    active, plain = tx.keys.active, False

    def encrypt(path: Path, value: Any) -> Any:
        nonlocal plain
        plain = True
        return value if active is None else {ENCRYPTED: tx.keys.encrypt(value, uuid, (field, *path))}

    result = replace_values(document, is_plain, encrypt)
    return {field: result} if plain else {}
