"""The controller: its effects on a small API server and the shipped store, and how a successor goes on."""

from __future__ import annotations

import math
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec
import pytest

from ferroscope.config.options import Settings
from ferroscope.contracts.bmc import Power
from ferroscope.contracts.errors import BmcError, LeaseLostError
from ferroscope.contracts.store import Query, Transaction
from ferroscope.core.delivery import Refused
from ferroscope.core.model import Lease
from ferroscope.core.remediation import Phase, Proof
from ferroscope.core.states import State
from ferroscope.failover.client import Kubernetes
from ferroscope.failover.controller import Failover
from ferroscope.failover.machine_list import MachineList
from ferroscope.failover.terms import Rules
from ferroscope.hardware import machine_identity
from ferroscope.runtime import failover
from tests.fast.failover.build import SYSTEM_UUID
from tests.fast.failover.test_client import api as api
from tests.fast.failover.test_client import kube as kube
from tests.fast.failover.test_client import node_document, pod_document
from tests.fast.failover.test_client import settings as settings
from tests.support import examples
from tests.support.faulty_kubernetes import FaultyKubernetes, answering
from tests.support.processes import PATIENCE
from tests.support.stores import open_store


class _Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now


class _Leading:
    """A leadership; ``lost`` after that many calls of ``keep_alive``."""

    def __init__(self, lease: Lease, lost: int = 1_000_000) -> None:
        self._lease = lease
        self.calls_left = lost

    @property
    def epoch(self) -> int:
        return self._lease.epoch

    def left(self) -> float:
        return 5.0

    def keep_alive(self) -> None:
        self.calls_left -= 1
        if self.calls_left < 0:
            raise LeaseLostError("killed")

    def fence(self, tx: Transaction) -> None:
        self.keep_alive()
        tx.leases.hold(self._lease)


class _Power:
    """A BMC. Commands take effect at once."""

    def __init__(self) -> None:
        self.off = False
        self.silent = False
        self.commands: list[bool] = []

    def state(self, machine: str) -> Power:
        if self.silent:
            raise BmcError("timed out", transient=True)
        return Power.OFF if self.off else Power.ON

    def set(self, machine: str, *, on: bool, left: Callable[[], float]) -> None:
        assert left() > 0
        self.commands.append(on)
        self.off = not on


class _Site:
    def __init__(self, api: FaultyKubernetes, kube: Kubernetes) -> None:
        self.api, self.kube, self.clock, self.power = api, kube, _Clock(), _Power()
        self.store = open_store(clock=self.clock)
        identity = {"serial": None, "uuid": SYSTEM_UUID, "macs": []}
        self.machine = examples.node(name="m1", internal={machine_identity.IDENTITY: identity})
        self.store.write(lambda tx: tx.nodes.add(self.machine))
        self.tasks: list[Failover] = []
        for name in ("n2", "n3"):
            api.put("nodes", node_document(name))
        self.fail()

    def fail(self) -> None:
        dead = node_document("n1", "Unknown")
        dead["status"]["nodeInfo"]["systemUUID"] = SYSTEM_UUID
        self.api.put("nodes", dead)
        self.api.put("leases", {"metadata": {"name": "n1"}, "spec": {"renewTime": "t1"}})
        self.api.put("pods", pod_document("db-0"))
        self.api.put("attachments", {"metadata": {"name": "va"}, "spec": {"attacher": "x", "nodeName": "n1"}})

    def task(self, **options: Any) -> Failover:
        options = {"cluster": "c", "clock": self.clock} | options
        task = Failover(self.kube, self.power, self.store, options.pop("rules", Rules()), **options)
        self.tasks.append(task)
        return task

    def lead(self, lost: int = 1_000_000) -> _Leading:
        """Win the lease, whoever had it: time passes until it is free."""
        self.clock.now += 7.0
        return _Leading(self.store.write(lambda tx: tx.leases.acquire("failover/c", "me", 6.5)), lost)

    def passes(self, task: Failover, leading: _Leading, number: int, every: float = 5.5) -> str:
        said = ""
        for _ in range(number):
            self.clock.now += every
            said = task.step(leading)
        return said

    def records(self) -> list[Any]:
        return list(self.store.read(lambda tx: tx.remediations.newest("c", 10)))


