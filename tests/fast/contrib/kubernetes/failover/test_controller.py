"""The controller: its effects on a small API server and the shipped store, and how a successor goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import msgspec
import pytest

from ferroscope.config.options import Settings
from ferroscope.contracts.bmc import Power
from ferroscope.contracts.errors import LeaseLostError, NotFoundError
from ferroscope.contracts.store import Query
from ferroscope.contrib.kubernetes import role
from ferroscope.contrib.kubernetes.failover.terms import FailoverRules
from ferroscope.core.delivery import NotInspectableError
from ferroscope.core.remediation import Phase, Proof
from ferroscope.db import Transaction
from ferroscope_client.core.states import State
from tests.fast.contrib.kubernetes.failover.site import Site
from tests.fast.contrib.kubernetes.failover.test_client import node_document, pod_document
from tests.support import examples
from tests.support.faulty_kubernetes import answering


def test_a_dead_nodes_pods_and_volumes_are_freed_with_proof_and_everything_is_reported(site: Site) -> None:
    task, leading = site.led(4)
    assert site.power.commands == []
    site.passes(task, leading, 8)
    assert site.power.commands == [False, True]
    assert site.api.objects["pods"] == site.api.objects["attachments"] == {}
    back = node_document("n1")
    back["status"]["nodeInfo"]["bootID"] = "boot-2"
    site.api.put("nodes", back)
    site.api.put("leases", {"metadata": {"name": "n1"}, "spec": {"renewTime": "t2"}})
    site.passes(task, leading, 1)
    (record,) = site.records()
    assert (record.phase, record.proof, record.machine) == (Phase.DONE, Proof.POWER_OFF, site.machine.uuid)
    told = [one["reason"] for one in site.api.events]
    assert told[0] == "FailoverFailed"
    assert {"FailoverPowerOff", "FailoverProven", "FailoverReturned"} <= set(told)
    entries = site.store.read(lambda tx: tx.journal.list(Query(filters={"node": site.machine.uuid})))
    assert "proven" in [one.detail["what"] for one in entries]


@pytest.mark.parametrize("calls", [6, 20, 45, 70])
def test_a_successor_goes_on_wherever_the_leader_died(site: Site, calls: int) -> None:
    first, dying = site.task(), site.lead(calls)
    with pytest.raises(LeaseLostError):
        site.passes(first, dying, 60)
    site.passes(site.task(), site.lead(), 14)
    assert site.api.objects["pods"] == {}
    assert site.power.commands.count(False) >= 1
    assert len(site.records()) == 1


@pytest.mark.parametrize("calls", range(1, 12))
def test_an_answer_that_a_lost_lease_left_behind_starts_no_second_remediation(site: Site, calls: int) -> None:
    task = site.task()
    with suppress(LeaseLostError):
        task.step(site.lead(calls))
    site.passes(task, site.lead(), 2)
    (record,) = site.records()
    assert not record.ended


def test_a_successor_powers_nothing_off_before_it_can_know_which_nodes_are_silent(site: Site) -> None:
    site.passes(site.task(), site.lead(), 2)
    successor, leading = site.task(), site.lead()
    site.passes(successor, leading, 1, every=30.0)
    assert [one.reason for one in site.records()] == ["dwell"]
    assert site.power.commands == []
    site.passes(successor, leading, 5, every=5.0)
    assert site.power.commands == [False]


@pytest.mark.parametrize("step", [0.0, 3600.0, -3600.0])
def test_a_follower_that_takes_over_needs_no_time_but_that_until_the_lease_is_free(site: Site, step: float) -> None:
    leader, leading, follower = site.task(), site.lead(), site.task()
    for _ in range(16):
        site.passes(leader, leading, 1, every=1.0)
        follower.follow()
    for _ in range(7):
        follower.follow()
        site.clock.now += 1.0
    assert site.power.commands == []
    shown = site.clock.time
    site.clock.time = lambda: shown() + step  # type: ignore[method-assign]
    site.clock.now -= 7.0  # ``lead`` adds them
    site.passes(follower, site.lead(), 1, every=0.0)
    assert site.power.commands == [False]


@pytest.mark.parametrize(("gap", "reasons"), [(5.0, ["power-off"]), (FailoverRules().silence + 1.0, ["dwell"])])
def test_a_follower_that_could_not_look_for_a_while_begins_anew(site: Site, gap: float, reasons: list[str]) -> None:
    leader, leading, follower = site.task(), site.lead(), site.task()
    for _ in range(18):
        site.passes(leader, leading, 1, every=1.0)
        follower.follow()
    site.clock.now += gap - 7.0
    site.passes(follower, site.lead(), 1, every=0.0)
    assert [one.reason for one in site.records()] == reasons


def test_a_follower_asks_a_server_that_cannot_answer_again_in_a_second_and_changes_nothing(site: Site) -> None:
    follower = site.task()
    path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
    site.api.broken.add(path)
    follower.follow()
    site.api.broken.clear()
    for _ in range(30):
        site.clock.now += 0.5
        follower.follow()
    assert [call for call in site.api.calls if call[0] != "GET"] == []
    assert sum(call[1] == path for call in site.api.calls) == 3
    assert site.records() == []


def test_a_leader_that_could_not_look_for_a_while_begins_to_watch_again(site: Site) -> None:
    task, leading = site.led(2)
    site.passes(task, leading, 1, every=FailoverRules().silence + 5.0)
    assert [one.reason for one in site.records()] == ["watching"]
    assert site.power.commands == []


@pytest.mark.parametrize("fails", [True, False])
def test_nothing_is_powered_off_if_other_nodes_have_fallen_silent_while_bmcs_were_asked(
    site: Site, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    def renew(at: str) -> None:
        for name in ("n2", "n3"):
            site.api.put("leases", {"metadata": {"name": name}, "spec": {"renewTime": at}})

    task, leading = site.task(), site.lead()
    for number in range(4):
        renew(f"t{number}")
        site.passes(task, leading, 1)
    answer = site.power.state

    def answer_late(machine: str) -> tuple[Power, bool | None]:
        site.clock.now += FailoverRules().silence + 1.0
        if not fails:
            renew("later")
        return answer(machine)

    renew("t4")
    monkeypatch.setattr(site.power, "state", answer_late)
    site.passes(task, leading, 1)
    assert site.power.commands == ([] if fails else [False])


def test_a_leader_that_has_lost_its_lease_begins_nothing(site: Site) -> None:
    task, old = site.task(), site.lead()
    site.passes(task, old, 4, every=1.0)
    site.lead()
    site.clock.now += 30.0
    with pytest.raises(LeaseLostError):
        task.step(old)
    assert site.power.commands == []


def test_of_two_nodes_that_fall_silent_together_none_is_powered_off_though_one_is_marked_first(site: Site) -> None:
    for number, name in enumerate(("n1", "n2", "n3", "n4")):
        site.api.put("nodes", node_document(name))
        site.api.put("leases", {"metadata": {"name": name}, "spec": {"renewTime": f"{number}"}})
        site.api.put("pods", pod_document(f"db-{name}", node=name))
        site.store.write(lambda tx, name=name: tx.nodes.add(examples.node(name=f"m-{name}")))  # type: ignore[misc]
        site.api.objects["nodes"][name]["metadata"]["annotations"] = {"ferroscope.io/machine": f"m-{name}"}
    task, leading = site.task(rules=FailoverRules(max_unhealthy="1")), site.lead()
    begin = site.clock.now
    for second in range(120):
        site.clock.now = begin + second
        for name in ("n3", "n4", *(["n1", "n2"] if second < 5 else [])):  # then these two are cut off, and run on
            site.api.put("leases", {"metadata": {"name": name}, "spec": {"renewTime": f"{second}"}})
        for name, at in (("n1", 40), ("n2", 50)):
            if second == at:
                marked = site.api.objects["nodes"][name]
                marked["status"]["conditions"][0]["status"] = "Unknown"
                site.api.put("nodes", marked)
        task.step(leading)
    assert site.power.commands == []
    assert {one.reason for one in site.records()} == {"storm"}


def _conditions(site: Site, name: str = "n1") -> dict[str, tuple[str, str]]:
    found = site.api.objects["nodes"][name]["status"]["conditions"]
    return {one["type"]: (one["status"], one.get("message", "")) for one in found}


def test_a_machine_that_is_left_off_is_reported_on_the_node_in_an_event_and_in_the_status(site: Site) -> None:
    task, leading = site.task(rules=FailoverRules(power_on=False)), site.lead()
    said = site.passes(task, leading, 12)
    assert site.power.commands == [False]
    status, message = _conditions(site)["ferroscope.io/MachineLeftOff"]
    assert (status, message in said) == ("True", True)
    assert "m1 is off" in message
    assert _conditions(site)["Ready"][0] == "Unknown"
    assert [problem.code for problem in site.problems(task)] == ["failover-left-off"]
    told = [one["reason"] for one in site.api.events]
    assert told.count("FailoverLeftOff") == 1
    # An operator powers it on.
    site.power.off = False
    site.passes(task, leading, 2)
    assert _conditions(site)["ferroscope.io/MachineLeftOff"] == ("False", "")
    assert site.problems(task) == []


def test_a_condition_that_a_lost_call_has_left_behind_is_taken_back_from_a_ready_node(site: Site) -> None:
    stale = {"type": "ferroscope.io/MachineLeftOff", "status": "True", "message": "off"}
    site.api.objects["nodes"]["n2"]["status"]["conditions"].append(stale)
    task = site.task()
    site.passes(task, site.lead(), 2)
    assert _conditions(site, "n2")["ferroscope.io/MachineLeftOff"] == ("False", "")
    assert [one.node for one in site.records()] == ["n1"]


def test_the_status_never_says_that_all_nodes_are_ready_while_one_is_not(site: Site) -> None:
    task, leading = site.task(), site.lead()
    for tenth in range(700):
        site.clock.now += 0.1
        assert "n1: " in task.step(leading), tenth
        if site.records() and site.records()[0].phase is Phase.EVACUATED:
            break
    assert "proven" in [line["what"] for line in site.records()[0].log]


def test_the_status_tells_nodes_that_were_never_ready_from_ready_ones(site: Site) -> None:
    for name in ("n1", "n2", "n3"):
        site.api.put("nodes", node_document(name))
    site.api.objects["leases"].clear()
    task, leading = site.task(), site.lead()
    assert site.passes(task, leading, 3) == "all nodes are ready"
    new = node_document("n4", "Unknown")
    new["status"]["nodeInfo"]["bootID"] = ""
    site.api.put("nodes", new)
    assert site.passes(task, leading, 36) == "no node has failed; 1 are not ready, and never were"


def test_a_node_that_is_deleted_while_its_machine_is_off_leaves_a_trace(site: Site) -> None:
    task, leading = site.led(5)
    assert site.power.commands == [False]
    del site.api.objects["nodes"]["n1"]
    site.passes(task, leading, 2)
    (record,) = site.records()
    assert (record.detached, record.reason) == (True, "left-off")
    assert "m1" in record.message
    event = site.api.events[-1]
    assert (event["reason"], event["type"], event["involvedObject"]["name"]) == ("FailoverLeftOff", "Warning", "n1")


@pytest.mark.parametrize("calls", range(3, 6))
def test_a_machine_without_a_node_that_two_answers_say_is_on_is_not_looked_for_among_the_nodes(
    site: Site, calls: int
) -> None:
    task, leading = site.task(), site.lead()
    site.passes(task, leading, 6)
    del site.api.objects["nodes"]["n1"]
    site.passes(task, leading, 2)
    assert [one.detached for one in site.records()] == [True]
    site.power.off = False
    with suppress(LeaseLostError):
        task.step(site.lead(calls))
    site.passes(task, site.lead(), 2)
    assert all(one.ended for one in site.records())
    assert not [path for _, path in site.api.calls if "machine/" in path]


def test_a_dry_run_changes_nothing(site: Site) -> None:
    site.passes(site.task(dry_run=True, rules=FailoverRules(dwell=0.0)), site.lead(), 4)
    assert (site.power.commands, site.records(), site.api.events) == ([], [], [])
    assert {call[0] for call in site.api.calls} == {"GET"}


def test_a_machine_that_was_powered_off_is_inspected_once_if_the_operator_wishes(site: Site) -> None:
    inspect = partial(role.start_inspection, Settings(), {})
    task, leading = site.led(14, rules=FailoverRules(inspect=True), inspect=inspect)
    assert site.power.commands == [False]
    (inspection,) = site.store.read(lambda tx: tx.inspections.list(Query(filters={"node": site.machine.uuid})))
    assert inspection.state is State.STARTING
    assert [one.reason for one in site.records()] == ["inspecting"]
    # Its end, and then the power.
    node = site.store.read(lambda tx: tx.nodes.get(site.machine.uuid))
    site.store.write(lambda tx: tx.nodes.update(msgspec.structs.replace(node, state=State.FINISHED)))
    site.passes(task, leading, 8)
    assert site.power.commands == [False, True]


@pytest.mark.parametrize("error", [NotInspectableError("it is in the inbox"), NotFoundError("node", "just deleted")])
def test_a_machine_that_cannot_be_inspected_is_powered_on_all_the_same(site: Site, error: Exception) -> None:
    def refuse(_tx: Transaction, _machine: str) -> None:
        raise error

    site.passes(site.task(rules=FailoverRules(inspect=True), inspect=refuse), site.lead(), 20)
    assert site.power.commands == [False, True]


def test_an_api_that_does_not_answer_delays_and_too_few_api_servers_stop(site: Site) -> None:
    task, leading = site.task(api_servers=(site.api.url, site.api.url)), site.lead()
    site.api.fail("/nodes", answering(429, Retry_After="20"))
    assert "cannot read" in site.passes(task, leading, 3)
    for _ in range(40):
        site.api.fail("/readyz", answering(500))
    site.passes(task, leading, 20)
    assert site.power.commands == []
    site.api.faults.clear()
    site.passes(task, leading, 1)
    assert site.power.commands == [False]


class _Watch(threading.Event):
    """News that come while a step waits for them."""

    news: Callable[[], None] | None = None
    waits = 0

    def wait(self, timeout: float | None = None) -> bool:
        self.waits += 1
        if self.news is not None:
            self.news()
            self.set()
        return super().wait(0 if timeout is None else min(timeout, 0.01))


def test_with_nothing_to_do_a_step_waits_for_news_and_then_acts_at_once(site: Site) -> None:
    watch = _Watch()
    task, leading = site.task(wake=watch), site.lead()
    site.api.put("nodes", node_document("n1"))
    task.step(leading)
    assert watch.waits == 0
    task.step(leading)
    assert watch.waits == 1
    watch.news = site.fail
    task.step(leading)
    assert [one.node for one in site.records()] == ["n1"]
    watch.news = None
    task.step(leading)
    assert watch.waits == 2  # a remediation is in progress: nothing waits for news
