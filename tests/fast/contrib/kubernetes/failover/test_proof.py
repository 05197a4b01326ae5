"""Whatever happens to a node, its machine and its BMC: nothing is forced unless the pods really do not run.

A small world with its own truth: the machine's power, the boot, what its kubelet runs, and what Kubernetes and the BMC
show of it. Hypothesis breaks it in any order, also between a decision and its effects; each forced effect is compared
with the truth at that time.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ferroscope.contrib.kubernetes.failover.cluster import CONFIRMED_OFF, OUT_OF_SERVICE
from ferroscope.contrib.kubernetes.failover.pods import Pod
from ferroscope.contrib.kubernetes.failover.terms import (
    Decision,
    DeleteAttachment,
    DeletePod,
    FailoverRules,
    PowerOff,
    PowerOn,
    SetTaint,
    is_aged,
    is_forced,
)
from ferroscope.core.remediation import Proof
from tests.fast.contrib.kubernetes.failover.build import Case, node, pod
from tests.support.rows import each

_TAINT = {"key": OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoExecute"}
_GRACE = 40.0  # seconds after which a silent node is not ready
_BOOTING = 6.0  # seconds from power-on until a kubelet may start pods, longer than proof_age


class _World:
    def __init__(self, *, taints: bool) -> None:
        self.case = Case(FailoverRules(dwell=20.0))
        self.case.taints = taints
        self.on, self.boot, self.connected, self.tainted = True, 1, True, False
        self.stuck = False  # the BMC says "off" whatever the power is, but obeys
        self.off_at: float | None = None  # a power-off command that takes its time
        self.up_at = 0.0  # when the kubelet of the present boot may start pods
        self.powers = [(0.0, True)]
        self.ours = False  # the machine is off by our command
        self.silent_since = self.case.now
        self.reported_boot, self.renewals, self.confirmed = 1, 0, 0
        self.serial = 0
        self.pods: dict[str, Pod] = {}  # bound to the node, in the API
        self.running: set[str] = set()  # containers
        self.forced = 0
        self.checks_age = True
        self._schedule()

    def _schedule(self) -> None:
        if not self.tainted and len(self.pods) < 2:
            self.serial += 1
            new = pod(f"p{self.serial}")
            self.pods[new.uid] = new

    # What happens.

    def partition(self) -> None:
        self.connected = False

    def heal(self) -> None:
        self.connected = True

    def power_cut(self) -> None:
        self.on = False
        self.running.clear()
        self.powers.append((self.case.now, False))

    def power_back(self) -> None:
        if not self.on:
            self.on = True
            self.ours = False
            self.boot += 1
            self.up_at = self.case.now + _BOOTING
            self.powers.append((self.case.now, True))

    def _was_on(self, at: float) -> bool:
        return [on for since, on in self.powers if since <= at][-1]

    def bmc_sticks(self) -> None:
        self.stuck = True

    def delete_pod(self) -> None:
        """Something marks a pod as deleted, as the taint manager does."""
        for uid, one in list(self.pods.items())[:1]:
            self.pods[uid] = pod(one.metadata.name, terminating=True)

    def confirm(self) -> None:
        """An operator who has looked: only of a machine that is off."""
        if not self.on:
            self.confirmed = self.reported_boot

    def successor(self) -> None:
        self.case.epoch += 1
        self.case.follows = False

    def follower(self) -> None:
        self.case.epoch += 1
        self.case.follows = True

    def nothing(self) -> None:
        pass

    # The passing of time, and a pass of the controller.

    def tick(self, seconds: float, *, bmc: bool, took: float = 0.0, late: float = 0.0, meanwhile: str = "") -> Decision:
        """Pass. The BMC took ``took`` seconds to answer, and the effects are ``late``; ``meanwhile`` happens before."""
        case = self.case
        self._go_on(case.now + seconds)
        case.silent = case.now + seconds - self.silent_since
        annotations = {CONFIRMED_OFF: f"boot-{self.confirmed}"} if self.confirmed else None
        ready = "True" if case.silent < _GRACE else "Unknown"
        taints = (_TAINT,) if self.tainted else ()
        case.node = node(ready=ready, boot=f"boot-{self.reported_boot}", annotations=annotations, taints=taints)
        case.renewal = f"r{self.renewals}"
        case.pods = list(self.pods.values())
        case.answer_took = took
        case.power_off = self.stuck or not self._was_on(case.now + seconds - took) if bmc else None
        decision = case.step(seconds)
        if meanwhile:
            getattr(self, meanwhile)()
            case.now += late
            self._go_on(case.now)
        for effect in decision.effects:
            record = decision.record
            assert record is not None
            # As the controller does: the kubelet's lease is read once more before anything is forced by these proofs.
            alive = record.proof in (Proof.POWER_OFF, Proof.CONFIRMED) and case.renewal != f"r{self.renewals}"
            if self.checks_age and alive and is_forced(effect):
                continue
            if not self.checks_age or not is_aged(effect, record, case.reading, case.now, case.rules):
                self._apply(effect)
        return decision

    def _go_on(self, now: float) -> None:
        """Let the kubelet do its work, if it can."""
        if self.off_at is not None and now >= self.off_at:
            self.off_at = None
            self.ours = self.ours or self.on
            self.power_cut()
        if self.on and self.connected and now >= self.up_at:
            self.renewals += 1
            self.silent_since = now
            self.reported_boot = self.boot
            gone = [uid for uid, one in self.pods.items() if one.terminating]
            for uid in gone:
                del self.pods[uid]
            self._schedule()
            self.running = set(self.pods)

    def _apply(self, effect: object) -> None:
        if isinstance(effect, PowerOff):
            self.off_at = self.case.now + 3.0
        elif isinstance(effect, PowerOn):
            self.power_back()
        elif isinstance(effect, SetTaint):
            if effect.present:
                self._check(not self.running)
            self.tainted = effect.present
            if effect.present:
                self.pods.clear()
        elif isinstance(effect, DeletePod):
            self._check(effect.pod.uid not in self.running)
            self.pods.pop(effect.pod.uid, None)
        elif isinstance(effect, DeleteAttachment):
            self._check(not self.running)

    def _check(self, safe: bool) -> None:
        self.forced += 1
        assert safe, "forced while it runs"


_EVENTS = (
    "partition",
    "heal",
    "power_cut",
    "power_back",
    "delete_pod",
    "confirm",
    "bmc_sticks",
    "successor",
    "follower",
    "nothing",
)
_STEPS = st.tuples(st.sampled_from(_EVENTS), st.sampled_from([0.5, 2.0, 5.0, 20.0, 60.0]), st.booleans())


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.booleans(), st.lists(_STEPS, max_size=40))
def test_nothing_is_forced_on_pods_that_run(taints: bool, steps: list[tuple[str, float, bool]]) -> None:
    world = _World(taints=taints)
    for event, seconds, bmc in steps:
        getattr(world, event)()
        world.tick(seconds, bmc=bmc)


_LATE = st.tuples(st.sampled_from([0.0, 2.0, 10.0]), st.sampled_from([1.0, 4.0, 20.0]), st.sampled_from(_EVENTS))


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.booleans(), st.lists(st.tuples(_STEPS, _LATE), max_size=40))
def test_nothing_is_forced_on_pods_that_run_however_slow_the_bmc_and_we_are(
    taints: bool, steps: list[tuple[tuple[str, float, bool], tuple[float, float, str]]]
) -> None:
    world = _World(taints=taints)
    for (event, seconds, bmc), (took, late, meanwhile) in steps:
        getattr(world, event)()
        world.tick(seconds, bmc=bmc, took=min(took, seconds), late=late, meanwhile=meanwhile)


@settings(max_examples=100, deadline=None)
@given(st.booleans(), st.lists(_STEPS, max_size=15))
def test_in_the_end_a_machine_without_power_has_lost_its_pods_and_one_with_power_has_no_taint(
    taints: bool, steps: list[tuple[str, float, bool]]
) -> None:
    world = _World(taints=taints)
    for event, seconds, bmc in steps:
        getattr(world, event)()
        world.tick(seconds, bmc=bmc)
    world.case.rules = FailoverRules(power_on=False)
    world.power_cut()
    for _ in range(80):
        world.tick(10.0, bmc=True)
    assert not world.pods
    world.power_back()
    world.heal()
    for _ in range(10):
        world.tick(10.0, bmc=True)
    assert not world.tainted
    assert world.case.record is None


@settings(max_examples=200, deadline=None)
@given(st.booleans(), st.lists(_STEPS, max_size=20))
def test_in_the_end_a_machine_that_we_have_powered_off_is_on_again_or_its_node_says_why_not(
    taints: bool, steps: list[tuple[str, float, bool]]
) -> None:
    world = _World(taints=taints)
    for event, seconds, bmc in steps:
        getattr(world, event)()
        world.tick(seconds, bmc=bmc)
    world.heal()
    for _ in range(100):
        world.tick(10.0, bmc=True)
    told = world.case.record is not None and world.case.record.left_off
    assert world.on or not world.ours or told


def test_the_world_of_these_tests_can_fail() -> None:
    world = _World(taints=False)
    world.tick(1.0, bmc=True)
    world.partition()
    for _ in range(10):
        world.tick(10.0, bmc=False)
    assert world.running
    assert world.case.record is not None
    assert world.case.record.proof is Proof.NONE
    with pytest.raises(AssertionError, match="while it runs"):
        world._apply(DeletePod(world.case.pods[0]))


@each("checks_age", [True, False])
def test_without_the_check_of_the_age_a_machine_that_was_powered_on_meanwhile_would_lose_a_pod_that_runs(
    checks_age: bool,
) -> None:
    world = _World(taints=False)
    world.checks_age = checks_age
    world.tick(1.0, bmc=True)
    world.power_cut()
    for seconds in (45.0, 20.0, 1.0):
        world.tick(seconds, bmc=True)
    late = world.case.rules.proof_age + _BOOTING
    if checks_age:
        assert world.tick(5.0, bmc=True, late=late, meanwhile="power_back").effects
        assert (world.forced, len(world.running)) == (0, 2)
        return
    with pytest.raises(AssertionError, match="while it runs"):
        world.tick(5.0, bmc=True, late=late, meanwhile="power_back")
