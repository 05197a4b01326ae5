"""Which MACs may boot: the store's side of the PXE gate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ferroscope.core.boot_macs import KnownMac, MacChange


class Macs(Protocol):
    """Which MACs may boot, and what was changed about that: what a PXE gate needs of nodes and ports.

    Whatever adds, moves or removes a port, or removes a node, notes the MACs by itself; who changes
    a node's state calls ``changed``. Both tell the channels ``allow`` and ``deny``.
    """

    def changed(self, node: str, *, booting: bool) -> None:
        """Note that from this transaction on the node's MACs may boot, or may not."""

    def since(self, seq: int, limit: int) -> Sequence[MacChange]:
        """Return changes with greater numbers, in their order; see ``core.boot_macs.ChangeWindow``."""

    def newest(self, *, node: str | None = None, before: float | None = None) -> int:
        """Return the greatest number, of this node's MACs only, or of what is older than ``before``; else 0."""

    def known(self, *, after: str = "", limit: int = 0, macs: Sequence[str] = ()) -> Sequence[KnownMac]:
        """Return the MACs of known nodes: these ``macs``, or the next ``limit`` ones, by MAC."""

    def forget(self, before: float) -> int:
        """Delete changes that are older, some thousands at a time; return how many went."""
