"""The reboot throttle: one power-on in a quantum of time, over all workers on all hosts.

Whoever holds the lease ``reboot-throttle`` sleeps the quantum *before* it powers on, so two
power-ons are a quantum apart whoever dies in between and whenever the lease expires. The intent
of the power-on is recorded under the lease's fence: a worker that stalled in its sleep and lost
the lease does not power on. A BMC knows no fence, so the command is sent only while the lease is
sure to outlast it. Source: the reboot throttle of the HA specification.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

from ferroscope.contracts.queue import Clock
from ferroscope.contracts.store import Fence, Store
from ferroscope.core.model import LeaseProfile
from ferroscope.leadership import Election, Leadership
from ferroscope.worker.context import TaskContext

LEASE: Final = "reboot-throttle"


class ThrottledError(Exception):
    """Somebody else's turn; ask again in ``after`` seconds."""

    def __init__(self, after: float) -> None:
        self.after = after
        super().__init__(f"another machine is being powered on; next try in {after:.1f} s")


class Turn(msgspec.Struct, frozen=True):
    """Somebody's turn: record the intent under ``fence``, and ``confirm`` just before the command."""

    fence: Fence
    confirm: Callable[[], None]


_UNTHROTTLED: Final = Turn(fence=lambda _tx: None, confirm=lambda: None)


class RebootThrottle:
    """``quantum`` in seconds; 0 disables it. ``command`` is how long a BMC may take for one command."""

    def __init__(
        self,
        quantum: float,
        *,
        holder: str,
        store: Store,
        clock: Clock,
        profile: LeaseProfile,
        command: float = 0.0,
    ) -> None:
        self._quantum = quantum
        self._command = command
        self._clock = clock
        # Two commands fit in: one that asks for the power state, one that changes it. A slow clock
        # is the further behind the longer the lease.
        ttl = quantum + profile.ttl + 2 * command
        longer = msgspec.structs.replace(profile, ttl=ttl, margin=profile.margin * ttl / profile.ttl)
        self._election = Election(LEASE, holder, store=store, clock=clock, profile=longer)

    @contextmanager
    def turn(self, context: TaskContext) -> Iterator[Turn]:
        """Wait for the quantum, then yield the turn.

        ``ThrottledError`` where it is somebody else's turn (the thread is better used elsewhere),
        ``StoppedError`` when the sleep was interrupted.
        """
        if not self._quantum:
            yield _UNTHROTTLED
            return
        leadership = self._election.campaign()
        if leadership is None:
            raise ThrottledError(self._remaining(context.store))
        try:
            context.pause(self._quantum)
            self._confirm(leadership)
            yield Turn(fence=leadership.fence, confirm=lambda: self._confirm(leadership))
        finally:
            leadership.resign()

    def _confirm(self, leadership: Leadership) -> None:
        """Raise ``ThrottledError`` unless the turn lasts until a command sent now has taken effect."""
        if not leadership.is_valid() or self._clock.monotonic() + self._command > leadership.trusted_until:
            raise ThrottledError(self._quantum)

    def _remaining(self, store: Store) -> float:
        leases = store.read(lambda tx: tx.leases.list(LEASE))
        return min(self._quantum, max((lease.remaining for lease in leases), default=0.0)) or self._quantum
