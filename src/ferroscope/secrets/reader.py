"""Secrets of a node at the moment of use: a BMC call gets a copy of the node with them, and nothing else does."""

from __future__ import annotations

from typing import Any

import msgspec

from ferroscope.contracts.errors import BmcError, SecretKeyError
from ferroscope.core.model import Document, Node
from ferroscope.core.reasons import Reason
from ferroscope.core.secrets import ENCRYPTED, Path, is_encrypted, replaced
from ferroscope.secrets.keys import DecryptionError, KeyRing

_FIELD = "driver_info"


class SecretReader:
    """Thread-safe."""

    def __init__(self, keys: KeyRing | None = None) -> None:
        self._keys = keys or KeyRing()

    def revealed(self, node: Node) -> Node:
        """Return the node with all secrets of ``driver_info`` in plain text; ``BmcError`` (permanent) if one cannot be
        decrypted. The caller must not store it."""
        info = self.driver_info(node)
        return node if info is node.driver_info else msgspec.structs.replace(node, driver_info=info)

    def driver_info(self, node: Node) -> Document:
        """Return ``driver_info`` with all secrets in plain text; ``BmcError`` as above."""
        if not _holds_any(node.driver_info):
            return node.driver_info

        def reveal(path: Path, value: Any) -> Any:
            try:
                return self._keys.decrypt(value[ENCRYPTED], node.uuid, (_FIELD, *path))
            except (SecretKeyError, DecryptionError) as exc:
                name = "/".join((_FIELD, *path))
                raise BmcError(f"cannot decrypt {name}: {exc}", transient=False, reason=_reason(exc)) from None

        return replaced(node.driver_info, lambda _key, value: is_encrypted(value), reveal)


def _holds_any(value: Any) -> bool:
    if is_encrypted(value):
        return True
    if isinstance(value, dict):
        return any(_holds_any(item) for item in value.values() if isinstance(item, dict | list))
    return isinstance(value, list) and any(_holds_any(item) for item in value)


def _reason(exc: Exception) -> Reason:
    return Reason.ENCRYPTION_KEY_MISSING if isinstance(exc, SecretKeyError) else Reason.DECRYPTION_FAILED
