"""Calls with an ``Idempotency-Key``: repeated, they get the answer of their first time and change nothing.

The key is the caller's own; two callers may use the same. It belongs to one request: method, path, query and body.
``X-Openstack-Request-Id`` is no such key: services send one value with many different calls.
Source: the IETF draft "The Idempotency-Key HTTP Header Field".
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from ferroscope.api.auth.identity import Identity
from ferroscope.api.errors import BadRequestError, StateConflictError
from ferroscope.api.http.context import Data
from ferroscope.api.http.middleware import SAFE
from ferroscope.api.http.route import Reply, Route
from ferroscope.contracts.errors import StoreUnavailableError
from ferroscope.contracts.receipts import Receipt, RepeatedCallError

_KEY: Final = "HTTP_IDEMPOTENCY_KEY"
_FORM: Final = re.compile(r"[\x21-\x7e]{1,255}")
# The token of a lease is stored nowhere.
_NOT_KEPT: Final = ("/v1/leases/",)
_LONGEST: Final = 256 * 1024

_encode = msgspec.json.Encoder(decimal_format="number").encode


def receipt_of(data: Data, route: Route, environ: Mapping[str, Any], identity: Identity, raw: bytes) -> Receipt | None:
    """Return the receipt of a call with a key; None without one. ``RepeatedCallError`` if the call was made before."""
    key = environ.get(_KEY)
    if key is None or route.ramdisk or route.method in SAFE:
        return None
    if not _FORM.fullmatch(key):
        raise BadRequestError("Idempotency-Key must be 1 to 255 printable ASCII characters without spaces.")
    ident = _digest(identity.user, str(identity.project_id), key)
    call = _digest(route.method, environ["PATH_INFO"], environ.get("QUERY_STRING", ""), raw.hex())
    found = data.store.read(lambda tx: tx.receipts.get(ident))
    if found is not None and found.call != call:
        raise StateConflictError("This Idempotency-Key was used for another request; use a new one for each request.")
    if found is not None and not found.void:
        raise RepeatedCallError(ident)
    return Receipt(ident, call, given=True, instead=found is not None)


def keep(data: Data, route: Route, receipt: Receipt | None, reply: Reply) -> None:
    """Keep the answer for whoever repeats the call; one without a body need not be kept."""
    if receipt is None or not receipt.written or reply.body is None or route.path.startswith(_NOT_KEPT):
        return
    body = reply.body if isinstance(reply.body, bytes) else _encode(reply.body)
    if len(body) <= _LONGEST:
        with contextlib.suppress(StoreUnavailableError, UnicodeDecodeError):
            text = body.decode()
            data.store.write(lambda tx: tx.receipts.answered(receipt.id, reply.status, text), durable=False)


def replay(data: Data, route: Route, ident: str) -> Reply:
    """Return the answer of a call that was made before."""
    found = data.store.read(lambda tx: tx.receipts.get(ident))
    if found is None or (found.reply is None and route.response is not None):
        raise StateConflictError("The request with this Idempotency-Key has taken effect before; read the object.")
    return Reply(found.status or route.status, None if found.reply is None else found.reply.encode())


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
