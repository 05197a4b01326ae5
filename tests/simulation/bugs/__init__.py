"""Planted bugs: each is a patch of the product's own code that the simulation must find.

A simulation that finds nothing proves little unless it can be seen to find things. Every bug here is one
that a service of this kind has had, or that this one had until the simulation found it. ``seeds`` is
within how many seeds, from 1 on, it has to be found; the suite fails where it is not.
"""

from __future__ import annotations

from tests.simulation.bugs import (
    claims,
    connections,
    failover,
    fences,
    leaders,
    no_harm,
    order,
    pxe_filters,
    secrets,
    stopping,
    throttle,
)
from tests.simulation.bugs.registry import BUGS, KINDS, Bug

__all__ = [
    "BUGS", "KINDS", "Bug", "claims", "connections", "failover", "fences", "leaders", "no_harm", "order", "pxe_filters",
    "secrets", "stopping", "throttle",
]  # fmt: skip
