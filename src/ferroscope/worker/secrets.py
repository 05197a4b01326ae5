"""The secrets of the node of an attempt, whose copy of the node may be older than the last change of the keys."""

from __future__ import annotations

import msgspec

from ferroscope.contracts.errors import BmcError, NotFoundError
from ferroscope.core.model import Document, Node
from ferroscope.core.reasons import Reason
from ferroscope.core.secrets import is_concealed, is_plain, replaced
from ferroscope.worker.services import Services


def revealed(services: Services, node: Node) -> Node:
    """Return the node with all secrets of ``driver_info`` in plain text; ``BmcError`` if one cannot be had.

    An attempt may take minutes. Meanwhile ``db rekey`` may have encrypted the stored secrets with another key, and the
    old one may be gone: then the ones that are stored now are those of the node.
    """
    try:
        return services.secrets.revealed(node)
    except BmcError as exc:
        if exc.reason is not Reason.ENCRYPTION_KEY_MISSING:
            raise
        try:
            stored = services.store.read(lambda tx: tx.nodes.get(node.uuid))
        except NotFoundError:
            raise exc from None
        if stored.driver_info == node.driver_info:
            raise
        if _without_secrets(stored.driver_info) != _without_secrets(node.driver_info):
            # The new secrets may be those of another BMC; the next attempt begins with all that is stored.
            message = f"driver_info was changed during the attempt: {exc}"
            raise BmcError(message, transient=True, reason=exc.reason) from None
    return services.secrets.revealed(msgspec.structs.replace(node, driver_info=stored.driver_info))


def _without_secrets(info: Document) -> Document:
    return replaced(info, lambda key, value: is_concealed(key, value) or is_plain(key, value), lambda *_: "")
