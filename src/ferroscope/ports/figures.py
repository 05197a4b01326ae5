"""Counts for people and monitoring."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from ferroscope.core.states import Event, Provision, State


class Backlog(msgspec.Struct, frozen=True, kw_only=True):
    """The requests of one event on the queue; ``oldest`` is when the first of them was put there."""

    event: Event
    waiting: int
    claimed: int
    oldest: float


class Population(msgspec.Struct, frozen=True, kw_only=True):
    """How many nodes are in one state."""

    state: State
    provision_state: Provision
    nodes: int


class Figures(Protocol):
    """Counts over everything, for people and monitoring: each is one query, and decides nothing."""

    def nodes(self) -> Sequence[Population]:
        """Return how many nodes are in each state in which there are any."""

    def backlog(self) -> Sequence[Backlog]:
        """Return what is on the queue, by event."""
