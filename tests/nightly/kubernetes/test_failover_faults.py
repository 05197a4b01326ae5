"""``ferroscope failover`` beside BMCs that say nothing, and API servers that are frozen or die.

Each test ends with what ``witness`` found: nothing was forced without proof, and no pod of a StatefulSet ran twice.
"""

from __future__ import annotations

import pytest

from tests.nightly.kubernetes.fleet import Fleet
from tests.nightly.kubernetes.rack import Says
from tests.nightly.kubernetes.witness import forced
from tests.support.processes import until


def fail(fleet: Fleet) -> str:
    """Cut off the node that runs ``db-0``, which goes on; return its name."""
    home = fleet.place("db")
    fleet.machines[home].node.cut()
    return home


def waits(fleet: Fleet, home: str, reason: str) -> bool:
    """Whether nothing more is done for this reason, and the pod has stayed where it was, also some passes later."""
    count = len(list(forced(fleet.audit)))
    if not until(lambda: fleet.reason(home) == reason):
        raise AssertionError(f"{fleet.reason(home)!r} instead of {reason!r}")
    asked = fleet.machines[home].asked
    until(lambda: fleet.machines[home].asked > asked + 6, seconds=8)
    return fleet.reason(home) == reason and len(list(forced(fleet.audit))) == count


@pytest.mark.parametrize(
    ("says", "obeys", "reason"),
    [
        ("silent", True, "bmc-error"),
        ("error", True, "bmc-error"),
        ("unknown", True, "bmc-error"),
        ("on", False, "power-off-pending"),
    ],
)
def test_without_the_bmcs_word_nothing_is_forced_and_with_it_the_pod_runs_elsewhere(
    fleet: Fleet, says: Says, obeys: bool, reason: str
) -> None:
    machine = fleet.machines[fleet.place("db")]
    machine.says, machine.obeys = says, obeys
    home = fail(fleet)
    assert waits(fleet, home, reason)
    machine.says, machine.obeys = "truth", True
    if reason == "power-off-pending":  # the command is repeated after half a minute, which a test need not wait
        machine.lose_power()
    assert until(lambda: fleet.moved("db", home))


@pytest.mark.parametrize("fault", ["frozen", "killed"])
def test_while_the_api_server_is_frozen_or_dead_nothing_happens_and_afterwards_it_goes_on(
    fleet: Fleet, fault: str
) -> None:
    server = fleet.cluster.api_server
    home = fail(fleet)
    assert until(lambda: fleet.reason(home) != "")
    (server.freeze if fault == "frozen" else server.kill)()
    assert until(lambda: any("cannot read the cluster" in one.output()[-2000:] for one in fleet.controllers))
    (server.thaw if fault == "frozen" else server.start)()
    assert until(lambda: fleet.moved("db", home), seconds=180)
