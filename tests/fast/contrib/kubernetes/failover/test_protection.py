"""What is found out before a failure: whose machine is not known, and whose BMC is silent or lies."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from ferroscope.contracts.bmc import Power
from ferroscope.contracts.errors import BmcError, LeaseLostError
from ferroscope.contrib.kubernetes.failover import protection
from ferroscope.contrib.kubernetes.failover.controller import Failover
from ferroscope.contrib.kubernetes.failover.protection import CHECK_SECONDS, SECOND_LOOK_SECONDS
from ferroscope.contrib.kubernetes.failover.terms import FailoverRules
from ferroscope.hardware import machine_identity
from ferroscope.hardware.machine_identity import MachineIdentity
from tests.fast.contrib.kubernetes.failover.build import SYSTEM_UUID
from tests.fast.contrib.kubernetes.failover.site import Site
from tests.fast.contrib.kubernetes.failover.test_client import node_document, pod_document
from tests.support import examples
from tests.support.processes import PATIENCE

_UUIDS = {f"n{number}": str(uuid.UUID(int=number << 100)) for number in (1, 2, 3)} | {"n1": SYSTEM_UUID}


class Healthy:
    """A cluster of n1, n2 and n3, all ready, whose machines are inspected; ``says`` is what BMCs say, by machine."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.says: dict[str, Power | BmcError] = {}
        self.asked: list[str] = []
        self.machines = {"n1": site.machine}
        for name in ("n2", "n3"):
            identity = {"serial": None, "uuid": _UUIDS[name], "macs": []}
            machine = examples.node(name=f"m{name[1]}", internal={machine_identity.IDENTITY: identity})
            site.store.write(lambda tx, machine=machine: tx.nodes.add(machine))  # type: ignore[misc]
            self.machines[name] = machine
        for name, machine in self.machines.items():
            self.report(name)
            site.power.identities[machine.uuid] = MachineIdentity(uuid=_UUIDS[name])
        site.power.state = self._state  # type: ignore[method-assign]
        self.renewals = 0
        self.task = site.task()
        self.leading = site.lead()

    def report(self, name: str, ready: str = "True", system_uuid: str | None = None, **annotations: str) -> None:
        node = node_document(name, ready)
        node["status"]["nodeInfo"]["systemUUID"] = _UUIDS[name] if system_uuid is None else system_uuid
        node["metadata"]["annotations"] = {f"ferroscope.io/{key}": value for key, value in annotations.items()}
        self.site.api.put("nodes", node)

    def renew(self, *silent: str) -> None:
        """Have all kubelets renew their leases but these."""
        self.renewals += 1
        for name in self.machines:
            if name not in silent:
                lease = {"metadata": {"name": name}, "spec": {"renewTime": f"t{self.renewals}"}}
                self.site.api.put("leases", lease)

    def _state(self, machine: str) -> tuple[Power, bool | None]:
        (name,) = [name for name, one in self.machines.items() if one.uuid == machine]
        self.asked.append(name)
        said = self.says.get(name, Power.ON)
        if isinstance(said, BmcError):
            raise said
        return said, None

    def run(self, seconds: float, *silent: str, task: Failover | None = None) -> None:
        """Let the controller work for so long; kubelets renew their leases meanwhile, but for these."""
        task = task or self.task
        until = self.site.clock.now + seconds
        while self.site.clock.now < until:
            self.site.clock.now += 5.0 if seconds < CHECK_SECONDS / 2 else 14.0
            self.renew(*silent)
            for _ in range(3):
                task.step(self.leading)
                _settle(task)

    @property
    def problems(self) -> dict[str, str]:
        return {one.node: one.problem for one in self.task.unprotected_nodes}

    def stored(self, name: str) -> Any:
        return self.site.store.read(lambda tx: tx.failover_nodes.named("c", [name]))[0]


def _settle(task: Failover) -> None:
    """Wait until the BMCs that were asked have answered."""
    until, asked = time.monotonic() + PATIENCE, task._check._calls._questions
    while any(not one.answer.done() for one in asked.values()):
        assert time.monotonic() < until
        time.sleep(0.001)


@pytest.fixture
def healthy(site: Site) -> Healthy:
    return Healthy(site)


