"""What a changing call of the API leaves in the transaction of its change: a receipt, and its audit event.

A receipt is there so that the call's outcome can be looked up. An answer to COMMIT may be lost. The store then looks
for the call's receipt over a new connection, before it says what became of the change. A caller that gives its call a
key (the header ``Idempotency-Key``) and repeats it finds its own effect instead of having it a second time.

With the audit event in the transaction of the change, there is neither one without the other. A call that changes
nothing has no transaction; its event, if any, is appended afterwards.
"""

from __future__ import annotations

import uuid
from typing import Final

import msgspec

from ferroscope.contracts.telemetry import TracedCall
from ferroscope.core.audit import AuditEvent
from ferroscope.core.model import LeaseProof

# Seconds for which a receipt is kept: of a call with a key, and of another one.
KEPT_SECONDS: Final = 86_400.0
_KEPT_BRIEFLY: Final = 600.0


class StoredReceipt(msgspec.Struct, frozen=True, kw_only=True):
    """A receipt as it is stored. ``call`` is a digest of the request.

    ``void``: the change was not committed and cannot be any more. ``reply`` is the body of the response, once known.
    """

    id: str
    call: str
    void: bool
    status: int
    reply: str | None
    expires_at: float


class Receipt:
    """The receipt of a call that is being carried out; ``written`` once its first change is committed.

    ``given``: the caller has given a key. ``instead``: a void receipt of the same key is there and is replaced.
    """

    def __init__(self, ident: str = "", call: str = "", *, given: bool = False, instead: bool = False) -> None:
        self.id = ident or uuid.uuid4().hex
        self.call = call
        self.given = given
        self.instead = instead
        self.written = False

    @property
    def kept(self) -> float:
        """Seconds for which it is kept."""
        return KEPT_SECONDS if self.given else _KEPT_BRIEFLY

    def next(self) -> str:
        """Return the ID for the next change: a call may make several."""
        return uuid.uuid4().hex if self.written else self.id


class RepeatedCallError(Exception):
    """The call with this ID has been committed before."""


class Audited:
    """The event of a call; ``recorded`` once it is committed. ``by``: who is shown in the node's timeline, or ""."""

    def __init__(self, event: AuditEvent) -> None:
        self.event = event
        self.recorded = False

    @property
    def by(self) -> str:
        return "" if self.event.method == "none" else self.event.user


class CallContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a call of the API demands of each of its transactions; see ``Store.on_behalf_of``.

    ``lease``: the store holds it first, so the change depends on it. ``audited`` and ``receipt`` are written with the
    change. ``traced`` is None if calls are not traced.
    """

    lease: LeaseProof | None = None
    audited: Audited | None = None
    receipt: Receipt | None = None
    traced: TracedCall | None = None


NO_CALL: Final = CallContext()
