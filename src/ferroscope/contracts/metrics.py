"""What is counted as it happens. Counting never fails, never blocks, and costs some microseconds."""

from __future__ import annotations

from typing import Final, Literal, Protocol

import msgspec

from ferroscope.core.model import Inspection, Node
from ferroscope.core.states import Event, Transition


class Moved(msgspec.Struct, frozen=True):
    """A transition, and what it made of the node; its inspection too, where that has begun or ended with it."""

    transition: Transition
    node: Node
    inspection: Inspection | None = None


class Meter(Protocol):
    """Told by whoever does the thing, after it was done; durations are in seconds."""

    def moved(self, moved: Moved) -> None:
        """A node's transition was committed."""

    def carried_out(self, event: Event, outcome: str, seconds: float) -> None:
        """A worker has carried out one attempt of a request; ``outcome`` is in lower case, ``lost`` among them."""

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """A call of the API was answered; ``route`` is the template of its path."""

    def db_error(self, kind: Literal["busy", "unavailable"]) -> None:
        """A transaction was in somebody's way and is tried again, or was given up."""

    def renewal_failed(self, lease: str) -> None:
        """A lease was not renewed when it should have been."""

    def pxe_filter(self, network: str, *, is_open: bool, allowed: int, denied: int) -> None:
        """The state of this host's PXE filter, and how many MACs its sets hold."""

    def pxe_filter_applied(self, seconds: float) -> None:
        """A change of the sets was applied."""

    def discovered(self, outcome: Literal["discovered", "limited", "rejected"]) -> None:
        """A machine that no node fits called, and became one or did not."""


class Silent:
    """A ``Meter`` that counts nothing."""

    def moved(self, moved: Moved) -> None: ...

    def carried_out(self, event: Event, outcome: str, seconds: float) -> None: ...

    def answered(self, method: str, route: str, status: int, seconds: float) -> None: ...

    def db_error(self, kind: Literal["busy", "unavailable"]) -> None: ...

    def renewal_failed(self, lease: str) -> None: ...

    def pxe_filter(self, network: str, *, is_open: bool, allowed: int, denied: int) -> None: ...

    def pxe_filter_applied(self, seconds: float) -> None: ...

    def discovered(self, outcome: Literal["discovered", "limited", "rejected"]) -> None: ...


SILENT: Final[Meter] = Silent()