_DEAD = BmcError("timed out", transient=True)


def test_nodes_whose_machines_are_known_and_on_are_protected_and_are_checked_again(healthy: Healthy) -> None:
    healthy.run(30.0)
    assert healthy.problems == {}
    assert sorted(healthy.asked) == ["n1", "n2", "n3"]
    row = healthy.stored("n2")
    assert (row.machine, row.facts, row.power) == (healthy.machines["n2"].uuid, ("system UUID",), "power on")
    healthy.run(CHECK_SECONDS)
    assert sorted(healthy.asked) == sorted(["n1", "n2", "n3"] * 2)


@pytest.fixture
def large(healthy: Healthy, monkeypatch: pytest.MonkeyPatch) -> Healthy:
    """Return a cluster that is so large that a third of its BMCs is asked in each check."""
    monkeypatch.setattr(protection, "_MAX_BMCS_IN_TURN", 1)
    return healthy


def test_only_a_bmc_with_a_problem_or_of_another_machine_is_asked_in_each_check(large: Healthy) -> None:
    healthy = large
    healthy.says["n2"] = _DEAD
    healthy.run(30.0)
    healthy.says.clear()
    healthy.run(CHECK_SECONDS)
    assert healthy.problems == {}
    asked = len(healthy.asked)
    healthy.run(3 * CHECK_SECONDS)
    assert len(healthy.asked) == asked + 3
    healthy.asked.clear()
    machine = healthy.machines["n3"]
    machine.driver_info = {"sim_address": "127.0.0.1:8", "sim_node": "m3"}
    healthy.site.store.write(lambda tx: tx.nodes.update(machine))
    healthy.run(2 * CHECK_SECONDS)
    assert "n3" in healthy.asked
    assert len(healthy.asked) <= 3


def test_a_successor_goes_on_in_turn_and_asks_no_bmc_because_it_is_new(large: Healthy) -> None:
    healthy = large
    healthy.run(30.0)
    healthy.asked.clear()
    healthy.task, healthy.leading = healthy.site.task(), healthy.site.lead()
    healthy.run(60.0)
    assert len(healthy.asked) <= 1


def test_a_large_cluster_asks_a_limited_number_of_bmcs_in_each_check(large: Healthy) -> None:
    healthy = large
    healthy.run(30.0)
    healthy.asked.clear()
    healthy.run(CHECK_SECONDS)
    assert len(healthy.asked) == 1
    healthy.run(2 * CHECK_SECONDS)
    assert sorted(healthy.asked) == ["n1", "n2", "n3"]


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (lambda healthy: healthy.report("n2", system_uuid=str(uuid.UUID(int=77 << 100))), "machine-unknown"),
        (lambda healthy: healthy.report("n2", system_uuid="", machine="m2"), "machine-unproven"),
        (lambda healthy: healthy.says.update(n2=_DEAD), "bmc-error"),
        (lambda healthy: healthy.says.update(n2=Power.CHANGING), "bmc-error"),
        (lambda healthy: healthy.says.update(n2=Power.OFF), "bmc-unreliable"),
    ],
)
def test_a_node_that_would_not_be_failed_over_is_named_with_its_reason(
    healthy: Healthy, fault: Callable[[Healthy], None], code: str
) -> None:
    fault(healthy)
    healthy.run(60.0)
    assert healthy.problems == {"n2": code}
    (row,) = healthy.task.unprotected_nodes
    assert row.message
    assert (healthy.stored("n2").problem, healthy.stored("n1").problem) == (code, "")
    # A successor knows it at once.
    healthy.task, healthy.leading = healthy.site.task(), healthy.site.lead()
    healthy.task.step(healthy.leading)
    assert healthy.problems == {"n2": code}
    # And it is over when it is over.
    healthy.says.clear()
    healthy.report("n2")
    healthy.run(3 * CHECK_SECONDS)
    assert healthy.problems == {}


def test_a_bmc_that_is_silent_once_is_none_that_is_silent(healthy: Healthy) -> None:
    healthy.says["n2"] = _DEAD
    healthy.run(10.0)
    healthy.says.clear()
    healthy.run(30.0)
    assert healthy.problems == {}
    assert healthy.asked.count("n2") == 2


