"""What an attempt has to tell, until a transaction writes it: with the next intent, or with the results."""

from __future__ import annotations

import msgspec

from ferroscope.contracts.queue import Clock
from ferroscope.core.model import Document, Entry, Node, Request, Severity
from ferroscope.core.states import COMMANDS
from ferroscope.db.transaction import Transaction


class Journal:
    """Timeline entries of an attempt, and what becomes known on its way.

    ``entries`` has the time of the monotonic clock at which each was noted. In the database each gets the
    transaction's time minus its age when ``begin_writing`` was called, so that a slow transaction moves nothing.

    Written along with them: ``bmc_addresses`` (None: unchanged), ``secret_delivery`` (how the machine gets its secret;
    None: unchanged) and ``forgotten`` (a key of the node's internal data to delete; None: none).
    """

    def __init__(self, clock: Clock, process: str, node: Node, request: Request) -> None:
        self.entries: list[tuple[float, Entry]] = []
        self.bmc_addresses: frozenset[str] | None = None
        self.secret_delivery: str | None = None
        self.forgotten: str | None = None
        self._clock = clock
        self._process = process
        self._node = node.uuid
        self._inspection = node.inspection
        self._is_command = request.event in COMMANDS  # which belongs to no inspection
        self._began_at: float | None = None

    def note(
        self,
        name: str,
        message: str,
        *,
        severity: Severity = Severity.INFO,
        reason: str | None = None,
        detail: Document | None = None,
    ) -> None:
        """Add a step to the timeline."""
        entry = Entry(
            node=self._node,
            inspection=None if self._is_command else self._inspection,
            step=name,
            message=message,
            process=self._process,
            severity=severity,
            reason=reason,
            detail=detail or {},
        )
        self.entries.append((self._clock.monotonic(), entry))

    def begin_writing(self) -> None:
        """Take now as the time at which the following transaction begins, however often it is repeated."""
        self._began_at = self._clock.monotonic()

    def write(self, tx: Transaction) -> None:
        """Write what has not been written yet."""
        if self.secret_delivery is not None and self._inspection is not None:
            tx.inspections.update(self._inspection, secret_delivery=self.secret_delivery)
        if self.forgotten is not None:
            node = tx.nodes.get(self._node, lock=True)
            internal = {key: value for key, value in node.internal.items() if key != self.forgotten}
            tx.nodes.update(msgspec.structs.replace(node, internal=internal))
        if self.bmc_addresses is not None:
            tx.addresses.set_bmc(self._node, self.bmc_addresses)
        began = self._began_at if self._began_at is not None else self._clock.monotonic()
        tx.journal.append(
            msgspec.structs.replace(entry, at=tx.now - max(0.0, began - noted)) for noted, entry in self.entries
        )

    def clear(self) -> None:
        """Forget what has been written."""
        self.entries, self._began_at = [], None
        self.bmc_addresses = self.secret_delivery = self.forgotten = None
