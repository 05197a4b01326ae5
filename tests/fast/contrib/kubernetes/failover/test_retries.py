"""Retries have a limit, and machines are not all powered on at once; a machine that hangs may be reset."""

from __future__ import annotations

from collections.abc import Callable

from ferroscope.contracts.bmc import Power
from ferroscope.contrib.kubernetes.failover.cluster import CONFIRMED_OFF, PAUSED
from ferroscope.contrib.kubernetes.failover.terms import DeletePod, FailoverRules, PowerOff, PowerOn
from ferroscope.core.remediation import Phase, Proof
from tests.fast.contrib.kubernetes.failover.build import Case, node, pod, volume
from tests.fast.contrib.kubernetes.failover.site import Bmcs, Site
from tests.fast.contrib.kubernetes.failover.test_client import node_document, pod_document
from tests.support.rows import each

_HOUR = 3600.0


def _boot(site: Site, number: int) -> None:
    back = node_document("n1")
    back["status"]["nodeInfo"] = dict(site.api.objects["nodes"]["n1"]["status"]["nodeInfo"], bootID=f"boot-{number}")
    site.api.put("nodes", back)
    site.api.put("leases", {"metadata": {"name": "n1"}, "spec": {"renewTime": f"boot {number}"}})


def test_a_node_that_fails_again_and_again_is_powered_off_three_times_and_then_an_operator_is_called(
    site: Site,
) -> None:
    task, leading = site.task(), site.lead()
    for number in range(5):
        site.passes(task, leading, 14)
        if site.power.commands.count(False) <= number:
            break
        _boot(site, number + 2)
        site.passes(task, leading, 3)
        dead = site.api.objects["nodes"]["n1"]
        dead["status"]["conditions"] = [{"type": "Ready", "status": "Unknown", "reason": "x"}]
        site.api.put("nodes", dead)
        site.api.put("pods", pod_document("db-0"))
    assert site.power.commands.count(False) == 3
    assert [str(one.phase) for one in site.records()] == ["dwell", "done", "done", "done"]
    assert site.records()[0].reason == "flapping"
    assert "FailoverGaveUp" in [one["reason"] for one in site.api.events]
    # A person looks at it.
    node_now = site.api.objects["nodes"]["n1"]
    node_now["metadata"]["annotations"] = {PAUSED: "true"}
    site.api.put("nodes", node_now)
    site.passes(task, leading, 2)
    del node_now["metadata"]["annotations"]
    site.api.put("nodes", node_now)
    site.passes(task, leading, 8)
    assert site.power.commands.count(False) == 4


@each(
    ("ago", "limit", "cut"),
    [
        ((100.0, 200.0, 300.0), 3, False),
        ((100.0, 200.0), 3, True),
        ((100.0, 200.0, _HOUR + 100.0), 3, True),
        ((100.0,), 1, False),
        ((100.0, 200.0, 300.0), 4, True),
    ],
)
def test_power_offs_count_for_an_hour(ago: tuple[float, ...], limit: int, cut: bool) -> None:
    case = Case(FailoverRules(max_power_offs=limit))
    case.now = 10_000.0
    case.power_offs = tuple(case.now - seconds for seconds in ago)
    case.step()
    decision = case.step(20.0)
    assert (decision.effects == (PowerOff(),), decision.reason == "flapping") == (cut, not cut)


def test_the_limit_holds_as_long_as_the_node_has_failed_and_passes_an_operators_word() -> None:
    case = Case()
    case.power_offs = (700.0, 800.0, 900.0)
    for _ in range(100):
        decision = case.step(100.0)
    assert (decision.reason, decision.effects) == ("flapping", ())
    assert case.record is not None
    assert [line["what"] for line in case.record.log].count("gave-up") == 1
    case.node, case.power_off = node(annotations={CONFIRMED_OFF: "boot-1"}), None
    assert case.step(1.0).effects == (DeletePod(case.pods[0]),)


