"""What a second look has found: late commands, changed BMCs, common UUIDs, and what was told nowhere."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import insert

from ferroscope.contrib.kubernetes.failover import bmc_calls
from ferroscope.contrib.kubernetes.failover.terms import FailoverRules
from ferroscope.db import Transaction, schema
from ferroscope.hardware.machine_identity import MachineIdentity
from tests.fast.contrib.kubernetes.failover.build import SYSTEM_UUID
from tests.fast.contrib.kubernetes.failover.site import Site
from tests.fast.contrib.kubernetes.failover.test_client import node_document, pod_document
from tests.fast.contrib.kubernetes.failover.test_last_word import OTHER_UUID, _annotate, _change
from tests.fast.contrib.kubernetes.failover.test_other_clusters import Other
from tests.fast.contrib.kubernetes.failover.test_other_clusters import other as other
from tests.support.faulty_kubernetes import answering
from tests.support.processes import PATIENCE, until


def _report(site: Site, ready: str, *, system_uuid: str = SYSTEM_UUID, renewal: str = "", **info: str) -> None:
    """Let the node n1 be so from now on, in the same boot if ``info`` does not say another."""
    node = node_document("n1", ready)
    node["status"]["nodeInfo"] |= {"systemUUID": system_uuid, **info}
    site.api.put("nodes", node)
    if renewal:
        site.api.put("leases", {"metadata": {"name": "n1"}, "spec": {"renewTime": renewal}})


@pytest.mark.parametrize("then", ["paused", "ready"])
def test_a_command_that_has_waited_behind_other_bmcs_is_not_sent(
    site: Site, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    monkeypatch.setattr(bmc_calls, "_MAX_THREADS", 1)  # as if 64 BMCs hang
    site.second()
    (second,) = site.power.identities
    state, hanging, released = site.power.state, threading.Event(), threading.Event()

    def hang(machine: str) -> Any:
        if machine == second and hanging.is_set():
            released.wait(PATIENCE)
        return state(machine)

    site.power.state = hang  # type: ignore[method-assign]
    task, leading = site.task(rules=FailoverRules(max_unhealthy="2")), site.lead()
    keep_alive = leading.keep_alive

    def pass_time() -> None:
        site.clock.now += 0.3
        keep_alive()

    leading.keep_alive = pass_time  # type: ignore[method-assign]
    site.passes(task, leading, 3)
    hanging.set()
    for _ in range(30):
        site.passes(task, leading, 1, 3.0)
        if any(record.node == "n1" and record.reason == "power-off" for record in site.records()):
            break
    assert site.power.commands == []
    if then == "paused":
        site.store.write(lambda tx: tx.remediations.pause("c", "wrong rack", "ann"))
    else:
        _report(site, "True", renewal="t2")
    site.passes(task, leading, 20, 3.0)
    released.set()
    assert until(lambda: not task._calls._commands or all(one.running.done() for one in task._calls._commands.values()))
    assert site.power.commands == []


def test_a_bmc_that_was_not_commanded_proves_nothing(site: Site) -> None:
    _change(site, driver="redfish", driver_info={"redfish_address": "https://10.0.0.5"})
    site.power.set = lambda _machine, *, on, left: site.power.commands.append(on)  # type: ignore[method-assign]  # noqa: ARG005
    task, leading = site.led(5)
    assert site.power.commands == [False]
    # Somebody corrects the address, to that of a spare machine that is off.
    _change(site, driver="ipmi", driver_info={"ipmi_address": "10.0.0.9"})
    site.power.identity_of, site.power.off = None, True
    site.passes(task, leading, 10)
    assert set(site.api.objects["pods"]) == {"db-0"}
    assert "BMC address was changed" in str(site.records()[0].log)


def test_a_bmc_address_that_changes_while_the_bmc_is_asked_stops_the_command(site: Site) -> None:
    _change(site, driver_info={"redfish_address": "https://10.0.0.5"})
    state, changed = site.power.state, threading.Event()

    def move(machine: str) -> Any:
        if not changed.is_set() and site.records() and site.records()[0].not_before <= site.clock.now:
            changed.set()
            _change(site, driver_info={"redfish_address": "https://10.0.0.6"})
            site.power.identity_of = MachineIdentity(uuid=OTHER_UUID)
        return state(machine)

    site.power.state = move  # type: ignore[method-assign]
    site.passes(site.task(), site.lead(), 20)
    assert changed.is_set()
    assert site.power.commands == []


def test_two_annotations_are_no_measurement(site: Site) -> None:
    _change(site, internal={})
    _report(site, "Unknown", system_uuid=OTHER_UUID)
    _annotate(site, machine="m1", **{"serial-number": "7QKWJY1"})
    site.power.identity_of = MachineIdentity(serial="7QKWJY1")
    site.passes(site.task(), site.lead(), 20)
    assert site.power.commands == []


def test_a_cluster_that_was_restored_from_another_does_not_switch_its_machines(site: Site, other: Other) -> None:
    node = other.api.objects["nodes"]["a1"]
    node["metadata"]["uid"] = site.api.objects["nodes"]["n1"]["metadata"]["uid"]
    other.api.put("nodes", node)
    other.passes(3)
    task, leading = site.task(), site.lead()
    for _ in range(10):
        other.passes()
        site.passes(task, leading, 1)
    assert site.power.commands == []


def test_a_cluster_whose_controller_does_not_say_what_its_nodes_run_on_stops_power_offs(site: Site) -> None:
    site.store.write(lambda tx: tx.leases.acquire("failover/former", "me", 1e6))
    site.passes(site.task(), site.lead(), 20)
    assert site.power.commands == []
    assert "the controller of cluster former" in site.records()[0].message


def test_a_bmc_that_was_wrong_in_a_proof_is_not_believed_again(site: Site) -> None:
    task, leading = site.led(8)
    assert site.api.objects["pods"] == {}
    _report(site, "True", renewal="t2")  # it ran all the time
    site.power.off = False
    site.passes(task, leading, 4)
    site.power.commands.clear()
    _report(site, "Unknown")
    site.api.put("pods", pod_document("db-0"))
    site.passes(task, leading, 30)
    assert set(site.api.objects["pods"]) == {"db-0"}
    assert site.records()[0].reason == "bmc-unreliable"


def test_a_machine_that_has_just_left_a_repair_gets_the_dwell_time_anew(site: Site) -> None:
    _annotate(site, **{"failover-paused": "true"})
    task, leading = site.led(20)
    _annotate(site)
    site.passes(task, leading, 3)
    assert site.power.commands == []
    site.passes(task, leading, 4)
    assert site.power.commands[:1] == [False]


def test_a_machine_that_is_off_is_told_though_its_node_is_gone_and_its_lease_cannot_be_read(site: Site) -> None:
    task, leading = site.led(5)
    del site.api.objects["nodes"]["n1"]
    site.api.broken.add("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1")
    site.passes(task, leading, 200)
    assert [problem.code for problem in site.problems(task)] == ["failover-left-off"]


def test_a_machine_is_not_forgotten_when_its_node_boots_on_unknown_hardware(site: Site) -> None:
    task, leading = site.led(5)
    site.power.silent = True
    site.passes(task, leading, 30)
    for ready in ("False", "True"):
        _report(site, ready, system_uuid=OTHER_UUID, bootID="boot-9", renewal=ready)
        site.passes(task, leading, 14)
    assert "failover-left-off" in [problem.code for problem in site.problems(task)]


def test_a_bmc_whose_answers_age_by_turns_is_told(site: Site) -> None:
    task, leading = site.task(), site.lead()
    state, write, turns = site.power.state, site.store.write, [0]

    def slowly(machine: str) -> Any:
        if site.power.off:
            turns[0] += 1
            site.clock.now += (5.2, 4.9)[turns[0] % 2]
        return state(machine)

    def write_slowly(change: Callable[[Transaction], Any]) -> Any:
        site.clock.now += 0.3
        return write(change)

    site.power.state, site.store.write = slowly, write_slowly  # type: ignore[method-assign]
    for _ in range(300):
        site.passes(task, leading, 1, 3.0)
        if site.api.objects["pods"] == {} or site.problems(task):
            return
    pytest.fail("nobody was told")


def test_a_pass_that_failed_is_repeated_at_once(site: Site) -> None:
    task, leading = site.task(), site.lead()
    for number in range(24):  # n1 is alive, until just after a whole pass
        _report(site, "True", renewal=f"t{number}")
        site.passes(task, leading, 1, 5.0)
    dies_at = site.clock.now
    site.api.fail("/version", answering(504))
    while not site.records():
        site.passes(task, leading, 1, 1.0)
        assert site.clock.now < dies_at + 40.0


def test_a_record_of_another_cluster_that_cannot_be_decoded_stops_nothing(site: Site) -> None:
    record = '{"uuid": "x", "cluster": "a", "node": "a1", "node_uid": "u", "phase": "cooling"}'
    row = {"uuid": OTHER_UUID, "cluster": "a", "node": "a1", "phase": "x", "started_at": 1.0, "active": "a/a1"}
    site.store.write(lambda tx: tx.remediations._tx.run(insert(schema.remediations), row | {"record": record}))
    site.passes(site.task(), site.lead(), 10)
    assert site.power.commands


def test_a_fault_in_the_check_of_ready_nodes_stops_no_fail_over(site: Site) -> None:
    def fail(*_: object, **__: object) -> None:
        raise KeyError("n7")

    task = site.task()
    task._check._record = fail  # type: ignore[method-assign]
    site.passes(task, site.lead(), 20)
    assert site.power.commands