@pytest.fixture
def site(api: FaultyKubernetes, kube: Kubernetes) -> Iterator[_Site]:
    found = _Site(api, kube)
    yield found
    for task in found.tasks:
        task.close()


def test_a_dead_nodes_pods_and_volumes_are_freed_with_proof_and_everything_is_told(site: _Site) -> None:
    task, leading = site.task(), site.lead()
    site.passes(task, leading, 4)
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
def test_a_successor_goes_on_wherever_the_leader_died(site: _Site, calls: int) -> None:
    first, dying = site.task(), site.lead(calls)
    with pytest.raises(LeaseLostError):
        site.passes(first, dying, 60)
    site.passes(site.task(), site.lead(), 14)
    assert site.api.objects["pods"] == {}
    assert site.power.commands.count(False) >= 1
    assert len(site.records()) == 1


@pytest.mark.parametrize("calls", range(1, 12))
def test_an_answer_that_a_lost_lease_left_behind_starts_no_second_remediation(site: _Site, calls: int) -> None:
    task = site.task()
    with suppress(LeaseLostError):
        task.step(site.lead(calls))
    site.passes(task, site.lead(), 2)
    (record,) = site.records()
    assert not record.ended


def test_a_successor_powers_nothing_off_before_it_can_know_which_nodes_are_silent(site: _Site) -> None:
    site.passes(site.task(), site.lead(), 2)
    successor, leading = site.task(), site.lead()
    site.passes(successor, leading, 1, every=30.0)
    assert [one.reason for one in site.records()] == ["watching"]
    assert site.power.commands == []
    site.passes(successor, leading, 3, every=5.0)
    assert site.power.commands == [False]


def test_a_leader_that_could_not_look_for_a_while_begins_to_watch_again(site: _Site) -> None:
    task, leading = site.task(), site.lead()
    site.passes(task, leading, 2)
    site.passes(task, leading, 1, every=Rules().silence + 5.0)
    assert [one.reason for one in site.records()] == ["watching"]
    assert site.power.commands == []


def test_a_leader_that_has_lost_its_lease_begins_nothing(site: _Site) -> None:
    task, old = site.task(), site.lead()
    site.passes(task, old, 4, every=1.0)
    site.lead()
    site.clock.now += 30.0
    with pytest.raises(LeaseLostError):
        task.step(old)
    assert site.power.commands == []


def test_a_node_without_a_lease_and_without_a_machine_waits_for_an_operator(site: _Site) -> None:
    site.api.objects["leases"].clear()
    site.store.write(lambda tx: tx.nodes.remove(site.machine.uuid))
    task, leading = site.task(), site.lead()
    site.passes(task, leading, 6)
    assert [one.reason for one in site.records()] == ["machine-unknown"]
    document = site.api.objects["nodes"]["n1"]
    document["metadata"]["annotations"] = {"ferroscope.io/confirmed-off": "boot-n1"}
    site.api.put("nodes", document)
    site.passes(task, leading, 3)
    assert site.api.objects["pods"] == site.api.objects["attachments"] == {}


