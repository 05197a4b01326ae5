"""Leases in memory; ``now`` is the transaction's time and the store's only clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from ferroscope.adapters.memory.rows import Rows
from ferroscope.domain.lease import Lease
from ferroscope.ports.errors import LeaseHeldError, LeaseLostError


class MemoryLeases:
    """``ports.store.Leases``. One writer at a time is the fence here, so ``hold`` only has to check."""

    def __init__(self, rows: Rows, now: float, identifier: Callable[[], str]) -> None:
        self._rows = rows
        self._now = now
        self._identifier = identifier
        self.released = False

    def acquire(self, name: str, holder: str, duration: float, *, data: str = "") -> Lease:
        present = self._rows.leases.get(name)
        if present is not None and present.holder is not None and present.expires_at > self._now:
            raise LeaseHeldError(self._seen(present))
        lease = Lease(
            name=name,
            holder=holder,
            epoch=present.epoch + 1 if present else 1,
            term=self._identifier(),
            duration=duration,
            acquired_at=self._now,
            renewed_at=self._now,
            expires_at=self._now + duration,
            data=data,
        )
        return self._put(lease)

    def renew(self, lease: Lease, duration: float, *, data: str | None = None) -> Lease:
        mine = self._mine(lease)
        renewed = msgspec.structs.replace(
            mine,
            duration=duration,
            renewed_at=self._now,
            expires_at=self._now + duration,
            data=mine.data if data is None else data,
        )
        return self._put(renewed)

    def release(self, lease: Lease) -> None:
        self._put(msgspec.structs.replace(self._mine(lease), holder=None, expires_at=self._now))
        self.released = True

    def hold(self, lease: Lease) -> None:
        self._put(self._mine(lease))

    def list(self, prefix: str = "") -> Sequence[Lease]:
        found = [lease for lease in self._rows.leases.values() if lease.name.startswith(prefix)]
        return [self._seen(lease) for lease in sorted(found, key=lambda lease: lease.name)]

    def free(self, holder: str) -> None:
        """Free whatever ``holder`` has."""
        for lease in self._rows.leases.values():
            if lease.holder == holder:
                self.release(lease)

    def _mine(self, lease: Lease) -> Lease:
        present = self._rows.leases.get(lease.name)
        if present is None or present.holder is None or (present.epoch, present.term) != (lease.epoch, lease.term):
            raise LeaseLostError(f"epoch {lease.epoch} of {lease.name} is over")
        return present

    def _put(self, lease: Lease) -> Lease:
        self._rows.leases.put(lease.name, lease)
        return self._seen(lease)

    def _seen(self, lease: Lease) -> Lease:
        remaining = max(0.0, lease.expires_at - self._now) if lease.holder else 0.0
        return msgspec.structs.replace(lease, remaining=remaining)
