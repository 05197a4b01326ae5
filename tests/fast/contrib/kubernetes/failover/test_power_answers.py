"""Of the four answers of a BMC only "off", said twice in a row, proves anything; what it refuses is not called sent."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from ferroscope.config.options import Settings
from ferroscope.contracts.bmc import Power
from ferroscope.contracts.errors import BmcError
from ferroscope.contrib.kubernetes.failover.bmc_calls import BmcCalls, Load
from ferroscope.contrib.kubernetes.failover.cluster import CONFIRMED_OFF
from ferroscope.contrib.kubernetes.failover.terms import FailoverRules, PowerOff
from ferroscope.contrib.kubernetes.role import BmcPower
from ferroscope.core.model import Node
from ferroscope.core.remediation import Phase, Proof
from ferroscope.runtime.system import SystemClock
from ferroscope.secrets.references import SecretReader
from ferroscope_client.core.reasons import Reason
from tests.fast.contrib.kubernetes.failover.build import Case, node
from tests.support import examples
from tests.support.rows import each
from tests.support.stores import open_store

DOUBTFUL = [Power.CHANGING, Power.UNKNOWN]


@each("says", DOUBTFUL)
def test_an_answer_that_is_neither_on_nor_off_never_becomes_a_proof(says: Power) -> None:
    case = Case().commanded()
    case.power = says
    for _ in range(50):
        decision = case.step(6.0)
        assert (decision.reason, decision.effects) == ("bmc-error", ())
    assert case.record.proof is Proof.NONE


@each("says", DOUBTFUL)
def test_a_dead_nodes_machine_is_not_switched_as_long_as_its_power_is_in_doubt(says: Power) -> None:
    case = Case()
    case.power = says
    for _ in range(20):
        assert case.step(6.0).effects == ()


def test_a_change_between_two_times_off_ends_the_first_one() -> None:
    case = Case().commanded()
    case.power = Power.OFF
    assert case.step(1.0).reason == "seen-off-once"
    case.power = Power.CHANGING
    case.step(2.0)
    case.power = Power.OFF
    assert case.step(3.0).reason == "seen-off-once"
    assert case.record.proof is Proof.NONE
    assert case.step(5.0).effects


def test_a_machine_that_is_changing_after_the_proof_ends_it() -> None:
    case = Case()
    case.proven()
    case.power = Power.CHANGING
    decision = case.step(1.0)
    assert (decision.effects, decision.reason) == ((), "proof-ended")
    assert (case.record.proof, case.record.phase) == (Proof.NONE, Phase.RETURNING)  # until it is seen on
    assert case.step(1.0).effects == ()
    case.power = Power.ON
    case.step(1.0)
    assert case.record.phase is Phase.DWELL


def test_an_operators_word_does_not_count_against_a_machine_that_is_changing() -> None:
    case = Case()
    case.step()
    case.node = node(annotations={CONFIRMED_OFF: "boot-1"})
    case.power = Power.CHANGING
    for _ in range(10):
        assert case.step(6.0).effects == ()
    case.power = Power.UNKNOWN
    assert case.step(6.0).effects


class _Bmc:
    """A driver whose BMC answers as told."""

    def __init__(self, says: Any = Power.ON, *, accepts: bool = True, error: BmcError | None = None) -> None:
        self.says, self.accepts, self.error = says, accepts, error

    def get_power(self, _node: Node) -> Any:
        return self.says

    def set_power(self, _node: Node, _power: Power) -> None:
        if self.error is not None:
            raise self.error


class _Forcing(_Bmc):
    def force_off(self, node: Node) -> bool:
        self.set_power(node, Power.OFF)
        return self.accepts


def _power(driver: Any) -> tuple[BmcPower, str]:
    store, machine = open_store(), examples.node(driver="x")
    store.write(lambda tx: tx.nodes.add(machine))
    return BmcPower(Settings(), SimpleNamespace(store=store), {"x": driver}, SecretReader()), machine.uuid  # type: ignore[arg-type]


@each("says", [None, True, False, "off", "Off", "", 0, "changing?"])
def test_a_driver_that_says_something_else_has_said_nothing(says: object) -> None:
    power, machine = _power(_Bmc(says))
    assert power.state(machine) == (Power.UNKNOWN, None)


def test_a_command_that_was_refused_is_not_logged_as_sent() -> None:
    power, machine = _power(_Forcing(Power.OFF, accepts=False))
    with capture_logs() as logs:
        power.set(machine, on=False, left=lambda: 10.0)
    assert [line["event"] for line in logs] == ["power-off rejected by the BMC, which reports that the machine is off"]
    refusing, machine = _power(_Bmc(error=BmcError("no", transient=False, reason=Reason.BMC_PRIVILEGES)))
    with capture_logs() as logs, pytest.raises(BmcError):
        refusing.set(machine, on=True, left=lambda: 10.0)
    assert logs == []
    accepting, machine = _power(_Forcing())
    with capture_logs() as logs:
        accepting.set(machine, on=False, left=lambda: 10.0)
    assert [line["event"] for line in logs] == ["power command sent"]


def test_the_record_says_that_the_bmc_has_refused_and_not_that_it_was_commanded() -> None:
    case = Case().commanded()
    case.command_error = "the account lacks the privilege"
    decision = case.step(1.0)
    assert decision.reason == "power-off-failed"
    assert "lacks the privilege" in decision.message
    case.step(1.0)
    assert [line["what"] for line in case.record.log].count("power-off-failed") == 1


def test_the_reason_of_a_failed_command_is_kept_until_the_next_one() -> None:
    power, machine = _power(_Bmc(error=BmcError("no privilege", transient=False)))
    calls = BmcCalls(power, SystemClock())
    try:
        calls.command("n1", machine, on=False, left=lambda: 10.0)
        calls.wait({"n1"}, 10.0, 10.0)
        assert not calls.busy("n1")
        assert calls.failure("n1") == "no privilege"
        calls.ask("n1", "", Load((), ()))
        assert calls.failure("n1") == "no privilege"
        calls.command("n1", machine, on=False, left=lambda: 10.0)
        assert calls.failure("n1") == ""
    finally:
        calls.close()


class _Broken(_Bmc):
    """A driver of somebody else, which does not keep to its contract."""

    def get_power(self, _node: Node) -> Any:
        raise KeyError("power")

    def set_power(self, _node: Node, _power: Power) -> None:
        raise KeyError("power")


def test_a_driver_that_fails_in_its_own_way_says_nothing_and_keeps_no_other_node_waiting() -> None:
    power, machine = _power(_Broken())
    calls = BmcCalls(power, SystemClock())
    try:
        calls.ask("n1", machine, Load((), ()))
        calls.wait({"n1"}, 10.0, 10.0)
        (question,) = calls.take()
        answer = question.answer.result()
        assert (answer.power, "KeyError" in answer.error) == (Power.UNKNOWN, True)
        calls.command("n1", machine, on=False, left=lambda: 10.0)
        calls.wait({"n1"}, 10.0, 10.0)
        assert not calls.busy("n1")
        assert "KeyError" in calls.failure("n1")
    finally:
        calls.close()


def test_a_power_state_that_was_seen_by_somebody_else_proves_nothing_without_a_command() -> None:
    case = Case(FailoverRules(power_off=False, second_hand=True))
    case.power_off = True
    case.step()
    for _ in range(5):
        assert (case.step(20.0).effects, case.record.reason) == ((), "off-second-hand")


def test_nor_does_it_if_the_command_was_refused() -> None:
    case = Case(FailoverRules(second_hand=True))
    case.power_off = True
    case.commanded()
    case.command_error = "the node is locked"
    for _ in range(3):
        assert (case.step(6.0).effects, case.record.reason) == ((), "power-off-failed")
    assert case.step(30.0).effects == (PowerOff(),)
    case.command_error = ""
    case.step(1.0)
    assert case.step(6.0).record.proof is Proof.POWER_OFF
