"""What stands in front of a host's DHCP and TFTP service: it lets pass, or it does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ferroscope.core.boot_macs import SetChange


class PxeFilterError(Exception):
    """The filter could not be changed; the message says what failed, why, and what to do."""


class FilterBackend(Protocol):
    """One mechanism. All calls raise ``PxeFilterError`` and end by a deadline of their own.

    ``hold`` and ``close`` come from one thread and ``apply`` from another. A PXE filter that is closed
    lets nobody pass, whatever is in its sets. ``self_closing``: once it is not held any more, it
    closes by itself, whatever becomes of this process.
    """

    name: str
    self_closing: bool

    def install(self) -> None:
        """Put a closed filter with empty sets in place of whatever an earlier process left."""

    def apply(self, change: SetChange, *, fresh: bool, progress: Callable[[], object] = lambda: None) -> None:
        """Change the sets in one step; ``fresh``: whatever they held is replaced by ``change``.

        Who needs more than one step, and more than a moment for all of them, calls ``progress`` in between.
        """

    def hold(self, until: float) -> float:
        """Open the filter, or keep it open, for a short while that ends before ``until``.

        Both are times of the monotonic clock. Returns when it will be closed at the latest unless
        it is held again; a time that has passed means that it is closed.
        """

    def close(self) -> None:
        """Close it now; also put it in place again, closed and empty, where somebody else took it away."""

    def remove(self) -> None:
        """Leave the host as if it had never been there; the service behind is then open to all.

        What is left to do by hand for that is a warning in the log.
        """
