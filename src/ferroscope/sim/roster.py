"""Who belongs to a fleet: names and numbers, the same for whoever simulates and whoever enrols."""

from __future__ import annotations

import msgspec

from ferroscope.sim.outcomes import Outcome, outcome_of
from ferroscope.sim.settings import FleetSettings


class Member(msgspec.Struct, frozen=True):
    """One machine: ``number`` gives its addresses and hardware, ``name`` its outcome."""

    name: str
    number: int

    @property
    def outcome(self) -> Outcome:
        return outcome_of(self.name)


def roster(settings: FleetSettings) -> tuple[Member, ...]:
    """Return the fleet's members in order. Raises ``ValueError`` where two have one name."""
    numbers = range(settings.first, settings.first + settings.nodes)
    names = [*(f"sim-{number:04d}" for number in numbers), *settings.special]
    if len(set(names)) != len(names):
        doubles = sorted({name for name in names if names.count(name) > 1})
        raise ValueError(f"these machines are named twice: {', '.join(doubles)}")
    return tuple(Member(name, number) for number, name in enumerate(names, settings.first))
