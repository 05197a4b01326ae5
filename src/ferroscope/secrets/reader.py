"""Secrets of a node at the moment of use: a BMC call gets a copy of the node with them, and nothing else does."""

from __future__ import annotations

from typing import Any

import msgspec

from ferroscope.contracts.errors import BmcError, SecretKeyError
from ferroscope.contracts.secrets import SecretSourceError
from ferroscope.core.model import Document, Node
from ferroscope.core.reasons import Reason
from ferroscope.core.secrets import ENCRYPTED, Path, is_concealed, is_encrypted, is_reference, replaced
from ferroscope.secrets.keys import DecryptionError, KeyRing
from ferroscope.secrets.references import Resolver

_FIELD = "driver_info"


class SecretReader:
    """Thread-safe. ``resolver`` resolves references."""

    def __init__(self, keys: KeyRing | None = None, resolver: Resolver | None = None) -> None:
        self._keys = keys or KeyRing()
        self._resolver = resolver or Resolver({})

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
            if isinstance(value, str):
                return self._resolved("/".join((_FIELD, *path)), value)
            try:
                return self._keys.decrypt(value[ENCRYPTED], node.uuid, (_FIELD, *path))
            except (SecretKeyError, DecryptionError) as exc:
                name = "/".join((_FIELD, *path))
                raise BmcError(f"cannot decrypt {name}: {exc}", transient=False, reason=_reason(exc)) from None

        return replaced(node.driver_info, is_concealed, reveal)

    def _resolved(self, name: str, reference: str) -> str:
        try:
            return self._resolver.resolve(reference)
        except SecretSourceError as exc:
            message = f"cannot resolve {reference[:255]} in {name}: {exc}"
            raise BmcError(message, transient=exc.transient, reason=Reason.REFERENCE_UNRESOLVED) from None


def _holds_any(value: Any) -> bool:
    if is_encrypted(value) or is_reference(value):
        return True
    if isinstance(value, dict):
        return any(map(_holds_any, value.values()))
    return isinstance(value, list) and any(map(_holds_any, value))


def _reason(exc: Exception) -> Reason:
    return Reason.ENCRYPTION_KEY_MISSING if isinstance(exc, SecretKeyError) else Reason.DECRYPTION_FAILED
