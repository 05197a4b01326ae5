"""A gate that guards nothing: for networks that something else guards, and for trying things out."""

from __future__ import annotations

from collections.abc import Callable

from ferroscope.core.boot_macs import SetChange


class NoopGate:
    """See ``contracts.pxe_filter.GateBackend``. It only takes part in the election: every host stays open to all."""

    name = "noop"
    self_closing = False

    def install(self) -> None: ...

    def apply(self, change: SetChange, *, fresh: bool, progress: Callable[[], object] = lambda: None) -> None: ...

    def hold(self, until: float) -> float:
        return until

    def close(self) -> None: ...

    def remove(self) -> None: ...
