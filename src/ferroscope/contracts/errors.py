"""The errors that adapters raise, so that callers do not depend on those of a database or driver."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ferroscope.core.model import Lease
from ferroscope_client.core.database_fault import DatabaseFailure, DatabaseFault
from ferroscope_client.core.reasons import Reason


class StoreError(Exception):
    """The store failed. Its two kinds differ in what is stored now: whoever writes decides about each of them."""

    def __init__(self, message: str, fault: DatabaseFault = DatabaseFault.UNAVAILABLE) -> None:
        self.failure = DatabaseFailure(fault, message)
        super().__init__(message)


class StoreUnavailableError(StoreError):
    """The store is unreachable, locked, full or read-only. Nothing was changed: retry later."""


class OutcomeUnknownError(StoreError):
    """The answer to COMMIT was lost. The change may have been stored: find out before you repeat it."""


class ConflictError(Exception):
    """The write would violate a unique constraint on ``field`` (``name``, ``uuid``, ``address``)."""

    def __init__(self, field: str, value: str) -> None:
        self.field = field
        self.value = value
        super().__init__(f'{field} "{value}" is already in use')


class NotFoundError(Exception):
    """The object does not exist; ``kind`` is its type, ``ident`` the requested UUID, name or address."""

    def __init__(self, kind: str, ident: str) -> None:
        self.kind = kind
        self.ident = ident
        super().__init__(f"{kind} {ident} could not be found")


class StaleError(Exception):
    """The node has been changed since it was read; read it again."""


class LostUpdateError(Exception):
    """A mistake in the program: a struct was written that its transaction had read before it wrote the same object.

    The struct that the first write returned is the one to change and to write.
    """

    def __init__(self, kind: str, ident: str, *, removed: bool) -> None:
        done = "removed" if removed else "written"
        super().__init__(f"{kind} {ident} was {done} by this transaction after the struct that is written now was read")


class ClaimLostError(Exception):
    """The claim is no longer held: another attempt may be running. Write nothing."""


class LeaseHeldError(Exception):
    """The lease is held by another holder; ``lease`` has its holder, epoch and remaining time."""

    def __init__(self, lease: Lease) -> None:
        self.lease = lease
        super().__init__(f"{lease.name} is held by {lease.holder} for another {lease.remaining:.1f} s")


class LeaseLostError(Exception):
    """The lease is no longer held: a newer epoch may have been issued. Write nothing."""


class StaleLeaseError(Exception):
    """The caller required this lease (``CallContext.lease``) and no longer holds it."""

    def __init__(self, name: str, epoch: int) -> None:
        self.name = name
        self.epoch = epoch
        super().__init__(f"epoch {epoch} of {name} has ended")


class SecretKeyError(Exception):
    """Keys that encrypted secrets of nodes, ``ids``, are not in ``[secrets] key_file``. Nothing was written."""

    def __init__(self, ids: Sequence[str], consequence: str) -> None:
        self.ids = tuple(ids)
        super().__init__(
            f"{consequence}: [secrets] key_file lacks the key {', '.join(self.ids)}; "
            "add it from the key file of the other hosts, or of a backup"
        )


# The BMC has answered, or was not asked at all: it has certainly not done what was asked.
_NOT_DONE: Final = frozenset(
    {
        Reason.BMC_REFUSED,
        Reason.BMC_CREDENTIALS,
        Reason.BMC_PRIVILEGES,
        Reason.BMC_CERTIFICATE,
        Reason.BMC_CERTIFICATE_EXPIRED,
        Reason.BMC_CERTIFICATE_HOST,
        Reason.BMC_CA_UNUSABLE,
        Reason.BMC_NOT_ALLOWED,
        Reason.BMC_UNCONFIRMED,
        Reason.BMC_NOT_REDFISH,
        Reason.BMC_SYSTEM_UNCLEAR,
        Reason.BMC_OTHER_MACHINE,
        Reason.DRIVER_INFO_INVALID,
        Reason.DRIVER_INCOMPLETE,
        Reason.POWER_OFF_DISABLED,
        Reason.REGISTRY_REFUSED,
    }
)


class BmcError(Exception):
    """A BMC call failed. ``transient``: whether a retry may succeed.

    ``reason`` is the code that operators see; its default depends on ``transient``. ``waits``: the machine is not to
    blame, so retries are not counted. ``not_done``: it is certain that the command of this call had no effect.

    For the driver itself: ``again`` tells whether it may try once more within the same call, by default if the error is
    transient; ``pause``: the BMC answers, and needs time: at least these seconds, for as long as the call may take.
    """

    def __init__(
        self,
        message: str,
        *,
        transient: bool,
        reason: Reason | None = None,
        waits: bool = False,
        again: bool | None = None,
        pause: float | None = None,
    ) -> None:
        self.transient = transient
        self.waits = waits
        self.reason = reason or (Reason.BMC_UNREACHABLE if transient else Reason.BMC_REFUSED)
        self.again = transient if again is None else again
        self.pause = pause
        self.not_done = self.reason in _NOT_DONE
        super().__init__(message)