@pytest.mark.parametrize("mistake", ["annotation", "provider ID", "copied"])
def test_a_mistaken_name_never_switches_off_the_machine_of_a_ready_node(site: _Site, mistake: str) -> None:
    site.store.write(lambda tx: tx.nodes.remove(site.machine.uuid))
    of_n2 = str(uuid.UUID(int=2 << 100))
    identity = {"serial": None, "uuid": of_n2, "macs": []}
    other = examples.node(name="m2", internal={machine_identity.IDENTITY: identity})
    site.store.write(lambda tx: tx.nodes.add(other))
    healthy = site.api.objects["nodes"]["n2"]
    healthy["status"]["nodeInfo"]["systemUUID"] = of_n2
    site.api.put("nodes", healthy)
    failed = site.api.objects["nodes"]["n1"]
    if mistake == "provider ID":
        failed["spec"]["providerID"] = f"ferroscope://{other.uuid}"
    elif mistake == "annotation":
        failed["metadata"]["annotations"] = {"ferroscope.io/machine": "m2"}
    else:  # it reports nothing of its own, and n2 is the only one to contradict
        failed["status"]["nodeInfo"]["systemUUID"] = of_n2
    site.api.put("nodes", failed)
    site.passes(site.task(), site.lead(), 14)
    assert site.power.commands == []
    assert set(site.api.objects["pods"]) == {"db-0"}
    assert [one.reason for one in site.records()] == [
        "machine-shared" if mistake == "copied" else "machine-contradicts"
    ]


def test_of_two_nodes_that_fall_silent_together_none_is_powered_off_though_one_is_marked_first(site: _Site) -> None:
    for number, name in enumerate(("n1", "n2", "n3", "n4")):
        site.api.put("nodes", node_document(name))
        site.api.put("leases", {"metadata": {"name": name}, "spec": {"renewTime": f"{number}"}})
        site.api.put("pods", pod_document(f"db-{name}", node=name))
        site.store.write(lambda tx, name=name: tx.nodes.add(examples.node(name=f"m-{name}")))  # type: ignore[misc]
        site.api.objects["nodes"][name]["metadata"]["annotations"] = {"ferroscope.io/machine": f"m-{name}"}
    task, leading = site.task(rules=Rules(max_unhealthy="1")), site.lead()
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


def test_a_pod_with_a_finalizer_holds_up_neither_volumes_nor_the_power(site: _Site) -> None:
    kept = pod_document("kept")
    kept["metadata"]["finalizers"] = ["example.com/backup"]
    site.api.put("pods", kept)
    site.passes(site.task(), site.lead(), 20)
    assert site.power.commands == [False, True]
    assert (set(site.api.objects["pods"]), site.api.objects["attachments"]) == ({"kept"}, {})
    assert len([call for call in site.api.calls if call == ("DELETE", "/api/v1/namespaces/shop/pods/kept")]) == 1
    (record,) = site.records()
    assert any("shop/kept (example.com/backup)" in line["text"] for line in record.log)


def _with_claim(site: _Site, name: str, *, only_on: str = "") -> None:
    pod = pod_document(name)
    pod["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": f"data-{name}"}}]
    site.api.put("pods", pod)
    site.api.put("claims", {"metadata": {"name": f"data-{name}"}, "spec": {"volumeName": f"pv-{name}"}})
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [only_on]}]}]
    affinity = {"required": {"nodeSelectorTerms": terms}} if only_on else None
    site.api.put("volumes", {"metadata": {"name": f"pv-{name}"}, "spec": {"nodeAffinity": affinity}})
    source = {"persistentVolumeName": f"pv-{name}"}
    spec = {"attacher": "x", "nodeName": "n1", "source": source}
    site.api.put("attachments", {"metadata": {"name": f"va-{name}"}, "spec": spec})


def test_a_node_whose_pods_all_have_local_volumes_is_not_powered_off(site: _Site) -> None:
    site.api.objects["attachments"].clear()
    _with_claim(site, "db-0", only_on="n1")
    site.passes(site.task(), site.lead(), 10)
    assert [one.reason for one in site.records()] == ["nowhere-to-go"]
    assert site.power.commands == []


def test_a_pod_with_a_local_volume_keeps_only_that_and_claims_are_read_once(site: _Site) -> None:
    site.api.objects["attachments"].clear()
    _with_claim(site, "db-0")
    _with_claim(site, "local", only_on="n1")
    site.passes(site.task(), site.lead(), 20)
    assert set(site.api.objects["pods"]) == {"local"}
    assert set(site.api.objects["attachments"]) == {"va-local"}
    assert site.power.commands == [False, True]
    reads = [path for _, path in site.api.calls if "persistentvolume" in path]
    assert len(reads) == len(set(reads)) == 4


