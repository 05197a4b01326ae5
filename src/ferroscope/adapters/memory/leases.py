"""Leases in memory; ``now`` is the transaction's time and the store's only clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import msgspec

from ferroscope.adapters.memory.rows import Rows
from ferroscope.domain.lease import Lease
from ferroscope.domain.model import ClockStep
from ferroscope.domain.states import ACTIVE
from ferroscope.ports.errors import ConflictError, LeaseHeldError, LeaseLostError

T = TypeVar("T", bound=msgspec.Struct)

_LONGEST_RETRY: Final = 600.0  # seconds; no request is put off for as long


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


class MemoryClockSteps:
    """``ports.store.ClockSteps``; ``now`` is the transaction's time."""

    def __init__(self, rows: Rows, now: float) -> None:
        self._rows = rows
        self._now = now

    def list(self) -> Sequence[ClockStep]:
        return sorted(self._rows.clock_steps.values(), key=lambda step: step.id)

    def record(self, step: ClockStep, recent: float) -> None:
        if step.id in self._rows.clock_steps:
            raise ConflictError("id", str(step.id))
        self._rows.clock_steps.put(step.id, msgspec.structs.replace(step, at=self._now))
        for node in self._rows.nodes.values():
            if node.state in ACTIVE:
                self._rows.nodes.put(node.uuid, self._moved(node, "provision_updated_at", step.seconds, recent))
        for one in self._rows.inspections.values():
            for name in ("waiting_since", "clock_since"):
                if one.finished_at is None:
                    self._rows.inspections.put(one.uuid, self._moved(one, name, step.seconds, recent))
        self.shorten()

    def shorten(self) -> None:
        rows, now = self._rows, self._now
        for lease in rows.leases.values():
            until = min(lease.expires_at, now + lease.duration)
            rows.leases.put(lease.name, msgspec.structs.replace(lease, expires_at=until))
        for member in rows.members.values():
            until = min(member.expires_at, now + member.ttl)
            rows.members.put(member.id, msgspec.structs.replace(member, expires_at=until))
        for row in rows.requests.values():
            due_at = row.request.due_at if row.request.due_at <= now + _LONGEST_RETRY else now
            row = msgspec.structs.replace(row, request=msgspec.structs.replace(row.request, due_at=due_at))
            rows.requests.put(row.request.id, row)
        for one in rows.rejections.values():
            rows.rejections.put(one.address, msgspec.structs.replace(one, rejected_at=min(one.rejected_at, now)))

    def _moved(self, row: T, name: str, seconds: float, recent: float) -> T:
        value = getattr(row, name)
        if value is None or self._now - recent < value <= self._now:
            return row
        return msgspec.structs.replace(row, **{name: value + seconds})
