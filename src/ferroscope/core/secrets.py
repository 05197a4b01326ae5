"""Secrets within documents, such as ``driver_info``: which are stored in plain text, encrypted, or by reference. Pure.

A secret is the value of a field with a telling name (``values.is_secret``), at any depth. An encrypted secret is
stored as an object, not as a text. A process of a release without encryption then rejects the field as "not a string",
instead of sending ciphertext to a BMC as a password.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from ferroscope_client.core.bmc_place import is_place
from ferroscope_client.core.node import Document as Document
from ferroscope_client.core.node import Node
from ferroscope_client.core.passwords import REFERENCE, is_reference
from ferroscope_client.core.values import is_secret

# The position of a value: the document's field and the keys that lead to the value.
Path = tuple[str, ...]

# The only key of an encrypted value. It is a secret's name, so releases without encryption mask the value too.
ENCRYPTED: Final = "encrypted_secret"
# Stands for a secret that the API does not decrypt, while a driver validates ``driver_info``: a valid password and key.
STAND_IN: Final = "00000000"


def is_encrypted(value: Any) -> bool:
    """Whether this is the stored form of an encrypted value."""
    return isinstance(value, dict) and len(value) == 1 and isinstance(value.get(ENCRYPTED), str)


def holds_concealed(value: Any) -> bool:
    """Whether an encrypted value or a reference is in it, at any depth."""
    if isinstance(value, str):
        return value.startswith(REFERENCE)
    if isinstance(value, dict):
        return is_encrypted(value) or any(map(holds_concealed, value.values()))
    return isinstance(value, list) and any(map(holds_concealed, value))


def is_concealed(key: str, value: Any) -> bool:
    """Whether a driver gets another value: it is encrypted, or a reference. A BMC's location cannot be a reference."""
    if isinstance(value, str):
        return value.startswith(REFERENCE) and not is_place(key)
    return isinstance(value, dict) and is_encrypted(value)


def replace_values(document: Document, chosen: Callable[[str, Any], bool], new: Callable[[Path, Any], Any]) -> Document:
    """Return the document with each value for which ``chosen(key, value)`` replaced by ``new(path, value)``."""
    return {key: _replace_value(key, value, (key,), chosen, new) for key, value in document.items()}


def _replace_value(
    key: str, value: Any, path: Path, chosen: Callable[[str, Any], bool], new: Callable[[Path, Any], Any]
) -> Any:
    if chosen(key, value):
        return new(path, value)
    if isinstance(value, dict):
        return {name: _replace_value(name, item, (*path, name), chosen, new) for name, item in value.items()}
    if isinstance(value, list):
        return [_replace_value("", item, (*path, str(number)), chosen, new) for number, item in enumerate(value)]
    return value


def is_plain(key: str, value: Any) -> bool:
    """Whether this is a secret in plain text."""
    return bool(value) and is_secret(key) and key != ENCRYPTED and not is_encrypted(value) and not is_reference(value)


def count_plain(document: Document) -> int:
    """Return the number of secrets in plain text."""
    paths: list[Path] = []
    replace_values(document, is_plain, lambda path, _value: paths.append(path))
    return len(paths)


def encrypted_values(document: Document) -> Iterator[str]:
    """Yield the ciphertext of each encrypted value."""
    ciphertexts: list[str] = []
    replace_values(
        document, lambda _key, value: is_encrypted(value), lambda _path, value: ciphertexts.append(value[ENCRYPTED])
    )
    yield from ciphertexts


def references(document: Document) -> set[str]:
    """Return the references in the document, at any depth."""
    names: set[str] = set()
    replace_values(document, lambda _key, value: is_reference(value), lambda _path, value: names.add(value))
    return names


def for_validation(node: Node) -> Node:
    """Return the node with ``STAND_IN`` for encrypted secrets and references: only workers decrypt and resolve them."""
    if not holds_concealed(node.driver_info):
        return node
    info = replace_values(node.driver_info, is_concealed, lambda *_: STAND_IN)
    return msgspec.structs.replace(node, driver_info=info)
