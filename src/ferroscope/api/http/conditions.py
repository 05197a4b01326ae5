"""Headers on which the effect of a call depends: ``If-Lease``, and ``Idempotency-Key``.

``If-Lease: NAME/EPOCH/TOKEN``: a call changes something only while the caller leads. The store checks the lease first
in each transaction of the call, and holds it until the commit. So once a newer epoch has been issued, no call of the
former leader changes anything, however late it arrives. Source: "a precondition of its belief about who is the latest
master", the proposal "High Availability of Scheduling and Controller Components".

``Idempotency-Key: KEY``: a repeated call gets the first answer and changes nothing. The key is the caller's own; two
callers may use the same. It belongs to one request: method, path, query and body. ``X-Openstack-Request-Id`` is not
such a key: services send one value with many different calls. Source: the IETF draft "The Idempotency-Key HTTP Header
Field".
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from ferroscope.api.auth.identity import Identity
from ferroscope.api.errors import BadRequestError, PreconditionError, StateConflictError
from ferroscope.api.http.arrivals import SAFE
from ferroscope.api.http.context import DataAccess
from ferroscope.api.http.route import Reply, Route
from ferroscope.contracts.errors import StaleLeaseError, StoreError
from ferroscope.contracts.store import CallContext, Receipt, RepeatedCallError
from ferroscope.core.model import LeaseProof

IF_LEASE: Final = "If-Lease"
LEASE_PATTERN: Final = r"^[A-Za-z0-9._~/-]{1,200}/[1-9][0-9]{0,17}/[!-.0-~]{1,64}$"
# Its key in a WSGI environment.
LEASE: Final = "HTTP_IF_LEASE"
_LEASE: Final = re.compile(r"(.{1,200})/([1-9][0-9]{0,17})/([^/]{1,64})")
_VALID_LEASE: Final = re.compile(LEASE_PATTERN)


def lease_of(environ: Mapping[str, Any]) -> LeaseProof:
    """Return the lease on which all that the call writes depends."""
    if environ.get("REQUEST_METHOD") in SAFE:
        raise BadRequestError(f"{IF_LEASE} applies to requests that change something only; omit it here.")
    return _proof(environ[LEASE])


@contextmanager
def leading(data: DataAccess, lease: LeaseProof) -> Iterator[None]:
    """Raise ``PreconditionError`` (412) before and in this block if the caller does not hold the lease."""
    try:
        # This also refuses a call without any change, and one that changes something elsewhere.
        data.store.on_behalf_of(CallContext(lease=lease)).write(lambda _tx: None)
        yield
    except StaleLeaseError as exc:
        raise PreconditionError(_why(data, exc)) from exc


def _proof(header: str) -> LeaseProof:
    parsed = _LEASE.fullmatch(header)
    if parsed is None or _VALID_LEASE.match(header) is None:
        raise BadRequestError(
            f"Invalid header {IF_LEASE}: expected NAME/EPOCH/TOKEN, such as backup/nightly/7/6c6a1e0c-..."
        )
    name, epoch, token = parsed.groups()
    return LeaseProof(name=name, epoch=int(epoch), token=token)


def _why(data: DataAccess, stale: StaleLeaseError) -> str:
    now = data.store.read(lambda tx: tx.leases.get(stale.name))
    wrong = f"{IF_LEASE}: epoch {stale.epoch} of lease {stale.name} has ended"
    if now is None:
        return f"{IF_LEASE}: lease {stale.name} could not be found; nothing was changed."
    if now.epoch == stale.epoch and now.held:
        wrong = f"{IF_LEASE}: the token of lease {stale.name} is wrong"
    holder = f"held by {now.holder} in epoch {now.epoch}" if now.held else "the lease is free"
    return f"{wrong} ({holder}); nothing was changed. Stop acting as the leader, and acquire the lease again."


# The key of the header Idempotency-Key in a WSGI environment.
KEY: Final = "HTTP_IDEMPOTENCY_KEY"
_VALID_KEY: Final = re.compile(r"[\x21-\x7e]{1,255}")
# The token of a lease is stored nowhere.
_NOT_KEPT: Final = ("/v1/leases/",)
# A caller of a project stores one with each call, beside its quota; see ``db.requests``.
_MAX_REPLY_BYTES: Final = 16 * 1024

_encode = msgspec.json.Encoder(decimal_format="number").encode


def receipt_of(
    data: DataAccess, route: Route, environ: Mapping[str, Any], identity: Identity, raw: bytes
) -> Receipt | None:
    """Return the receipt of a call with a key; None if it needs none. ``RepeatedCallError``: it was made before."""
    key = environ[KEY]
    if route.ramdisk or route.method in SAFE:
        return None
    if not _VALID_KEY.fullmatch(key):
        raise BadRequestError("Idempotency-Key must be 1 to 255 printable ASCII characters without spaces.")
    ident = _digest(identity.user, str(identity.project_id), key)
    call = _digest(route.method, environ["PATH_INFO"], environ.get("QUERY_STRING", ""), raw.hex())
    receipt = data.store.read(lambda tx: tx.receipts.get(ident))
    if receipt is not None and receipt.call != call:
        raise StateConflictError("This Idempotency-Key was used for another request; use a new one for each request.")
    if receipt is not None and not receipt.void:
        raise RepeatedCallError(ident)
    return Receipt(ident, call, given=True, instead=receipt is not None)


def keep(data: DataAccess, route: Route, receipt: Receipt, reply: Reply) -> None:
    """Keep the answer for whoever repeats the call; one without a body need not be kept."""
    if not receipt.written or reply.body is None or route.path.startswith(_NOT_KEPT):
        return
    body = reply.body if isinstance(reply.body, bytes) else _encode(reply.body)
    if len(body) <= _MAX_REPLY_BYTES:
        with contextlib.suppress(StoreError, UnicodeDecodeError):
            text = body.decode()
            data.store.write(lambda tx: tx.receipts.answered(receipt.id, reply.status, text), durable=False)


def replay(data: DataAccess, route: Route, ident: str) -> Reply:
    """Return the answer of a call that was made before."""
    receipt = data.store.read(lambda tx: tx.receipts.get(ident))
    if receipt is None or (receipt.reply is None and route.response is not None):
        raise StateConflictError("The request with this Idempotency-Key has taken effect before; read the object.")
    return Reply(receipt.status or route.status, None if receipt.reply is None else receipt.reply.encode())


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