@pytest.mark.parametrize("wish", ["failover-paused", "maintenance", "cordoned"])
def test_what_somebody_wants_so_is_no_problem(healthy: Healthy, wish: str) -> None:
    healthy.says["n2"] = _DEAD
    if wish == "failover-paused":
        healthy.report("n2", **{wish: "true"})
    elif wish == "cordoned":
        node = healthy.site.api.objects["nodes"]["n2"]
        node["spec"]["unschedulable"] = True
        healthy.site.api.put("nodes", node)
    else:
        machine = healthy.machines["n2"]
        machine.maintenance = True
        healthy.site.store.write(lambda tx: tx.nodes.update(machine))
    healthy.run(60.0)
    assert healthy.problems == {}
    assert "n2" not in healthy.asked


def _fail(healthy: Healthy) -> None:
    """Cut n1 off, while its pods run: its BMC says that it is off, as always."""
    healthy.says["n1"] = Power.OFF
    healthy.report("n1", "Unknown")
    healthy.site.api.put("pods", pod_document("db-0"))


def test_a_bmc_that_said_off_about_a_node_that_ran_is_never_a_proof_but_the_operator_is(healthy: Healthy) -> None:
    healthy.says["n1"] = Power.OFF
    healthy.run(60.0)
    assert healthy.stored("n1").doubted == healthy.machines["n1"].uuid
    _fail(healthy)
    healthy.run(300.0, "n1")
    (record,) = healthy.site.records()
    assert record.reason == "bmc-unreliable"
    assert "confirmed-off" in record.message
    assert healthy.site.power.commands == []
    assert "db-0" in healthy.site.api.objects["pods"]
    healthy.report("n1", "Unknown", **{"confirmed-off": "boot-n1"})
    healthy.run(30.0, "n1")
    assert "db-0" not in healthy.site.api.objects["pods"]


def test_it_is_believed_again_when_two_checks_have_heard_on(healthy: Healthy) -> None:
    healthy.says["n1"] = Power.OFF
    healthy.run(60.0)
    healthy.says["n1"] = Power.ON
    healthy.run(CHECK_SECONDS)
    assert healthy.problems == {"n1": "bmc-unreliable"}
    assert healthy.stored("n1").said_on == 1
    healthy.run(CHECK_SECONDS)
    assert healthy.problems == {}
    assert healthy.stored("n1").doubted == ""


def test_a_successor_does_not_believe_it_either(healthy: Healthy) -> None:
    healthy.says["n1"] = Power.OFF
    healthy.run(60.0)
    _fail(healthy)
    healthy.leading = healthy.site.lead()
    healthy.run(300.0, "n1", task=healthy.site.task())
    assert [one.reason for one in healthy.site.records()] == ["bmc-unreliable"]


def test_a_machine_that_has_just_died_makes_no_liar_of_its_bmc(healthy: Healthy) -> None:
    """Kubernetes takes a node for ready for 40 seconds more."""
    healthy.run(CHECK_SECONDS - 10.0)
    healthy.says["n1"] = Power.OFF
    healthy.run(40.0, "n1")
    assert healthy.asked.count("n1") >= 3
    assert healthy.stored("n1").doubted == ""
    _fail(healthy)
    healthy.run(120.0, "n1")
    assert healthy.site.power.commands[:1] == [False]


def test_a_machine_that_has_been_rebooted_in_between_makes_no_liar_of_its_bmc(healthy: Healthy) -> None:
    healthy.says["n1"] = Power.OFF
    healthy.run(10.0)
    node = healthy.site.api.objects["nodes"]["n1"]
    node["status"]["nodeInfo"]["bootID"] = "another"
    healthy.site.api.put("nodes", node)
    healthy.run(SECOND_LOOK_SECONDS + 5.0)
    assert healthy.asked.count("n1") == 2
    assert healthy.stored("n1").doubted == ""