def _conditions(site: _Site, name: str = "n1") -> dict[str, tuple[str, str]]:
    found = site.api.objects["nodes"][name]["status"]["conditions"]
    return {one["type"]: (one["status"], one.get("message", "")) for one in found}


def test_a_machine_that_is_left_off_is_told_on_the_node_in_an_event_and_in_the_status(site: _Site) -> None:
    task, leading = site.task(rules=Rules(power_on=False)), site.lead()
    said = site.passes(task, leading, 12)
    assert site.power.commands == [False]
    status, message = _conditions(site)["ferroscope.io/MachineLeftOff"]
    assert (status, message in said) == ("True", True)
    assert "m1 is off" in message
    assert _conditions(site)["Ready"][0] == "Unknown"
    assert task.problem is not None
    assert task.problem.code == "failover-left-off"
    told = [one["reason"] for one in site.api.events]
    assert told.count("FailoverLeftOff") == 1
    # An operator powers it on.
    site.power.off = False
    site.passes(task, leading, 2)
    assert _conditions(site)["ferroscope.io/MachineLeftOff"] == ("False", "")
    assert task.problem is None


def test_a_condition_that_a_lost_call_has_left_behind_is_taken_back_from_a_ready_node(site: _Site) -> None:
    stale = {"type": "ferroscope.io/MachineLeftOff", "status": "True", "message": "off"}
    site.api.objects["nodes"]["n2"]["status"]["conditions"].append(stale)
    task = site.task()
    site.passes(task, site.lead(), 2)
    assert _conditions(site, "n2")["ferroscope.io/MachineLeftOff"] == ("False", "")
    assert [one.node for one in site.records()] == ["n1"]


@pytest.mark.parametrize("status", [403, 500])
def test_a_deletion_that_is_refused_for_good_is_asked_for_rarely_and_does_not_hold_up_the_rest(
    site: _Site, status: int
) -> None:
    site.api.put("pods", pod_document("kept"))
    site.api.objects["attachments"]["va"]["spec"]["source"] = {"persistentVolumeName": "of-db-0"}
    task, leading = site.task(rules=Rules(dwell=0.0)), site.lead()
    for _ in range(900):
        site.api.fail("/pods/kept", answering(status, "the webhook says no"))
    site.passes(task, leading, 70)
    assert site.power.commands == [False, True]
    assert (set(site.api.objects["pods"]), site.api.objects["attachments"]) == ({"kept"}, {})
    assert len([call for call in site.api.calls if call == ("DELETE", "/api/v1/namespaces/shop/pods/kept")]) == 8
    (record,) = site.records()
    (text,) = [line["text"] for line in record.log if line["what"] == "gave-up"]
    assert "shop/kept" in text
    assert "the webhook says no" in text


def test_a_deletion_that_conflicts_is_repeated_for_ever(site: _Site) -> None:
    task, leading = site.task(rules=Rules(dwell=0.0)), site.lead()
    for _ in range(12):
        site.api.fail("/pods/db-0", answering(409))
    site.passes(task, leading, 100, every=5.5)
    assert site.api.objects["pods"] == {}


def test_the_status_never_says_that_all_nodes_are_ready_while_one_is_not(site: _Site) -> None:
    task, leading = site.task(), site.lead()
    for tenth in range(700):
        site.clock.now += 0.1
        assert "n1: " in task.step(leading), tenth
        if site.records() and site.records()[0].phase is Phase.EVACUATED:
            break
    assert "proven" in [line["what"] for line in site.records()[0].log]


def test_the_status_tells_nodes_that_were_never_ready_from_ready_ones(site: _Site) -> None:
    for name in ("n1", "n2", "n3"):
        site.api.put("nodes", node_document(name))
    site.api.objects["leases"].clear()
    task, leading = site.task(), site.lead()
    assert site.passes(task, leading, 3) == "all nodes are ready"
    new = node_document("n4", "Unknown")
    new["status"]["nodeInfo"]["bootID"] = ""
    site.api.put("nodes", new)
    assert site.passes(task, leading, 3) == "no node has failed; 1 are not ready, and never were"


