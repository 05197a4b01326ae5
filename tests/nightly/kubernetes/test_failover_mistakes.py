"""``ferroscope failover`` where people are wrong, or in its way: mistaken machines, finalizers, cordons, deleted nodes.

Each test ends with what ``witness`` found: nothing was forced without proof, and no pod of a StatefulSet ran twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ferroscope.core.remediation import Phase
from tests.nightly.kubernetes.fleet import Fleet
from tests.nightly.kubernetes.test_failover_faults import fail, waits
from tests.nightly.kubernetes.witness import forced
from tests.support.processes import until

_CONTROL_PLANE = "node-role.kubernetes.io/control-plane"


def test_a_node_that_is_said_to_be_on_another_ones_machine_leaves_that_alone_until_it_is_corrected(
    fleet: Fleet,
) -> None:
    home = fleet.place("db")
    other = next(one for one in fleet.machines.values() if one.name != home)
    for one in (other, fleet.machines[home]):
        one.commands.clear()
    fleet.annotate(home, machine=f"machine-of-{other.name}")
    fail(fleet)
    assert waits(fleet, home, "machine-contradicts")
    assert (other.commands, fleet.machines[home].commands) == ([], [])
    fleet.annotate(home)
    assert until(lambda: fleet.moved("db", home))
    assert other.commands == []


def test_a_pod_that_waits_for_its_finalizers_does_not_keep_its_machine_off(fleet: Fleet) -> None:
    home = fleet.place("db")
    machine = fleet.machines[home]
    fleet.change("/api/v1/namespaces/default/pods/db-0", {"metadata": {"finalizers": ["example.invalid/backup"]}})
    machine.commands.clear()
    before = sum(one.name == "db-0" for one in forced(fleet.audit))
    machine.hang()
    try:
        assert until(lambda: machine.on and fleet.cluster.is_ready(home) and len(machine.commands) == 2, seconds=180)
        assert until(lambda: fleet.records()[0].phase is Phase.DONE)
        assert any("db-0 (example.invalid/backup)" in line["text"] for line in fleet.records()[0].log)
        asked = [one for one in forced(fleet.audit) if one.name == "db-0"]
        assert len(asked) - before <= 2, "it is not asked for again and again"
    finally:
        fleet.change("/api/v1/namespaces/default/pods/db-0", {"metadata": {"finalizers": None}})
    assert until(lambda: bool(fleet.place("db")))


def test_a_cordoned_node_is_left_alone(fleet: Fleet) -> None:
    home = fleet.place("db")
    fleet.cordon(home, cordoned=True)
    fleet.machines[home].commands.clear()
    try:
        fail(fleet)
        assert waits(fleet, home, "cordoned")
        assert fleet.machines[home].commands == []
    finally:
        fleet.cordon(home, cordoned=False)
    assert until(lambda: fleet.moved("db", home))


@contextmanager
def _control_plane(fleet: Fleet, *names: str) -> Iterator[None]:
    def label(value: str | None) -> None:
        for name in names:
            fleet.change(f"/api/v1/nodes/{name}", {"metadata": {"labels": {_CONTROL_PLANE: value}}})

    label("")
    try:
        yield
    finally:
        label(None)


def test_of_two_nodes_of_the_control_plane_that_fail_together_none_is_powered_off(fleet: Fleet) -> None:
    home = fleet.place("db")
    other = next(one for one in fleet.machines.values() if one.name != home)
    with _control_plane(fleet, home, other.name):
        for one in (other, fleet.machines[home]):
            one.commands.clear()
            one.node.cut()
        assert waits(fleet, home, "control-plane")
        assert (other.commands, fleet.machines[home].commands) == ([], [])
        other.node.heal()
        assert until(lambda: fleet.moved("db", home))


def test_a_node_that_is_deleted_while_its_machine_is_off_is_not_forgotten(fleet: Fleet) -> None:
    home = fleet.place("db")
    machine = fleet.machines[home]
    machine.hang()
    assert until(lambda: not machine.on)
    fleet.cluster.kubectl("delete", "node", home, "--wait=false")
    try:
        assert until(lambda: any(record.detached and record.left_off for record in fleet.active()))
        assert not machine.on
    finally:
        machine.boot()  # its kubelet registers the node again
        assert until(lambda: home in fleet.cluster.kubectl("get", "nodes", "-o", "name"))
    assert until(lambda: not fleet.active())
    record = next(record for record in fleet.records() if record.detached)
    assert (record.phase, record.reason) == (Phase.DONE, "powered-on")
