"""Machines that became nodes by calling, and those that shall not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from ferroscope.core.lookup import Rejection


class Discoveries(Protocol):
    """Machines that became nodes by calling; whoever makes one asks ``made`` first."""

    def made(self, period: int) -> int:
        """Return how many were made in this period, counted from 0 in each; in the next one where that has begun.

        From here to the end of the transaction nobody else can make one. ``ConflictError`` where
        somebody did at this very moment: look again, in a new transaction.
        """

    def add(self, node: str, addresses: Iterable[str], source: str = "") -> None:
        """Count one, and let these MACs mean this node where no port has them; ``source`` is who called.

        ``ConflictError`` (field ``address``) where one of them means a discovered node already.
        """

    def unclaimed(self, source: str | None = None) -> int:
        """Return how many discovered nodes (of this source) are still in ``enroll``, approved or not."""

    def of_source(self, source: str) -> Sequence[str]:
        """Return the nodes that were discovered by calls from this source."""

    def macs(self, node: str) -> Sequence[str]:
        """Return the MACs with which the node was discovered."""


class Rejections(Protocol):
    """The MACs of machines that shall not be discovered again."""

    def add(self, node: str, addresses: Iterable[str], source: str = "") -> None:
        """Note these MACs as rejected now; ``source`` is from where the machine called."""

    def find(self, addresses: Sequence[str]) -> Sequence[Rejection]:
        """Return those of these MACs that were rejected, the newest first."""

    def list(self) -> Sequence[Rejection]:
        """Return all, the newest first."""

    def remove(self, address: str) -> bool:
        """Forget this one; whether there was one."""

    def forget(self, before: float) -> None:
        """Forget what was rejected before this time."""