def _two_machines(site: _Site) -> Any:
    """Have the node n1 say nothing of its machine but the annotation, which names the wrong one of m1 and m2."""
    other = examples.node(name="m2")
    site.store.write(lambda tx: tx.nodes.add(other))
    failed = site.api.objects["nodes"]["n1"]
    failed["status"]["nodeInfo"]["systemUUID"] = ""
    failed["metadata"]["annotations"] = {"ferroscope.io/machine": "m2"}
    site.api.put("nodes", failed)
    asked, ask = [], site.power.state

    def state(machine: str) -> Power:
        asked.append(machine)
        return ask(machine)

    site.power.state = state  # type: ignore[method-assign]
    return other, asked


def _annotate(site: _Site, name: str) -> None:
    node = site.api.objects["nodes"]["n1"]
    node["metadata"]["annotations"] = {"ferroscope.io/machine": name}
    site.api.put("nodes", node)


def test_an_annotation_that_is_corrected_in_time_counts_in_the_next_pass(site: _Site) -> None:
    other, asked = _two_machines(site)
    site.power.silent = True
    task, leading = site.task(), site.lead()
    site.passes(task, leading, 6)
    assert set(asked) == {other.uuid}
    _annotate(site, "m1")
    site.power.silent = False
    asked.clear()
    site.passes(task, leading, 8)
    assert set(asked) == {site.machine.uuid}
    assert site.power.commands == [False, True]
    assert [one.machine for one in site.records()] == [site.machine.uuid]


@pytest.mark.parametrize("change", ["inspected", "deleted", "maintenance"])
def test_where_reading_all_machines_takes_long_those_that_matter_are_read_in_each_pass(
    site: _Site, change: str
) -> None:
    other, _ = _two_machines(site)
    site.api.objects["nodes"]["n1"]["status"]["nodeInfo"]["systemUUID"] = str(uuid.UUID(int=4 << 100))
    task, leading = site.task(), site.lead()
    task.step(leading)
    task._reader._machines._due_at = math.inf
    if change == "deleted":
        site.store.write(lambda tx: tx.nodes.remove(other.uuid))
    else:
        identity = {"serial": None, "uuid": str(uuid.UUID(int=5 << 100)), "macs": []}
        internal = {machine_identity.IDENTITY: identity} if change == "inspected" else {}
        changed = msgspec.structs.replace(other, internal=internal, maintenance=change == "maintenance")
        site.store.write(lambda tx: tx.nodes.update(changed))
    site.passes(task, leading, 5)
    assert site.power.commands == []
    reasons = {"inspected": "machine-contradicts", "deleted": "machine-unknown", "maintenance": "maintenance"}
    assert [one.reason for one in site.records()] == [reasons[change]]


def test_reading_all_machines_takes_a_fifth_of_the_time_at_most(site: _Site) -> None:
    machines, read = MachineList(site.store, site.clock), []

    def progress() -> None:
        read.append(1)
        site.clock.now += 2.0

    assert machines.all(progress)[1]
    site.clock.now += 9.9
    assert not machines.all(progress)[1]
    site.clock.now += 0.1
    assert machines.all(progress)[1]
    assert len(read) == 2


@pytest.mark.parametrize("change", ["corrected", "deleted"])
def test_an_annotation_that_is_corrected_too_late_stops_and_undoes_the_command(site: _Site, change: str) -> None:
    other, _ = _two_machines(site)
    task, leading = site.task(), site.lead()
    site.passes(task, leading, 5)
    assert site.power.commands == [False]
    if change == "deleted":
        site.store.write(lambda tx: tx.nodes.remove(other.uuid))
    else:
        _annotate(site, "m1")
    site.passes(task, leading, 12)
    assert site.power.commands == ([False] if change == "deleted" else [False, True])
    assert set(site.api.objects["pods"]) == {"db-0"}
    (record,) = site.records()
    assert (record.machine, record.stopped) == (other.uuid, "machine-contradicts")
    assert bool(record.left_off) is (change == "deleted")
    told = [one["reason"] for one in site.api.events]
    assert "FailoverMachineContradicts" in told
    assert ("FailoverLeftOff" in told) is (change == "deleted")


