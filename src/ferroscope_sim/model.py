"""The settings of a simulated fleet: how many machines, which ones, how fast, and where they call back.

Frozen, typed, and set only by the caller; the same settings give the same fleet.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from itertools import chain, cycle, repeat
from statistics import NormalDist
from typing import Final

import msgspec

from ferroscope_sim.outcomes import Outcome, outcome_of

# The path is that of the API's reference; the simulator does not import it from the service.
DEFAULT_CALLBACK = "http://127.0.0.1:6385/v1/continue_inspection"


class FleetSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``nodes`` machines named ``sim-0001`` and so on, then one for each name in ``special``.

    ``special`` names select an outcome (``sim-timeout-3``); see ``outcomes``. ``first`` is the number of the first of
    the ``nodes``, so that two fleets can have different addresses. ``inventory_file`` is a path: every machine then
    calls back with this inventory, with its own addresses substituted; otherwise ``inventory_size`` is the size of the
    generated ones in bytes, None for realistic sizes. ``boot_script_url``: machines load the secret of their
    inspection there before they call back, as boot hosts make them do; "" for a static boot script.
    ``callback_url`` may have several URLs separated by commas, tried
    in turn.

    Delays are in seconds, uniform within mean ± jitter: ``boot_*`` from power-on to the first callback, ``bmc_*``
    before each answer of a BMC. ``time_scale`` multiplies all other built-in times (the ramdisk's retries, slow BMCs),
    so that tests need not wait for them. ``request_timeout`` limits one callback and is not scaled. ``connections``
    limits the number of concurrent callbacks.

    With ``bmc_sigma`` above zero, the BMCs' answer times are log-normal with ``bmc_delay`` as the median: most are
    fast, a few very slow, as at a real site. ``dead`` and ``flapping`` are fractions (0 to 1) of the ``nodes``,
    selected by the seed and named for their outcomes (``sim-bmc-dead-0012``). ``bmc_faults`` false: all BMCs work until
    the control call ``faults`` is made, so that machines can be enrolled before they fail. ``subnet``: this many BMCs
    share a loopback /24 (127.0.1.1, 127.0.1.2 and so on, all with ``port``); 0, or a host other than 127.0.0.1: all
    have the address ``host``.
    """

    nodes: int = 50
    special: tuple[str, ...] = ()
    first: int = 1
    seed: int = 0
    host: str = "127.0.0.1"
    port: int = 0
    callback_url: str = DEFAULT_CALLBACK
    boot_script_url: str = ""
    inventory_file: str | None = None
    inventory_size: int | None = None
    boot_delay: float = 2.0
    boot_jitter: float = 1.0
    bmc_delay: float = 0.0
    bmc_jitter: float = 0.0
    bmc_sigma: float = 0.0
    bmc_faults: bool = True
    dead: float = 0.0
    flapping: float = 0.0
    subnet: int = 20
    time_scale: float = 1.0
    request_timeout: float = 30.0
    connections: int = 64


# Reproducible randomness: a number for a seed and a purpose, the same in every run.

_NORMAL: Final = NormalDist()


def draw(seed: int, *purpose: str | int) -> float:
    """Return a uniform number in [0, 1) for ``seed`` and ``purpose``."""
    text = f"{seed}/{'/'.join(map(str, purpose))}"
    return int.from_bytes(blake2b(text.encode(), digest_size=6).digest(), "big") / 2**48


def spread(mean: float, jitter: float, seed: int, *purpose: str | int) -> float:
    """Return a number within ``mean`` ± ``jitter``, never below zero."""
    if not jitter:
        return mean
    return max(0.0, mean + jitter * (2 * draw(seed, *purpose) - 1))


def log_normal(median: float, sigma: float, seed: int, *purpose: str | int) -> float:
    """Return a log-normal number around ``median``; one in a hundred is about ``exp(2.3 * sigma)`` times as large."""
    return median * math.exp(sigma * _NORMAL.inv_cdf(max(draw(seed, *purpose), 2**-48)))


def pick(count: int, among: int, seed: int, *purpose: str | int) -> list[int]:
    """Return ``count`` different random numbers below ``among``, in the order in which they were drawn."""
    return sorted(range(among), key=lambda number: draw(seed, *purpose, number))[:count]


# The members of a fleet and the addresses of their BMCs: the same for the simulator and for enrollment.

# The only host for which BMCs have separate addresses; all of 127.0.0.0/8 is this host.
SPREAD_HOST: Final = "127.0.0.1"
# The outcomes of dead BMCs, in turn.
_DEAD: Final = ("bmc-dead", "bmc-refused", "bmc-black-hole")
# Above the numbers of any fleet's plain machines.
_FIRST_SPECIAL_NUMBER: Final = 1 << 23
_SUBNETS_PER_BLOCK: Final = 254


class SimMember(msgspec.Struct, frozen=True):
    """One machine: ``number`` gives its addresses and hardware, ``name`` its outcome.

    The number of a special one follows from its name: it is the same machine in whichever fleet.
    """

    name: str
    number: int

    @property
    def outcome(self) -> Outcome:
        return outcome_of(self.name)


def roster(settings: FleetSettings) -> tuple[SimMember, ...]:
    """Return the fleet's members in order. ``ValueError`` if two have the same name."""
    faulty = _bad(settings)
    numbers = range(settings.nodes)
    names = [*(f"sim-{faulty.get(at, '')}{settings.first + at:04d}" for at in numbers), *settings.special]
    if len(set(names)) != len(names):
        doubles = sorted({name for name in names if names.count(name) > 1})
        raise ValueError(f"these machines are named twice: {', '.join(doubles)}")
    plain = [SimMember(name, number) for number, name in enumerate(names[: settings.nodes], settings.first)]
    return (*plain, *_special(settings.special))


def _special(names: Sequence[str]) -> Iterator[SimMember]:
    taken: set[int] = set()
    for name in names:
        number = _FIRST_SPECIAL_NUMBER + int(draw(0, "special", name) * _FIRST_SPECIAL_NUMBER / 2)
        while number in taken:
            number += 1
        taken.add(number)
        yield SimMember(name, number)


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
    block, subnet = divmod(subnet, _SUBNETS_PER_BLOCK)
    return f"127.{block % 256}.{subnet + 1}.{host + 1}"
