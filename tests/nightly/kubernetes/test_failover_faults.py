"""``ferroscope failover`` beside BMCs that lie, API servers that die, and operators who want it to wait.

Each test ends with what ``witness`` found: nothing was forced without proof, and no pod of a StatefulSet ran twice.
"""

from __future__ import annotations

import msgspec
import pytest

from ferroscope.core.remediation import Phase
from ferroscope.db.transaction import Transaction
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


def test_a_bmc_that_says_off_about_a_machine_whose_kubelet_renews_its_lease_is_not_believed(fleet: Fleet) -> None:
    home = fleet.place("db")
    machine = fleet.machines[home]
    machine.says, machine.obeys = "off", False
    machine.node.cut()
    assert until(lambda: fleet.reason(home).startswith("seen-off") or fleet.reason(home) == "dwell")
    machine.node.heal()
    assert until(lambda: fleet.cluster.is_ready(home))
    assert until(lambda: not fleet.active())
    assert fleet.records()[0].phase is Phase.CANCELLED
    assert fleet.place("db") == home


def test_a_bmc_that_answers_now_and_then_only_takes_longer(fleet: Fleet) -> None:
    machine = fleet.machines[fleet.place("db")]
    machine.says = "flapping"
    home = fail(fleet)
    assert until(lambda: fleet.moved("db", home), seconds=180)


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


@pytest.mark.parametrize("guard", ["paused", "maintenance"])
def test_an_operator_keeps_it_away(fleet: Fleet, guard: str) -> None:
    home = fleet.place("db")
    if guard == "paused":
        fleet.annotate(home, failover_paused="true")
    else:
        _maintain(fleet, home, maintenance=True)
    fleet.machines[home].commands.clear()
    fleet.machines[home].node.cut()
    assert waits(fleet, home, guard)
    assert fleet.machines[home].commands == []
    fleet.annotate(home)
    _maintain(fleet, home, maintenance=False)
    assert until(lambda: fleet.moved("db", home))


def test_in_a_storm_nothing_is_forced_until_it_is_over(fleet: Fleet) -> None:
    home = fleet.place("db")
    others = [one for one in fleet.machines.values() if one.name != home][:2]
    for one in (*others, fleet.machines[home]):
        one.commands.clear()
        one.node.cut()
    assert until(lambda: [fleet.reason(one.name) for one in others] == ["storm", "storm"])
    assert waits(fleet, home, "storm")
    assert [one.commands for one in (*others, fleet.machines[home])] == [[], [], []]
    for one in others:
        one.node.heal()
    assert until(lambda: fleet.moved("db", home))


def test_a_pod_that_fits_no_other_node_is_not_deleted(fleet: Fleet) -> None:
    home = fleet.place("db")
    fleet.cluster.call("DELETE", "/apis/apps/v1/namespaces/default/statefulsets/db")
    assert until(lambda: fleet.pod("db-0") is None)
    only = {"nodeSelector": {"kubernetes.io/hostname": home}}
    fleet.deploy("stuck", **only)
    try:
        fleet.machines[home].node.cut()
        assert waits(fleet, home, "nowhere-to-go")
    finally:
        fleet.machines[home].node.heal()
        fleet.cluster.call("DELETE", "/apis/apps/v1/namespaces/default/statefulsets/stuck")
        assert until(lambda: fleet.pod("stuck-0") is None)
        fleet.deploy("db")


def _maintain(fleet: Fleet, home: str, *, maintenance: bool) -> None:
    """Set the maintenance of the node's machine, as an operator does."""

    def change(tx: Transaction) -> None:
        machine = tx.nodes.get(f"machine-of-{home}")
        tx.nodes.update(msgspec.structs.replace(machine, maintenance=maintenance))

    fleet.backend.store.write(change)