def test_a_node_that_is_deleted_while_its_machine_is_off_leaves_a_trace(site: _Site) -> None:
    task, leading = site.task(), site.lead()
    site.passes(task, leading, 5)
    assert site.power.commands == [False]
    del site.api.objects["nodes"]["n1"]
    site.passes(task, leading, 2)
    (record,) = site.records()
    assert (record.phase, record.reason) == (Phase.DONE, "left-off")
    assert record.left_off
    assert "m1" in record.message
    event = site.api.events[-1]
    assert (event["reason"], event["type"], event["involvedObject"]["name"]) == ("FailoverLeftOff", "Warning", "n1")


def test_a_dry_run_changes_nothing(site: _Site) -> None:
    site.passes(site.task(dry_run=True, rules=Rules(dwell=0.0)), site.lead(), 4)
    assert (site.power.commands, site.records(), site.api.events) == ([], [], [])
    assert {call[0] for call in site.api.calls} == {"GET"}


def test_a_machine_that_was_powered_off_is_inspected_once_if_the_operator_wishes(site: _Site) -> None:
    inspect = partial(failover.start_inspection, Settings(), {})
    task, leading = site.task(rules=Rules(inspect=True), inspect=inspect), site.lead()
    site.passes(task, leading, 14)
    assert site.power.commands == [False]
    (inspection,) = site.store.read(lambda tx: tx.inspections.list(Query(filters={"node": site.machine.uuid})))
    assert inspection.state is State.STARTING
    assert [one.reason for one in site.records()] == ["inspecting"]
    # Its end, and then the power.
    node = site.store.read(lambda tx: tx.nodes.get(site.machine.uuid))
    site.store.write(lambda tx: tx.nodes.update(msgspec.structs.replace(node, state=State.FINISHED)))
    site.passes(task, leading, 8)
    assert site.power.commands == [False, True]


def test_a_machine_that_cannot_be_inspected_is_powered_on_all_the_same(site: _Site) -> None:
    def refuse(_tx: Transaction, _machine: str) -> None:
        raise Refused("it is in the inbox")

    site.passes(site.task(rules=Rules(inspect=True), inspect=refuse), site.lead(), 20)
    assert site.power.commands == [False, True]


def test_the_bmcs_of_all_failed_nodes_are_asked_and_commanded_at_once(site: _Site) -> None:
    other = node_document("n2", "Unknown")
    other["metadata"]["annotations"] = {"ferroscope.io/machine": "m2"}
    site.api.put("nodes", other)
    site.api.put("pods", pod_document("db-1", node="n2"))
    site.store.write(lambda tx: tx.nodes.add(examples.node(name="m2")))
    together = threading.Barrier(2, timeout=PATIENCE)  # one after the other would break it
    ask, command = site.power.state, site.power.set

    def state(machine: str) -> Power:
        together.wait()
        return ask(machine)

    def power(machine: str, *, on: bool, left: Callable[[], float]) -> None:
        together.wait()
        command(machine, on=on, left=left)

    site.power.state, site.power.set = state, power  # type: ignore[method-assign]
    site.passes(site.task(rules=Rules(max_unhealthy="100%", dwell=1.0, silence=6.0)), site.lead(), 3)
    assert site.power.commands == [False, False]


