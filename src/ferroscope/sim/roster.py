"""Who belongs to a fleet, and where their BMCs are: the same for whoever simulates and whoever enrols."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, cycle, repeat
from typing import Final

import msgspec

from ferroscope.sim.chance import draw, pick
from ferroscope.sim.outcomes import Outcome, outcome_of
from ferroscope.sim.settings import FleetSettings

# The one host for which BMCs have addresses of their own; all of 127.0.0.0/8 is this host.
SPREAD_HOST: Final = "127.0.0.1"
# How dead BMCs are dead, by turns.
_DEAD: Final = ("bmc-dead", "bmc-refused", "bmc-black-hole")
# Above the numbers of any fleet's plain machines.
_SPECIAL: Final = 1 << 23
_SUBNETS: Final = 254


class Member(msgspec.Struct, frozen=True):
    """One machine: ``number`` gives its addresses and hardware, ``name`` its outcome.

    The number of a special one follows from its name: it is the same machine in whichever fleet.
    """

    name: str
    number: int

    @property
    def outcome(self) -> Outcome:
        return outcome_of(self.name)


def roster(settings: FleetSettings) -> tuple[Member, ...]:
    """Return the fleet's members in order. Raises ``ValueError`` where two have one name."""
    bad = _bad(settings)
    numbers = range(settings.nodes)
    names = [*(f"sim-{bad.get(at, '')}{settings.first + at:04d}" for at in numbers), *settings.special]
    if len(set(names)) != len(names):
        doubles = sorted({name for name in names if names.count(name) > 1})
        raise ValueError(f"these machines are named twice: {', '.join(doubles)}")
    plain = [Member(name, number) for number, name in enumerate(names[: settings.nodes], settings.first)]
    return (*plain, *_special(settings.special))


def _special(names: Sequence[str]) -> Iterator[Member]:
    taken: set[int] = set()
    for name in names:
        number = _SPECIAL + int(draw(0, "special", name) * _SPECIAL / 2)
        while number in taken:
            number += 1
        taken.add(number)
        yield Member(name, number)


def _bad(settings: FleetSettings) -> dict[int, str]:
    """Return the middle of the names of those that are dead or flapping, by their place among ``nodes``."""
    dead, flapping = round(settings.nodes * settings.dead), round(settings.nodes * settings.flapping)
    places = pick(dead + flapping, settings.nodes, settings.seed, "bad")
    kinds = chain((next(kind) for kind in repeat(cycle(_DEAD), dead)), repeat("bmc-flapping", flapping))
    return {place: f"{kind}-" for place, kind in zip(places, kinds, strict=False)}


def bmc_host(settings: FleetSettings, number: int) -> str:
    """Return the IP address of the BMC of the machine with this number."""
    if not settings.subnet or settings.host != SPREAD_HOST:
        return settings.host
    subnet, host = divmod(number - 1, settings.subnet)
    block, subnet = divmod(subnet, _SUBNETS)
    return f"127.{block % 256}.{subnet + 1}.{host + 1}"
