"""What all attempts of a worker use; one instance serves all its threads."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from ferroscope.config.options import Settings
from ferroscope.contracts.attached import Attached
from ferroscope.contracts.errors import BmcError, NotFoundError, StoreError
from ferroscope.contracts.images import Images, Unchecked
from ferroscope.contracts.queue import Clock, StopFlag
from ferroscope.contracts.telemetry import Tracer
from ferroscope.core.model import Document, Node
from ferroscope.core.reasons import Reason
from ferroscope.core.secrets import is_concealed, is_plain, replace_values
from ferroscope.db.store import Store
from ferroscope.db.transaction import Transaction
from ferroscope.secrets.references import SecretReader
from ferroscope.storage.reader import Archive
from ferroscope.worker.endings import Endings

T = TypeVar("T")

# Pause before a failed request is attempted again; for a BMC it doubles with each attempt.
RETRY_SECONDS: Final = 1.0
# From a power command to the first question whether it was obeyed; many BMCs show it at once.
POWER_POLL_SECONDS: Final = 0.05


class Services(msgspec.Struct, frozen=True):
    """``process`` names the process in timelines. ``claim_valid_for`` returns for how many seconds a claim is certainly
    still this member's that was confirmed at that time of the monotonic clock. ``secrets`` decrypts those of a node.
    ``endings``: which inspections are about to be ended. ``attached``: the attached Ironic, if there is one.
    ``tracer``: None if inspections are not traced. ``images`` checks what BMCs are to boot.
    ``power_poll_seconds``: from one question for the power state to the next, at first.
    """

    store: Store
    archive: Archive
    settings: Settings
    clock: Clock
    stop: StopFlag
    process: str
    endings: Endings
    claim_valid_for: Callable[[float], float] = lambda _confirmed_at: math.inf
    secrets: SecretReader = msgspec.field(default_factory=SecretReader)
    attached: Attached = msgspec.field(default_factory=Attached)
    tracer: Tracer | None = None
    images: Images = msgspec.field(default_factory=Unchecked)
    power_poll_seconds: float = POWER_POLL_SECONDS

    def with_plain_secrets(self, node: Node) -> Node:
        """Return the node with all secrets of ``driver_info`` in plain text; ``BmcError`` if one cannot be had.

        An attempt may take minutes. Meanwhile ``db rekey`` may have encrypted the stored secrets with another key, and
        the old one may be gone: then the ones that are stored now are those of the node.
        """
        try:
            return self.secrets.reveal(node)
        except BmcError as exc:
            if exc.reason is not Reason.ENCRYPTION_KEY_MISSING:
                raise
            try:
                stored = self.store.read(lambda tx: tx.nodes.get(node.uuid))
            except NotFoundError:
                raise exc from None
            if stored.driver_info == node.driver_info:
                raise
            if _without_secrets(stored.driver_info) != _without_secrets(node.driver_info):
                # The new secrets may be those of another BMC; the next attempt begins with all that is stored.
                message = f"driver_info was changed during the attempt: {exc}"
                raise BmcError(message, transient=True, reason=exc.reason) from None
        return self.secrets.reveal(msgspec.structs.replace(node, driver_info=stored.driver_info))

    def persist(self, work: Callable[[Transaction], T], *, durable: bool = True) -> T:
        """Write, however long the database is away; raise ``StoreError`` only if the process is stopping.

        It repeats ``work`` after an unknown outcome, too: under its claim, ``work`` sees what was committed before.
        """
        while True:
            try:
                return self.store.write(work, durable=durable)
            except StoreError:
                if self.stop.wait(RETRY_SECONDS):
                    raise


def _without_secrets(info: Document) -> Document:
    return replace_values(info, lambda key, value: is_concealed(key, value) or is_plain(key, value), lambda *_: "")