def test_the_doubt_is_about_the_machine_and_not_the_name_of_its_node(healthy: Healthy) -> None:
    healthy.says["n1"] = Power.OFF
    healthy.run(60.0)
    identity = {"serial": None, "uuid": str(uuid.UUID(int=9 << 100)), "macs": []}
    spare = examples.node(name="m9", internal={machine_identity.IDENTITY: identity})
    healthy.site.store.write(lambda tx: tx.nodes.add(spare))
    healthy.machines["n1"] = spare
    healthy.site.power.identities[spare.uuid] = MachineIdentity(uuid=identity["uuid"])
    healthy.report("n1", "Unknown", system_uuid=str(uuid.UUID(int=9 << 100)))
    healthy.site.api.put("pods", pod_document("db-0"))
    healthy.says["n1"] = Power.ON
    healthy.run(60.0, "n1")
    assert healthy.site.power.commands[:1] == [False]


def test_a_check_delays_no_remediation_and_asks_few_bmcs_at_once(
    healthy: Healthy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protection, "_MAX_BMCS_AT_ONCE", 2)
    released, hanging, state = threading.Event(), [], healthy.site.power.state

    def slow(machine: str) -> Power:
        if len(hanging) < 2:
            hanging.append(machine)
            released.wait(PATIENCE)
        return state(machine)

    healthy.site.power.state = slow  # type: ignore[method-assign]
    try:
        for _ in range(10):
            healthy.site.clock.now += 5.0
            healthy.renew()
            healthy.task.step(healthy.leading)
        assert len(hanging) == 2
        assert healthy.asked == []
        healthy.report("n1", "Unknown")
        healthy.site.api.put("pods", pod_document("db-0"))
        for _ in range(12):
            healthy.site.clock.now += 5.0
            healthy.renew("n1")
            healthy.task.step(healthy.leading)
            for record in healthy.site.records():
                assert record.reason != "bmc-error"
        assert False in healthy.site.power.commands
    finally:
        released.set()


def test_a_leader_that_has_lost_its_lease_writes_nothing(healthy: Healthy) -> None:
    healthy.run(30.0)
    healthy.site.lead()
    healthy.says["n2"] = _DEAD
    with pytest.raises(LeaseLostError):
        healthy.run(CHECK_SECONDS + 60.0)
    assert healthy.stored("n2").problem == ""


def test_nodes_that_have_no_machine_and_one_common_uuid_are_all_named(site: Site) -> None:
    common = str(uuid.UUID(int=5 << 100))
    for name in ("n1", "n2", "n3", "n4"):
        node = node_document(name)
        node["status"]["nodeInfo"]["systemUUID"] = common
        site.api.put("nodes", node)
    checked = site.task().check()
    assert [(one.node.name, one.problem) for one in checked] == [(f"n{n}", "machine-unknown") for n in (1, 2, 3, 4)]
    for name in ("m7", "m8"):
        identity = {"serial": None, "uuid": common, "macs": []}
        machine = examples.node(name=name, internal={machine_identity.IDENTITY: identity})
        site.store.write(lambda tx, machine=machine: tx.nodes.add(machine))  # type: ignore[misc]
    assert {one.problem for one in site.task().check()} == {"machine-ambiguous"}


def test_the_check_of_all_asks_every_bmc_at_once_and_waits_for_the_slowest(healthy: Healthy) -> None:
    together, state = threading.Barrier(3, timeout=PATIENCE), healthy.site.power.state

    def wait(machine: str) -> Power:
        together.wait()  # one after the other would break it
        return state(machine)

    healthy.site.power.state = wait  # type: ignore[method-assign]
    healthy.says |= {"n1": Power.OFF, "n2": _DEAD}
    checked = {one.node.name: one for one in healthy.site.task().check()}
    assert {name: one.problem for name, one in checked.items()} == {
        "n1": "bmc-unreliable", "n2": "bmc-error", "n3": ""
    }  # fmt: skip
    assert "timed out" in checked["n2"].message
    assert healthy.site.store.read(lambda tx: tx.failover_nodes.list("c")) == []


def test_an_attached_ironic_that_says_what_it_saw_minutes_ago_is_given_time(healthy: Healthy) -> None:
    task = healthy.site.task(rules=FailoverRules(second_hand=True))
    healthy.says["n1"] = Power.OFF
    healthy.run(200.0, task=task)
    assert healthy.stored("n1").doubted == ""
    healthy.run(200.0, task=task)
    assert healthy.stored("n1").doubted == healthy.machines["n1"].uuid
