"""The reboot throttle: at most one power-on per quantum of time, over all workers on all hosts.

The holder of the lease ``reboot-throttle`` sleeps for the quantum *before* it powers on, so two power-ons are a quantum
apart whichever process dies in between and whenever the lease expires. The intent of the power-on is recorded under the
lease's fence: a worker that was frozen in its sleep and lost the lease does not power on. A BMC checks no fence, so the
command is sent only while the lease certainly outlasts it.
Source: the reboot throttle of the high-availability specification for ironic-inspector.
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
    """Another machine is being powered on; try again in ``after`` seconds."""

    def __init__(self, after: float) -> None:
        self.after = after
        super().__init__(f"another machine is being powered on; trying again in {after:.1f} s")


class Permit(msgspec.Struct, frozen=True):
    """Permission to power on: record the intent under ``fence``, and call ``confirm`` just before the command."""

    fence: Fence
    confirm: Callable[[], None]


_UNTHROTTLED: Final = Permit(fence=lambda _tx: None, confirm=lambda: None)


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
        # Long enough for two commands: one asks for the power state, one changes it. The margin grows with the
        # lease, because a slow clock falls the further behind the longer it runs.
        ttl = quantum + profile.ttl + 2 * command
        longer = msgspec.structs.replace(profile, ttl=ttl, margin=profile.margin * ttl / profile.ttl)
        self._election = Election(LEASE, holder, store=store, clock=clock, profile=longer)

    @contextmanager
    def permit(self, context: TaskContext) -> Iterator[Permit]:
        """Wait for the quantum, then yield the permit.

        ``ThrottledError`` if another worker has it (this thread is better used elsewhere), ``StoppedError`` if the
        sleep was interrupted.
        """
        if not self._quantum:
            yield _UNTHROTTLED
            return
        leadership = self._election.campaign()
        if leadership is None:
            raise ThrottledError(self._remaining(context.services.store))
        try:
            context.attempt.pause(self._quantum)
            self._confirm(leadership)
            yield Permit(fence=leadership.fence, confirm=lambda: self._confirm(leadership))
        finally:
            leadership.resign()

    def _confirm(self, leadership: Leadership) -> None:
        """Raise ``ThrottledError`` unless the lease lasts until a command sent now has taken effect."""
        if not leadership.is_valid() or self._clock.monotonic() + self._command > leadership.trusted_until:
            raise ThrottledError(self._quantum)

    def _remaining(self, store: Store) -> float:
        leases = store.read(lambda tx: tx.leases.list(LEASE))
        return min(self._quantum, max((lease.remaining for lease in leases), default=0.0)) or self._quantum
