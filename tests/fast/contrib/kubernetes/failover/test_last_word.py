"""What an operator says counts before each command, and what a measurement contradicts is never switched."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import wait

import msgspec
import pytest

from ferroscope.contracts.bmc import Power
from ferroscope.contracts.errors import BmcError
from ferroscope.contrib.kubernetes.failover.cluster import CONFIRMED_OFF
from ferroscope.contrib.kubernetes.failover.evidence import PodEvidence, weigh_evidence
from ferroscope.contrib.kubernetes.failover.terms import DeletePod, FailoverRules
from ferroscope.core.remediation import Phase, Proof
from ferroscope.hardware.machine_identity import MachineIdentity
from ferroscope_client.core.states import State
from tests.fast.contrib.kubernetes.failover.build import MACHINE, SYSTEM_UUID, Case, node
from tests.fast.contrib.kubernetes.failover.site import Site
from tests.fast.contrib.kubernetes.failover.test_client import node_document
from tests.support.processes import PATIENCE
from tests.support.rows import each

OTHER_UUID = "00112233-4455-6677-8899-aabbccddeeff"


def _annotate(site: Site, **annotations: str) -> None:
    document = site.api.objects["nodes"]["n1"]
    document["metadata"]["annotations"] = {f"ferroscope.io/{key}": value for key, value in annotations.items()}
    site.api.put("nodes", document)


def _cordon(site: Site) -> None:
    document = site.api.objects["nodes"]["n1"]
    document["spec"]["unschedulable"] = True
    site.api.put("nodes", document)


def _change(site: Site, **fields: object) -> None:
    site.store.write(lambda tx: tx.nodes.update(msgspec.structs.replace(tx.nodes.get(site.machine.uuid), **fields)))


def _forbid(site: Site) -> None:
    _change(site, attributes={"disable_power_off": True})


PROHIBITIONS: dict[str, tuple[Callable[[Site], object], str]] = {
    "disable_power_off": (_forbid, "power-is-on"),
    "maintenance": (lambda site: _change(site, maintenance=True), "maintenance"),
    "inspection": (lambda site: _change(site, state=State.STARTING), "inspecting"),
    "cordon": (_cordon, "cordoned"),
    "paused node": (lambda site: _annotate(site, **{"failover-paused": "true"}), "paused"),
    "paused cluster": (
        lambda site: site.store.write(lambda tx: tx.remediations.pause("c", "wrong rack", "ann")),
        "failover-paused",
    ),
    "contradiction": (
        lambda site: setattr(site.power, "identity_of", MachineIdentity(uuid=OTHER_UUID)),
        "machine-contradicts",
    ),
    "other machine": (lambda site: _annotate(site, machine="m9"), "machine-contradicts"),
}


@pytest.mark.parametrize("prohibition", PROHIBITIONS)
@pytest.mark.parametrize("first", ["before", "refused", "ignored"])
def test_a_prohibition_counts_before_the_first_command_and_before_each_repetition(
    site: Site, prohibition: str, first: str
) -> None:
    forbid, reason = PROHIBITIONS[prohibition]
    accepted = site.power.set

    def refuse(machine: str, *, on: bool, left: Callable[[], float]) -> None:
        site.power.commands.append(on)
        if first == "refused":
            raise BmcError("busy", transient=True)

    site.power.set = refuse  # type: ignore[method-assign]
    task, leading = site.task(), site.lead()
    if first != "before":
        site.passes(task, leading, 6)
    sent = len(site.power.commands)
    assert bool(sent) is (first != "before")
    forbid(site)
    site.power.set = accepted  # type: ignore[method-assign]
    site.passes(task, leading, 60)
    assert len(site.power.commands) == sent
    assert set(site.api.objects["pods"]) == {"db-0"}
    (record,) = site.records()
    assert record.reason in (reason, "machine-unknown")


def test_a_restart_that_forbids_to_power_off_stops_the_repetition(site: Site) -> None:
    site.power.set = lambda _machine, *, on, left: site.power.commands.append(on)  # type: ignore[method-assign]  # noqa: ARG005
    site.passes(site.task(), site.lead(), 6)
    assert site.power.commands == [False]
    site.passes(site.task(rules=FailoverRules(power_off=False)), site.lead(), 60)
    assert site.power.commands == [False]
    assert [record.reason for record in site.records()] == ["power-is-on"]


def test_a_pause_of_the_cluster_stops_what_was_proven_and_resuming_goes_on(site: Site) -> None:
    task, leading = site.led(5)
    assert site.power.commands == [False]
    site.store.write(lambda tx: tx.remediations.pause("c", "wrong rack", "ann"))
    said = site.passes(task, leading, 30)
    assert (site.power.commands, set(site.api.objects["pods"])) == ([False], {"db-0"})
    assert "paused: wrong rack (by ann)" in said
    assert {problem.code for problem in site.problems(task)} == {"failover-paused", "failover-left-off"}
    assert site.store.write(lambda tx: tx.remediations.resume("c"))
    site.passes(task, leading, 30)
    assert (site.power.commands, site.api.objects["pods"]) == ([False, True], {})


@pytest.mark.parametrize("serial", ["", "7QKWJY1"])
def test_a_machine_that_only_people_name_is_not_switched_and_people_are_told(site: Site, serial: str) -> None:
    _change(site, internal={})
    _annotate(site, machine="m1", **({"serial-number": serial} if serial else {}))
    site.power.identity_of = None
    task, _ = site.led(130)
    assert site.power.commands == []
    (record,) = site.records()
    assert (record.reason, record.escalated) == ("machine-unproven", "machine-unproven")
    assert [problem.code for problem in site.problems(task)] == ["failover-no-progress"]


_NODE = node(annotations={"ferroscope.io/serial-number": "7QKWJY1"})
_IN_BAND = {"in_band_bmcs": frozenset({"10.0.0.5"})}


@each(
    ("machine", "bmc", "addresses", "facts", "contradicts"),
    [
        ({"system_uuid": None}, MachineIdentity(uuid=SYSTEM_UUID), "", 1, False),
        ({"system_uuid": None}, MachineIdentity(uuid="44454c4c-5100-104b-8057-b7c04f4a5931"), "", 1, False),
        ({}, MachineIdentity(uuid=OTHER_UUID), "", 0, True),
        ({}, MachineIdentity(serial="7QKWJY1"), "", 1, False),
        ({}, MachineIdentity(serial="7qkw jy1"), "", 1, False),
        ({}, MachineIdentity(serial="SN2"), "", 0, True),
        ({}, MachineIdentity(serial="CN-BOARD-1", uuid=SYSTEM_UUID), "", 1, False),  # the board's, as of some vendors
        ({"system_uuid": None, "serial": None}, MachineIdentity(serial="7QKWJY1"), "", 0, False),  # a person's word
        ({"system_uuid": None, "serial": None}, MachineIdentity(serial="SN2"), "", 0, True),
        ({}, None, "10.0.0.5", 0, False),
        (_IN_BAND, None, "10.0.0.5", 1, False),
        (_IN_BAND, None, "10.0.0.6", 0, True),
        (_IN_BAND, MachineIdentity(uuid=SYSTEM_UUID), "10.0.0.6", 1, True),
        (_IN_BAND, None, "::ffff:10.0.0.5", 1, False),
        (_IN_BAND, None, "fd00::5", 0, False),  # of another family
        ({"in_band_bmcs": frozenset({"fe80::5"})}, None, "fd00::5", 0, False),
        # What the ramdisk read on another machine says nothing of this node's.
        (_IN_BAND | {"system_uuid": OTHER_UUID, "serial": None}, None, "10.0.0.5", 0, False),
    ],
)
def test_what_was_measured_agrees_with_the_node_or_contradicts_it(
    machine: dict[str, object], bmc: MachineIdentity | None, addresses: str, facts: int, contradicts: bool
) -> None:
    evidence = weigh_evidence(_NODE, msgspec.structs.replace(MACHINE, **machine), bmc, frozenset({addresses} - {""}))
    assert (len(evidence.facts), bool(evidence.contradiction)) == (facts, contradicts)


def test_a_system_uuid_that_others_have_proves_nothing() -> None:
    machine = msgspec.structs.replace(MACHINE, in_band_bmcs=frozenset({"10.0.0.5"}))
    bmc = MachineIdentity(serial="7QKWJY1", uuid=SYSTEM_UUID)
    assert weigh_evidence(_NODE, machine, bmc, frozenset({"10.0.0.5"}), is_common=True) == PodEvidence()


def test_a_contradiction_after_the_power_off_stops_and_powers_the_machine_on_again() -> None:
    case = Case()
    case.proven()
    case.evidence = PodEvidence(contradiction="its BMC is that of another machine", is_certain=True)
    decision = case.step(1.0)
    assert (decision.reason, case.record.phase, case.record.proof) == (
        "machine-contradicts",
        Phase.RETURNING,
        Proof.NONE,
    )
    assert not any(isinstance(effect, DeletePod) for effect in decision.effects)


def test_a_bmc_that_does_not_say_which_machine_it_is_any_more_keeps_the_proof() -> None:
    case = Case()
    assert case.proven().effects
    case.evidence = PodEvidence()
    assert case.step(1.0).effects


def test_a_confirmation_counts_only_if_it_is_newer_than_the_failure() -> None:
    case = Case()
    case.power_off = None
    case.node = node(annotations={CONFIRMED_OFF: "boot-1"})
    for _ in range(20):
        assert case.step(6.0).effects == ()
    assert "confirmation-ignored" in [line["what"] for line in case.record.log]
    case.node = node()
    case.step(1.0)
    case.node = node(annotations={CONFIRMED_OFF: "boot-1"})
    assert case.step(1.0).effects


def test_a_confirmation_that_was_contradicted_once_does_not_count_again() -> None:
    case = Case()
    case.power_off = None
    case.step()
    case.node = node(annotations={CONFIRMED_OFF: "boot-1"})
    assert case.step(30.0).effects
    case.renewal = "r2"  # it was wrong
    assert case.step(1.0).reason == "proof-ended"
    for _ in range(100):
        assert case.step(6.0).effects == ()


def test_an_operators_confirmation_passes_the_storm_guard() -> None:
    case = Case()
    case.others = [node("n2"), node("n3"), node("n4", "True")]
    case.power_off = None
    case.step()
    assert case.step(30.0).reason == "storm"
    case.node = node(annotations={CONFIRMED_OFF: "boot-1"})
    assert case.step(30.0).effects


@pytest.mark.parametrize("step", [3600.0, -3600.0])
def test_a_step_of_the_databases_clock_neither_shortens_nor_lengthens_the_dwell_time(site: Site, step: float) -> None:
    task, leading = site.task(), site.lead()
    site.passes(task, leading, 2, every=5.0)
    shift = site.clock.time
    site.clock.time = lambda: shift() + step  # type: ignore[method-assign]
    site.passes(task, leading, 2, every=5.0)
    assert site.power.commands == []
    site.passes(task, leading, 3, every=5.0)
    assert site.power.commands[:1] == [False]


@pytest.mark.parametrize("step", [3600.0, -3600.0])
def test_nor_does_it_make_two_sightings_of_one_or_prevent_the_second(site: Site, step: float) -> None:
    task, leading = site.task(), site.lead()
    while not any(one.off_seen for one in site.records()):
        site.passes(task, leading, 1, every=2.0)
    shift = site.clock.time
    site.clock.time = lambda: shift() + step  # type: ignore[method-assign]
    site.passes(task, leading, 2, every=2.0)
    assert [one.proof for one in site.records()] == [Proof.NONE]
    site.passes(task, leading, 1, every=2.0)
    assert [one.proof for one in site.records()] == [Proof.POWER_OFF]


@each("step", [3600.0, -3600.0])
def test_a_step_of_the_clock_while_the_leader_changes_makes_no_two_sightings_of_one(step: float) -> None:
    case = Case().seen_off()
    case.epoch = 2
    case.now += step
    assert case.step(1.0).record.proof is Proof.NONE
    assert case.step(1.0).record.proof is Proof.NONE
    assert case.step(5.0).record.proof is Proof.POWER_OFF


def test_an_object_that_cannot_be_read_is_the_reason_of_its_node_alone(site: Site) -> None:
    other = node_document("n2", "Unknown")
    other["metadata"]["annotations"] = {"ferroscope.io/confirmed-off": "boot-n2"}
    site.api.put("nodes", node_document("n4"))
    site.api.put("nodes", node_document("n5"))
    task, leading = site.led(1, rules=FailoverRules(max_unhealthy="2"))
    site.api.put("nodes", node_document("n2", "Unknown"))
    site.api.broken.add("/api/v1/namespaces/shop/persistentvolumeclaims/data")
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    site.api.put("pods", site.api.objects["pods"]["db-0"] | {"spec": {"nodeName": "n1", "volumes": volumes}})
    pod = {
        "metadata": {"name": "db-2", "namespace": "shop"},
        "spec": {"nodeName": "n2"},
        "status": {"phase": "Running"},
    }
    site.api.put("pods", pod)
    site.passes(task, leading, 1)
    site.api.put("nodes", other)
    site.passes(task, leading, 130)
    assert set(site.api.objects["pods"]) == {"db-0"}
    assert site.power.commands == []
    (record,) = [record for record in site.records() if record.node == "n1"]
    assert (record.reason, record.escalated) == ("cannot-read", "cannot-read")
    assert "failover-no-progress" in [problem.code for problem in site.problems(task)]


def test_a_cluster_that_cannot_be_read_is_a_problem_after_some_passes(site: Site) -> None:
    task, leading = site.led(1)
    site.api.broken.add("/api/v1/nodes")
    site.passes(task, leading, 2)
    assert site.problems(task) == []
    site.passes(task, leading, 8)
    assert [problem.code for problem in site.problems(task)] == ["failover-unreadable"]
    site.api.broken.clear()
    site.passes(task, leading, 2)
    assert site.problems(task) == []


def test_a_machine_that_was_left_off_is_told_until_it_is_on_whatever_became_of_its_node(site: Site) -> None:
    task, leading = site.led(5)
    del site.api.objects["nodes"]["n1"]
    for successor in (task, site.task()):
        site.passes(successor, leading, 3)
        (problem,) = site.problems(successor)
        assert problem.code == "failover-left-off"
        assert "m1" in problem.summary
    site.power.off = False
    site.passes(task, leading, 3)
    assert site.problems(task) == []
    assert [record.reason for record in site.records()] == ["powered-on"]


@pytest.mark.parametrize("how", ["maintenance", "deleted"])
def test_a_machine_that_was_left_off_is_released_by_an_operator(site: Site, how: str) -> None:
    task, leading = site.led(5)
    del site.api.objects["nodes"]["n1"]
    site.passes(task, leading, 2)
    if how == "maintenance":
        _change(site, maintenance=True)
    else:
        site.store.write(lambda tx: tx.nodes.remove(site.machine.uuid))
    site.passes(task, leading, 2)
    assert site.problems(task) == []
    assert all(record.ended for record in site.records())


def test_a_slow_api_server_delays_a_fail_over_and_does_not_prevent_it(site: Site) -> None:
    call, task = site.kube._call, site.task(rules=FailoverRules(silence=60.0))

    def slowly(*arguments: object, **options: object) -> bytes:
        answers = [one.answer for one in task._calls._questions.values()]
        wait([*answers, *(one.running for one in task._calls._commands.values())], PATIENCE)  # the BMC is not slow
        site.clock.now += 1.7
        return call(*arguments, **options)  # type: ignore[arg-type]

    site.kube._call = slowly  # type: ignore[method-assign]
    site.passes(task, site.lead(), 40, every=1.0)
    assert site.api.objects["pods"] == {}


@pytest.mark.parametrize("prohibition", ["maintenance", "disable_power_off", "inspection", "paused cluster"])
def test_what_an_operator_says_while_a_bmc_is_asked_counts_in_the_same_pass(site: Site, prohibition: str) -> None:
    ask = site.power.state

    def state(machine: str) -> tuple[Power, bool | None]:
        PROHIBITIONS[prohibition][0](site)
        return ask(machine)

    task, leading = site.led(4)
    assert site.power.commands == []
    site.power.state = state  # type: ignore[method-assign]
    site.passes(task, leading, 30)
    assert site.power.commands == []
