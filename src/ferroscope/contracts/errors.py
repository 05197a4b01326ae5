"""The errors that every adapter of the ports raises, so that no caller knows a database's own."""

from __future__ import annotations

from ferroscope.core.model import Lease
from ferroscope.core.reasons import Reason


class StoreUnavailableError(Exception):
    """The store is gone, locked or read-only for now; nothing was changed. Try again later."""


class ConflictError(Exception):
    """The write would break a uniqueness rule; ``field`` names it (``name``, ``uuid``, ``address``)."""

    def __init__(self, field: str, value: str) -> None:
        self.field = field
        self.value = value
        super().__init__(f"the {field} {value} is in use already")


class NotFoundError(Exception):
    """There is no such thing; ``kind`` and ``ident`` say what was looked for."""

    def __init__(self, kind: str, ident: str) -> None:
        self.kind = kind
        self.ident = ident
        super().__init__(f"{kind} {ident} could not be found")


class StaleError(Exception):
    """The node was changed by somebody else since it was read; read it again."""


class ClaimLostError(Exception):
    """The claim is not mine any more: another attempt may be running. Write nothing."""


class LeaseHeldError(Exception):
    """Somebody else holds the lease; ``lease`` says who, in which epoch and for how long."""

    def __init__(self, lease: Lease) -> None:
        self.lease = lease
        super().__init__(f"{lease.name} is held by {lease.holder} for another {lease.remaining:.1f} s")


class LeaseLostError(Exception):
    """The lease is not mine any more: a newer epoch may have been issued. Write nothing."""


class BmcError(Exception):
    """The BMC did not do what was asked. ``transient`` says whether asking again may help.

    ``reason`` is the code that operators see; by default one that follows from ``transient``.
    """

    def __init__(self, message: str, *, transient: bool, reason: Reason | None = None) -> None:
        self.transient = transient
        self.reason = reason or (Reason.BMC_UNREACHABLE if transient else Reason.BMC_REFUSED)
        super().__init__(message)
