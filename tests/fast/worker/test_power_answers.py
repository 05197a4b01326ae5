"""What follows from the four answers of a BMC, and from commands that it refuses: nothing is assumed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ferroscope import transition
from ferroscope.config.options import DriverSettings, InspectorSettings, Settings, WorkerSettings
from ferroscope.contracts.bmc import Power
from ferroscope.contracts.errors import BmcError
from ferroscope.core.model import Node
from ferroscope.core.states import Event
from ferroscope_client.core.reasons import Reason
from ferroscope_client.core.states import Provision, State
from tests.fast.worker.conftest import NODE, Machine, Service
from tests.fast.worker.test_power import SoftMachine, command, with_machine
from tests.fast.worker.test_staying_on import kept_on
from tests.support.rows import each

DOUBTFUL = [Power.CHANGING, Power.UNKNOWN]


class Doubtful(SoftMachine):
    """A machine whose BMC answers ``says`` instead of the power state."""

    def __init__(self, says: Any, power: Power = Power.ON) -> None:
        super().__init__()
        self.power, self.says = power, says

    def get_power(self, node: Node) -> Any:
        super().get_power(node)
        return self.says


def settings() -> Settings:
    return Settings(
        worker=WorkerSettings(get_timeout=0.0),
        drivers=DriverSettings(power_timeout=5.0),
        inspector=InspectorSettings(power_off=True),
    )


def timeline(service: Service) -> list[str]:
    return [f"{entry.step}: {entry.message}" for entry in service.journal]


@each("says", [*DOUBTFUL, None, True, "off", "Off"])
@each("target", ["power on", "power off", "rebooting"])
def test_a_state_that_the_bmc_does_not_say_is_never_stored(says: Any, target: str) -> None:
    service = with_machine(Doubtful(says))
    command(service, target)
    assert service.node.power_state is None
    assert service.node.target_power_state is None
    assert "power-failed" in (service.node.last_error or "")


def test_a_machine_that_is_not_known_to_be_off_is_powered_off_all_the_same() -> None:
    service = with_machine(Doubtful(Power.UNKNOWN))
    command(service, "power off")
    assert "power off" in service.machine.commands


@each("says", DOUBTFUL)
def test_no_machine_is_booted_before_its_bmc_has_said_that_it_is_off(says: Power) -> None:
    service = Service(settings())
    service.machine = Doubtful(says)
    service.worker = service.new_worker("m1")
    service.boot()
    assert service.node.state is State.ERROR
    assert set(service.machine.commands) == {"power off"}
    assert service.node.power_state is None


@each("says", DOUBTFUL)
def test_a_machine_that_must_stay_on_is_left_alone_as_long_as_its_state_is_in_doubt(says: Power) -> None:
    service = kept_on(Service(settings()))
    service.machine = Doubtful(says)
    service.worker = service.new_worker("m1")
    service.boot()
    assert service.node.state is State.ERROR
    assert not {"power on", "power off", "reboot"} & set(service.machine.commands)


def test_a_verified_node_whose_bmc_does_not_say_the_state_has_none() -> None:
    service = with_machine(Doubtful(Power.UNKNOWN))
    service.store.write(lambda tx: transition.rest(tx, tx.nodes.get(NODE), Provision.VERIFYING, "manageable"))
    service.carry_out(Event.VERIFY)
    assert service.node.power_state is None
    assert any("does not report whether the machine is on or off" in line for line in timeline(service))


def test_a_soft_power_off_asks_a_machine_whose_state_is_unknown_but_not_one_that_is_changing() -> None:
    service = with_machine(Doubtful(Power.CHANGING))
    command(service, "soft power off")
    assert (service.machine.commands, service.node.power_state) == ([], None)
    service = with_machine(Doubtful(Power.UNKNOWN), soft_power_off_timeout=3.0)
    command(service, "soft power off")
    assert (service.machine.commands, service.node.power_state) == (["soft off"], None)


def test_a_power_state_that_was_commanded_and_never_seen_is_not_stored() -> None:
    service = with_machine(Machine())
    service.machine.power = Power.ON
    asked: list[str] = []

    def fail(asks: str) -> BmcError | None:
        asked.append(asks)
        gone = "power off" in asked and asks == "get"
        return BmcError("gone", transient=False, reason=Reason.BMC_CERTIFICATE) if gone else None

    service.machine.fail = fail
    command(service, "power off")
    assert "power off" in service.machine.commands
    assert service.node.power_state is None


def refusing(what: str, **options: Any) -> Callable[[str], BmcError | None]:
    return lambda asked: BmcError("no", **options) if asked == what else None


@each("reason", [Reason.BMC_REFUSED, Reason.BMC_PRIVILEGES, Reason.BMC_CREDENTIALS])
@each("what", ["power on", "power off"])
def test_a_refused_command_is_not_on_the_timeline_as_sent(what: str, reason: Reason) -> None:
    service = with_machine(Machine())
    service.machine.power = Power.ON if what == "power off" else Power.OFF
    service.machine.fail = refusing(what, transient=False, reason=reason)
    command(service, what)
    assert not any("commanded" in line for line in timeline(service))
    assert service.node.power_state != what


def test_a_machine_whose_reset_was_refused_counts_as_never_booted() -> None:
    """It may be running its workload, so the end of the failed inspection does not reset it either."""
    service = kept_on(Service(settings()))
    service.machine.power = Power.ON
    asked: list[str] = []

    def fail(what: str) -> BmcError | None:
        asked.append(what)
        first = what == "reboot" and asked.count("reboot") == 1
        return BmcError("no", transient=False, reason=Reason.BMC_REFUSED) if first else None

    service.machine.fail = fail
    service.boot()
    assert service.node.state is State.ERROR
    assert asked.count("reboot") == 1


@each("keeps_on", [False, True])
@each(("reason", "stays"), [(Reason.BMC_REFUSED, False), (Reason.BMC_UNREACHABLE, True)])
def test_the_intent_of_a_refused_command_is_withdrawn_and_that_of_one_without_an_answer_stays(
    keeps_on: bool, reason: Reason, stays: bool
) -> None:
    service = Service(settings())
    if keeps_on:
        kept_on(service)
        service.machine.power = Power.ON
    what = "reboot" if keeps_on else "power on"
    service.machine.fail = refusing(what, transient=True, reason=reason)
    service.start()
    service.worker.step()
    (request,) = service.store.read(lambda tx: tx.requests.pending(NODE))
    assert (what in request.progress) is stays
