"""What the figures have to reach, and what the incumbents were measured at on such a machine.

A figure without a target is shown for what it says about the others.
"""

from __future__ import annotations

from typing import Final

import msgspec


class Target(msgspec.Struct, frozen=True):
    """``least``: the figure has to be at least ``value``, else at most. ``incumbents``: in words."""

    value: float
    least: bool
    incumbents: str = ""


class Figure(msgspec.Struct, frozen=True):
    """One measured number. ``key`` finds its target, ``of`` says on what it was measured."""

    key: str
    of: str
    value: float

    @property
    def target(self) -> Target | None:
        return TARGETS.get(f"{self.key} {self.of.split()[0]}") or TARGETS.get(self.key)

    @property
    def met(self) -> bool | None:
        """Whether it reaches its target; None where there is none."""
        if self.target is None:
            return None
        return self.value >= self.target.value if self.target.least else self.value <= self.target.value


_CYCLE: Final = "ironic-inspector 20 with a stub for Ironic, Ironic 4.1"
_CYCLE_CPU: Final = "ironic-inspector 47, Ironic 256"

# key, or key and the first word of ``of``
TARGETS: Final[dict[str, Target]] = {
    "inspections/s sqlite": Target(180, True, _CYCLE),
    "inspections/s postgresql": Target(130, True, _CYCLE),
    "inspections/s mariadb": Target(110, True, _CYCLE),
    "callback p99, ms": Target(60, False, "ironic-inspector 1300, Ironic 3700-12000"),
    "CPU per inspection, ms sqlite": Target(6, False, _CYCLE_CPU),
    "CPU per inspection, ms postgresql": Target(8, False, _CYCLE_CPU),
    "CPU per inspection, ms mariadb": Target(9, False, _CYCLE_CPU),
    "GET inventory/s": Target(1500, True, "Ironic 58"),
    "search over 10,000 nodes, s": Target(1.0, False),
    "fleet and machines of 10,000, ms": Target(300, False),
    "first page of a process, CPU ms": Target(300, False),
    "slowest page of 10,000, CPU ms": Target(300, False),
    "api CPU for 100 viewers, share of a core": Target(0.05, False),
    "cost with many nodes / with few": Target(1.2, False),
    "site: healthy machines that did not finish": Target(0, False),
    "site: the last healthy machine finished, s 500": Target(60, False),
    "site: callback to processed p99, s": Target(2, False),
    "site: speed beside silent BMCs / without": Target(0.9, True),
    "dead node: running elsewhere with proof, p99 s": Target(35, False, "Kubernetes alone: never"),
    "dead node: running elsewhere in mode label, p99 s": Target(3, False),
    "dead node: added by a leader's death, p99 s": Target(7, False),
    "hostile: CPU of the worst body, s": Target(0.3, False),
    "hostile: CPU of processing the worst one, s": Target(1.0, False),
    "hostile: health check beside a crowd, max s": Target(1.0, False),
    "hostile: leases and heartbeats missed": Target(0, False),
    "hostile: longest command at a bad BMC, s": Target(11.0, False),
    "hostile: inspections/s beside a bad BMC / without": Target(0.9, True),
    "hostile: bad BMC asked without a pause, share of a core": Target(0.1, False),
    "hostile: GETs without a bad BMC / beside it, p50": Target(0.9, True),
    "failover: RSS beside 1,000 nodes, MB": Target(150, False),
    "failover: CPU beside 1,000 nodes, one dead, % of a core": Target(1, False),
    "failover: received beside 1,000 nodes, one dead, kB/s": Target(50, False),
}
