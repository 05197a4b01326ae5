"""The pxe-filter role: exactly one of the hosts that can boot a network's machines has its filter open."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ferroscope.core.boot_macs import SetChange


class PxeFilterError(Exception):
    """The filter could not be changed; the message says what failed, why, and how to fix it."""


class FilterBackend(Protocol):
    """Allows or denies machines access to a host's DHCP and TFTP service.

    All calls raise ``PxeFilterError`` and return within their own deadline.

    One thread calls ``hold`` and ``close``, another one ``apply``. A closed filter denies all machines, whatever its
    sets contain. ``self_closing``: it closes automatically if ``hold`` is no longer called, even if the process died.
    """

    name: str
    self_closing: bool

    def install(self) -> None:
        """Install a closed filter with empty sets; replace one that an earlier process left behind."""

    def apply(self, change: SetChange, *, fresh: bool, progress: Callable[[], object] = lambda: None) -> None:
        """Change the sets atomically; ``fresh``: replace their content by ``change``.

        A backend that needs several slow steps calls ``progress`` between them.
        """

    def hold(self, until: float) -> float:
        """Open the filter, or keep it open, for a short while that ends before ``until``.

        Returns the time at which it closes at the latest if ``hold`` is not called again; if that is in the past, the
        filter is closed. Both are times of the monotonic clock.
        """

    def close(self) -> None:
        """Close the filter now; if it was removed externally, install it again, closed and empty."""

    def remove(self) -> None:
        """Remove the filter from the host, which opens DHCP and TFTP to all machines.

        Steps that remain to be done manually are logged as a warning.
        """