def test_what_was_seen_too_long_ago_forces_nothing_and_the_bmc_is_asked_again(site: _Site) -> None:
    task, leading = site.task(rules=Rules(proof_age=3.0)), site.lead()
    write, slow = site.store.write, [4.0]

    def slowly(change: Callable[[Transaction], Any]) -> Any:
        done = write(change)
        if any(one.proof is Proof.POWER_OFF for one in site.records()) and slow:
            site.clock.now += slow.pop()
        return done

    site.store.write = slowly  # type: ignore[method-assign]
    while slow:
        site.passes(task, leading, 1)
    assert [one.phase for one in site.records()] == [Phase.EVACUATING]
    assert not [call for call in site.api.calls if call[0] == "DELETE"]
    site.passes(task, leading, 1)
    assert site.api.objects["pods"] == {}


def test_a_kubelet_that_comes_back_while_the_decision_is_stored_keeps_its_pods(site: _Site) -> None:
    task, leading = site.task(), site.lead()
    write = site.store.write

    def meanwhile(change: Callable[[Transaction], Any]) -> Any:
        done = write(change)
        if any(one.proof is Proof.POWER_OFF for one in site.records()):
            site.api.put("leases", {"metadata": {"name": "n1"}, "spec": {"renewTime": "t2"}})
        return done

    site.store.write = meanwhile  # type: ignore[method-assign]
    site.passes(task, leading, 12)
    assert site.api.objects["pods"]
    assert "proof-ended" in [line["what"] for line in site.records()[0].log]


def test_a_bmc_that_is_silent_delays_only_its_own_node_and_is_asked_once(site: _Site) -> None:
    other = node_document("n2", "Unknown")
    other["metadata"]["annotations"] = {"ferroscope.io/machine": "m2"}
    site.api.put("nodes", other)
    site.api.put("pods", pod_document("db-1", node="n2"))
    silent = examples.node(name="m2")
    site.store.write(lambda tx: tx.nodes.add(silent))
    released, asked, ask = threading.Event(), [], site.power.state

    def state(machine: str) -> Power:
        if machine == silent.uuid:
            asked.append(machine)
            released.wait(PATIENCE)
        return ask(machine)

    site.power.state = state  # type: ignore[method-assign]
    rules = Rules(max_unhealthy="100%")
    task, leading = site.task(rules=rules), site.lead()
    ticking = threading.Timer(0.3, lambda: setattr(site.clock, "now", site.clock.now + 2.0))
    ticking.start()  # the first pass waits for so long at most
    try:
        site.passes(task, leading, 12)
        assert set(site.api.objects["pods"]) == {"db-1"}
        assert len(asked) == 1
        reasons = {one.node: one.reason for one in site.records()}
        assert reasons["n2"] == "bmc-error"
    finally:
        ticking.join()
        released.set()


def test_a_bmc_that_takes_its_time_to_answer_does_not_make_the_dwell_time_longer(site: _Site) -> None:
    ask = site.power.state

    def state(machine: str) -> Power:
        site.clock.now += 1.2
        return ask(machine)

    site.power.state = state  # type: ignore[method-assign]
    task, leading = site.task(), site.lead()
    site.passes(task, leading, 1)
    (record,) = site.records()
    assert (record.started_at, record.not_before) == (site.clock.now - 1.2, site.clock.now - 1.2 + Rules().dwell)


def test_a_bmc_is_asked_when_its_answer_counts_and_not_a_moment_before(site: _Site) -> None:
    asked, ask = [], site.power.state

    def state(machine: str) -> Power:
        asked.append(site.clock.now)
        return ask(machine)

    site.power.state = state  # type: ignore[method-assign]
    task, leading = site.task(), site.lead()
    site.passes(task, leading, 1, every=0.0)
    begin = site.clock.now
    for seconds, commands in ((10.0, []), (19.5, []), (20.0, [False])):  # the dwell time
        site.clock.now = begin + seconds
        task.step(leading)
        assert site.power.commands == commands
    for seconds in (21.0, 25.5):
        site.clock.now = begin + seconds
        task.step(leading)
        assert site.api.objects["pods"]
    site.clock.now = begin + 26.0  # 5 s after it was first seen off
    task.step(leading)
    assert site.api.objects["pods"] == {}
    assert asked == [begin + seconds for seconds in (0.0, 10.0, 20.0, 21.0, 26.0)]


