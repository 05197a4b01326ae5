"""What searches over the hardware look at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from ferroscope.hardware import expressions
from ferroscope.hardware.search_index import Fact


class Match(msgspec.Struct, frozen=True):
    """A node that a search found; ``hardware`` is the summary of its last inventory (see ``hardware.search_index``)."""

    uuid: str
    name: str | None
    provision_state: str
    maintenance: bool
    hardware: dict[str, Any]


class Facts(Protocol):
    """What searches look at: rows of each node, written with the results that they are derived from."""

    def replace(self, node: str, facts: Sequence[Fact], *, had: bool) -> None:
        """Store these rows instead of the node's; ``had``: whether it may have any."""

    def of(self, node: str) -> Sequence[Fact]:
        """Return the node's rows, by kind and position."""

    def search(self, query: expressions.Query, limit: int, *, after: str = "") -> Sequence[Match]:
        """Return nodes for which the query holds, by UUID, from there on.

        What the query means is ``hardware.expressions.matches``; every adapter agrees with it. Where it is
        ``about_hardware``, a node that has no facts never fits.
        """

    def some(self, nodes: Sequence[str], kinds: Sequence[str]) -> dict[str, list[Fact]]:
        """Return the rows of these kinds of each of these nodes that has any."""
