"""Several mechanisms as one gate: open only where all of them are, closed as soon as one of them is."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ferroscope.contracts.pxe_filter import GateBackend, GateError
from ferroscope.core.boot_macs import SetChange


class SeveralGates:
    """See ``contracts.pxe_filter.GateBackend``; the first in the list is the first to close."""

    def __init__(self, gates: Sequence[GateBackend]) -> None:
        self._gates = gates
        self.name = ", ".join(gate.name for gate in gates)
        # One that closes by itself keeps machines away from whatever stands behind it.
        self.self_closing = any(gate.self_closing for gate in gates)

    def install(self) -> None:
        self._each(lambda gate: gate.install())

    def apply(self, change: SetChange, *, fresh: bool, progress: Callable[[], object] = lambda: None) -> None:
        for gate in self._gates:
            gate.apply(change, fresh=fresh, progress=progress)
            progress()

    def hold(self, until: float) -> float:
        """From the last to the first: the one in front opens when all behind it have."""
        return min(gate.hold(until) for gate in reversed(self._gates))

    def close(self) -> None:
        self._each(lambda gate: gate.close())

    def remove(self) -> None:
        self._each(lambda gate: gate.remove())

    def _each(self, do: Callable[[GateBackend], None]) -> None:
        """Do it to all, whatever fails; then raise what failed first."""
        failed: list[GateError] = []
        for gate in self._gates:
            try:
                do(gate)
            except GateError as exc:
                failed.append(exc)
        if failed:
            raise failed[0]