def test_one_remediation_that_begins_again_and_again_has_the_same_limit() -> None:
    case = Case()
    commands = []
    for _ in range(600):
        effects = case.step(10.0).effects
        commands += [one for one in effects if isinstance(one, (PowerOff, PowerOn))]
        if PowerOff() in effects:
            case.power_off = True
        if PowerOn() in effects:
            case.power_off = False
        if case.record is not None and case.record.proof is Proof.POWER_OFF:
            case.renewal += "+"  # it lives: the proof ends each time
    assert commands.count(PowerOff()) == 3
    assert case.record is not None
    assert case.record.reason == "flapping"


def test_a_repeated_command_is_no_further_power_off() -> None:
    case = Case(FailoverRules(max_power_offs=1))
    case.step()
    commands = [effect for _ in range(5) for effect in case.step(31.0).effects]
    assert commands == [PowerOff()] * 5
    assert case.record is not None
    assert len(case.record.power_offs) == 1


# A machine that hangs.


@each(("case_of", "reason"), [("daemons", "nothing-to-free"), ("local", "nowhere-to-go"), ("empty", "nothing-to-free")])
@each("reset", [True, False])
def test_a_machine_whose_pods_cannot_move_is_reset_only_if_the_operator_wishes(
    case_of: str, reason: str, reset: bool
) -> None:
    case = Case(FailoverRules(reset_hung=reset))
    if case_of == "local":
        case.pods = [pod(claim="data")]
        case.volumes = {("shop", "data"): volume("pv", only_on="n1")}
    else:
        case.pods = [pod(owner="DaemonSet")] if case_of == "daemons" else []
    case.step()
    decision = case.step(20.0)
    if not reset:
        assert (decision.reason, decision.effects) == (reason, ())
        return
    assert decision.effects == (PowerOff(),)
    case.power_off = True
    effects = [*case.step(1.0).effects, *case.step(5.0).effects, *case.step(1.0).effects, *case.step(1.0).effects]
    assert effects == [PowerOn()]  # and nothing is forced
    case.power_off, case.node = False, node(ready="True", boot="boot-2")
    case.renewal = "r2"
    assert case.step(60.0).record.phase is Phase.DONE  # type: ignore[union-attr]


@each("guard", ["storm", "control-plane", "cordoned"])
def test_a_reset_has_the_guards_of_a_fail_over(guard: str) -> None:
    case = Case(FailoverRules(reset_hung=True))
    case.pods = []
    control_plane = {"node-role.kubernetes.io/control-plane": ""}
    if guard == "storm":
        case.silent_nodes = frozenset({"n1", "n2", "n3"})
    elif guard == "cordoned":
        case.node = node(cordoned=True)
    else:
        case.node = node(labels=control_plane)
        case.others = [node("n2", labels=control_plane), *(node(f"w{number}", "True") for number in range(8))]
    case.step()
    decision = case.step(20.0)
    assert (decision.reason, decision.effects) == (guard, ())


# Machines are powered on one after the other.


def test_machines_are_powered_on_one_after_the_other() -> None:
    case = Case(FailoverRules(power_on_gap=5.0))
    case.proven()
    case.freed()
    case.powered_on_at = case.now - 1.0
    decision = case.step(1.0)
    assert (decision.reason, decision.effects) == ("power-on-pending", ())
    assert case.step(3.0).effects == (PowerOn(),)


def test_a_clock_that_was_set_back_does_not_keep_a_machine_off() -> None:
    case = Case()
    case.proven()
    case.freed()
    case.powered_on_at = case.now + 3600.0
    assert case.step(1.0).effects == (PowerOn(),)


def test_the_machines_of_one_pass_are_not_powered_on_in_the_same_second(site: Site) -> None:
    off: set[str] = set()
    times: list[float] = []

    class TwoBmcs(Bmcs):
        def state(self, machine: str) -> tuple[Power, bool | None]:
            return Power.OFF if machine in off else Power.ON, None

        def set(self, machine: str, *, on: bool, left: Callable[[], float]) -> None:
            assert left() > 0
            (off.discard if on else off.add)(machine)
            times.extend([site.clock.now] if on else [])

    site.power = TwoBmcs()
    site.second()
    site.api.objects["attachments"].clear()  # then both are evacuated in the same pass
    task, leading = site.task(rules=FailoverRules(max_unhealthy="2")), site.lead()
    site.passes(task, leading, 60, every=1.0)
    assert len(times) == 2
    assert times[1] - times[0] >= 1.0
