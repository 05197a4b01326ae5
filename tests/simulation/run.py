"""One seed from its scenario to its result."""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import msgspec

from tests.simulation import patches
from tests.simulation.kernel import Rule
from tests.simulation.scenario import Scenario
from tests.simulation.world import World

Line = tuple[float, str, str]


class Result(msgspec.Struct, kw_only=True):
    """What came of a run; ``rule`` and ``what`` of the violated invariant, if one is. ``story``: what it told."""

    seed: int
    story: str = ""
    rule: Rule | None = None
    what: str | None = None
    simulated: float = 0.0
    real: float = 0.0
    counted: Counter[str] = msgspec.field(default_factory=Counter)
    lines: list[Line] | None = None


def run(
    scenario: Scenario,
    *,
    transcript: bool = False,
    bug: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> Result:
    """Play the scenario, with the planted ``bug`` if one is given."""
    begun = time.process_time()
    collecting = gc.isenabled()
    # When rubbish is looked for depends on what ran before, and what finds its end then may still act: a seed
    # must say everything. It also takes a tenth of the time, and one run makes little.
    gc.disable()
    world = World(scenario, transcript=transcript)
    kernel = world.kernel
    with bug(), patches.installed(world):
        try:
            world.run()
        finally:
            kernel.close()
            if collecting:
                gc.enable()
    counted = world.counted
    checks, server = world.checks, world.server
    counted["events"] = kernel.events
    counted["statements"] = server.statements.begun
    counted["commits"] = server.log.commits
    counted["deadlocks"] = server.statements.deadlocks
    counted["processes started"] = world.processes_started
    counted["takeovers"] = checks.leaders.takeovers
    counted["claims"] = len(checks.claims.by_token)
    if world.clusters:
        counted["mishaps"] = sum(number for name, number in counted.items() if name.startswith("mishap: "))
    for firewall in world.firewalls:
        firewall.look(firewall.open_until)
        counted["seconds with an open filter"] += round(firewall.open_seconds)
    for row in server.all("inspections"):
        counted["inspections"] += 1
        counted[f"inspections {row['state']}"] += 1
        if row["state"] == "error":
            counted[f"error: {row['reason']}"] += 1
    return Result(
        seed=scenario.seed,
        story="" if scenario.story is None else str(scenario.story),
        rule=kernel.failure.rule if kernel.failure else None,
        what=kernel.failure.what if kernel.failure else None,
        simulated=kernel.now,
        real=time.process_time() - begun,
        counted=counted,
        lines=kernel.lines,
    )