@pytest.mark.parametrize("force", [False, True])
def test_mode_label_frees_a_node_beside_one_that_failed_last_week_and_by_force_without_budgets(
    site: _Site, force: bool
) -> None:
    site.api.put("nodes", node_document("n4"))
    for name in ("old", "older"):
        dead = node_document(name, "Unknown")
        dead["status"]["conditions"][0]["lastTransitionTime"] = "2026-01-02T03:04:05Z"
        site.api.put("nodes", dead)
    site.api.objects["attachments"].clear()
    _with_claim(site, "db-0")
    site.api.objects["pods"]["db-0"]["metadata"]["labels"] = {"app": "cache"}
    site.api.budget = 0
    rules = Rules(mode="label", labels={"app": "cache"}, namespaces=("shop",), label_force=force)
    site.passes(site.task(rules=rules), site.lead(), 3)
    evicted = ("POST", "/api/v1/namespaces/shop/pods/db-0/eviction") in site.api.calls
    assert (set(site.api.objects["pods"]), evicted) == (set() if force else {"db-0"}, not force)
    assert set(site.api.objects["attachments"]) == (set() if force else {"va-db-0"})
    assert site.power.commands == []


def test_mode_label_sees_a_storm_in_nodes_that_have_just_failed(site: _Site) -> None:
    just = node_document("n2", "Unknown")
    just["status"]["conditions"][0]["lastTransitionTime"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    site.api.put("nodes", just)
    site.api.objects["pods"]["db-0"]["metadata"]["labels"] = {"app": "cache"}
    rules = Rules(mode="label", labels={"app": "cache"}, namespaces=("shop",), label_force=True)
    site.passes(site.task(rules=rules), site.lead(), 3)
    assert set(site.api.objects["pods"]) == {"db-0"}


def test_mode_label_leaves_pods_alone_as_long_as_a_disruption_budget_says_so(site: _Site) -> None:
    for name in ("db-0", "db-1"):
        chosen = pod_document(name)
        chosen["metadata"]["labels"] = {"app": "cache"}
        site.api.put("pods", chosen)
    site.api.budget = 0
    rules = Rules(mode="label", labels={"app": "cache"}, namespaces=("shop",))
    task, leading = site.task(rules=rules), site.lead()
    site.passes(task, leading, 3)
    assert ("POST", "/api/v1/namespaces/shop/pods/db-0/eviction") in site.api.calls
    assert set(site.api.objects["pods"]) == {"db-0", "db-1"}
    site.api.budget = 1
    site.passes(task, leading, 2)
    assert len(site.api.objects["pods"]) == 1
    site.api.budget = 1
    site.passes(task, leading, 1)
    assert (site.api.objects["pods"], site.power.commands) == ({}, [])


def test_a_step_that_fails_is_repeated_and_a_silent_bmc_forces_nothing(site: _Site) -> None:
    task, leading = site.task(), site.lead()
    site.passes(task, leading, 6)
    assert site.power.commands == [False]
    site.power.silent = True
    site.passes(task, leading, 4)
    assert site.api.objects["pods"]
    site.power.silent = False
    site.api.fail("/pods/db-0", answering(409))
    site.passes(task, leading, 4)
    assert site.api.objects["pods"] == {}


def test_an_api_that_does_not_answer_delays_and_too_few_api_servers_stop(site: _Site) -> None:
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


def test_what_was_begun_by_proof_is_brought_to_its_end_though_the_mode_has_changed(site: _Site) -> None:
    leading = site.lead()
    site.passes(site.task(), leading, 5)
    assert site.power.commands == [False]
    rules = Rules(mode="label", labels={"app": "cache"}, namespaces=("shop",))
    site.passes(site.task(rules=rules), leading, 8)
    assert site.power.commands == [False, True]
    assert site.api.objects["pods"] == {}
