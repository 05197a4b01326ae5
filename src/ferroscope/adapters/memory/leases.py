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

    def acquire(self, name: str, holder: str, duration: float, *, data: str = "", source: str = "") -> Lease:
        present = self._rows.leases.get(name)
        if present is not None and present.holder is not None and present.expires_at > self._now:
            raise LeaseHeldError(self._seen(present))
        lease = Lease(
            name=name,
            holder=holder,
            epoch=(present.epoch if present else self._rows.lease_floor.get(0) or 0) + 1,
            term=self._identifier(),
            duration=duration,
            acquired_at=self._now,
            renewed_at=self._now,
            expires_at=self._now + duration,
            data=data,
            source=source or None,
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

    def list(self, prefix: str = "", *, brief: bool = False) -> Sequence[Lease]:
        found = [lease for lease in self._rows.leases.values() if lease.name.startswith(prefix)]
        seen = [self._seen(lease) for lease in sorted(found, key=lambda lease: lease.name)]
        return [msgspec.structs.replace(lease, data="") for lease in seen] if brief else seen

    def unused(self, seconds: float, limit: int) -> Sequence[Lease]:
        free = [lease for lease in self.list(brief=True) if lease.expires_at < self._now - seconds]
        return sorted(free, key=lambda lease: lease.expires_at)[:limit]

    def forget(self, lease: Lease) -> bool:
        present = self._rows.leases.get(lease.name)
        if present is None or present.epoch != lease.epoch or self._seen(present).held:
            return False
        self._rows.lease_floor.put(0, max(present.epoch, self._rows.lease_floor.get(0) or 0))
        self._rows.leases.drop(lease.name)
        return True

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
