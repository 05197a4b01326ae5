"""Power commands of operators: soft ones leave the shutdown to the operating system and never occupy a worker."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ferroscope import transition
from ferroscope.config.options import DriverSettings, Settings, WorkerSettings
from ferroscope.contracts.bmc import RESULTS, BootDevice, Power
from ferroscope.contracts.errors import BmcError
from ferroscope.core.model import Document, Node
from ferroscope.core.states import Event
from ferroscope_client.core.reasons import Reason
from ferroscope_client.core.states import Provision, State
from tests.fast.worker.conftest import NODE, Machine, Service
from tests.support.rows import each


class SoftMachine(Machine):
    """A machine whose operating system shuts down after ``looks`` looks at its power state; None: never."""

    def __init__(self, looks: int | None = 3) -> None:
        super().__init__()
        self.power = Power.ON
        self.left: int | None = None
        self.looks = looks

    def soft_power_off(self, node: Node) -> None:
        self._check("soft off")
        self.commands.append("soft off")
        self.left = self.looks

    def get_power(self, node: Node) -> Power:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                self.power, self.left = Power.OFF, None
        return super().get_power(node)


class RestartingMachine(SoftMachine):
    """A machine whose BMC can have the operating system restarted."""

    def soft_reboot(self, node: Node) -> None:
        self._check("soft reboot")
        self.commands.append("soft reboot")


def with_machine(machine: Machine, **drivers: float) -> Service:
    service = Service(
        Settings(
            worker=WorkerSettings(get_timeout=0.0),
            drivers=DriverSettings(power_timeout=5.0, **drivers),  # type: ignore[arg-type]
        )
    )
    service.machine = machine
    service.worker = service.new_worker("m1")
    return service


def ask(service: Service, target: str, **payload: object) -> None:
    """Request it as the api does."""
    service.submit(Event.SET_POWER, {"target": target, **payload})
    expected = str(RESULTS[target])
    service.store.write(
        lambda tx: tx.nodes.update(msgspec.structs.replace(tx.nodes.get(NODE), target_power_state=expected))
    )


class ShowingMachine(RestartingMachine):
    """One whose BMC shows each restart; ``restarts`` looks after it was asked for. None: its operating system hangs."""

    starts = 0
    restarts: int | None = None
    silent = False

    def boot_marks(self, _node: Node) -> Document:
        return {"starts": self.starts}

    def restarted_since(self, _node: Node, marks: Document) -> bool | None:
        if self.commands and self.restarts is not None:
            self.starts += self.restarts == 0
            self.restarts -= 1
        if self.commands and self.silent:
            raise BmcError("503", transient=True, reason=Reason.BMC_NOT_READY)
        return bool(marks["starts"] != self.starts) if marks else None


def command(service: Service, target: str, **payload: object) -> list[str]:
    ask(service, target, **payload)
    return service.work()


def test_a_soft_power_off_asks_once_and_looks_until_the_machine_is_off() -> None:
    service = with_machine(SoftMachine())
    said = command(service, "soft power off")
    assert service.machine.commands == ["soft off"]
    assert len(said) == 3, "the worker is free between two looks"
    assert (service.node.power_state, service.node.target_power_state) == (Power.OFF, None)
    assert service.node.last_error is None


def test_a_machine_that_is_off_is_not_asked() -> None:
    machine = SoftMachine()
    machine.power = Power.OFF
    service = with_machine(machine)
    command(service, "soft power off")
    assert (machine.commands, service.node.power_state) == ([], Power.OFF)


@each(("payload", "seconds"), [({}, 30.0), ({"timeout": 7}, 7.0)])
def test_a_machine_that_does_not_shut_down_stays_on_with_an_error(payload: dict[str, int], seconds: float) -> None:
    service = with_machine(SoftMachine(looks=None), soft_power_off_timeout=30.0)
    began = service.clock.now
    command(service, "soft power off", **payload)
    assert seconds <= service.clock.now - began < seconds + 20.0
    assert service.machine.commands == ["soft off"]
    node = service.node
    assert (node.power_state, node.target_power_state) == (Power.ON, None)
    assert (node.last_error or "").startswith(
        "Failed to change power state to 'power off' by 'soft power off': Failed to set node power state to power off"
    )
    assert "power-failed" in (node.last_error or "")


def test_a_hard_power_off_ends_a_soft_one() -> None:
    service = with_machine(SoftMachine(looks=None))
    ask(service, "soft power off")
    service.worker.step()
    assert command(service, "power off")
    assert (service.machine.commands, service.node.last_error) == (["soft off", "power off"], None)
    assert service.node.power_state == Power.OFF


def test_a_worker_that_dies_while_the_machine_shuts_down_does_not_ask_again() -> None:
    service = with_machine(SoftMachine(looks=2))
    ask(service, "soft power off")
    service.worker.step()
    service.clock.now += 5.0
    service.claim()  # the second look: its worker dies
    service.kill("m1")
    service.worker = service.new_worker("m2")
    service.work()
    assert (service.machine.commands, service.node.power_state) == (["soft off"], Power.OFF)


def test_a_soft_reboot_shuts_down_and_powers_on() -> None:
    service = with_machine(SoftMachine())
    command(service, "soft rebooting")
    assert service.machine.commands == ["soft off", "power on"]
    assert (service.node.power_state, service.node.target_power_state) == (Power.ON, None)


def test_a_soft_reboot_restarts_the_operating_system_where_the_bmc_can_ask_for_it() -> None:
    service = with_machine(RestartingMachine())
    command(service, "soft rebooting")
    assert service.machine.commands == ["soft reboot"]
    assert service.node.power_state == Power.ON


@each(("payload", "seconds"), [({}, 30.0), ({"timeout": 7}, 7.0)])
@each("silent", [False, True])
def test_a_soft_reboot_that_is_accepted_and_ignored_fails_with_that_cause(
    payload: dict[str, int], seconds: float, silent: bool
) -> None:
    machine = ShowingMachine()
    machine.silent = silent
    service = with_machine(machine, soft_power_off_timeout=30.0)
    began = service.clock.now
    command(service, "soft rebooting", **payload)
    assert seconds <= service.clock.now - began < seconds + 20.0
    assert machine.commands == ["soft reboot"]
    assert (service.node.power_state, service.node.target_power_state) == (Power.ON, None)
    said = service.node.last_error or ""
    assert said.startswith("Failed to change power state to 'power on' by 'soft rebooting'")
    assert "not-restarted" in said


def test_a_soft_reboot_that_the_bmc_shows_in_the_end_is_waited_for() -> None:
    machine = ShowingMachine()
    machine.restarts = 3
    service = with_machine(machine)
    said = command(service, "soft rebooting")
    assert len(said) > 2, "the worker is free between two looks"
    assert (machine.commands, service.node.last_error) == (["soft reboot"], None)


def test_a_worker_that_dies_while_the_machine_restarts_does_not_ask_again() -> None:
    machine = ShowingMachine()
    service = with_machine(machine)
    ask(service, "soft rebooting")
    service.worker.step()
    service.clock.now += 5.0
    service.claim()  # the second look: its worker dies
    service.kill("m1")
    service.worker = service.new_worker("m2")
    machine.restarts = 1
    service.work()
    assert (machine.commands, service.node.last_error) == (["soft reboot"], None)


@each("machine", [ShowingMachine, lambda: SoftMachine(looks=None)])
@each(
    ("target", "commands"), [("rebooting", ["power off", "power on"]), ("power off", ["power off"]), ("power on", [])]
)
def test_a_hard_command_ends_a_soft_reboot_that_is_ignored(
    machine: Callable[[], Machine], target: str, commands: list[str]
) -> None:
    service = with_machine(machine())
    ask(service, "soft rebooting")
    service.worker.step()
    command(service, target)
    assert service.machine.commands[1:] == commands, "what waits for the restart does not power the machine on again"
    assert (service.node.last_error, service.node.target_power_state) == (None, None)


def test_a_soft_reboot_whose_machine_stays_off_is_followed_by_a_power_on() -> None:
    machine = ShowingMachine()
    service = with_machine(machine)
    ask(service, "soft rebooting")
    service.worker.step()
    machine.power = Power.OFF
    service.work()
    assert machine.commands == ["soft reboot", "power on"]


@each("off", [1, 4])
def test_a_machine_that_is_off_for_seconds_within_its_restart_gets_no_second_command(off: int) -> None:
    """OpenBMC shows the state of its host, which is off for a moment when its operating system restarts."""

    class HostState(RestartingMachine):
        looks_off = off

        def get_power(self, node: Node) -> Power:
            self.looks_off -= bool(self.commands)
            self.power = Power.OFF if self.commands and self.looks_off >= 0 else Power.ON
            return super().get_power(node)

    service = with_machine(HostState())
    command(service, "soft rebooting")
    assert service.machine.commands == ["soft reboot"]
    assert (service.node.power_state, service.node.target_power_state) == (Power.ON, None)


def test_a_soft_reboot_that_the_bmc_refuses_becomes_a_shutdown() -> None:
    machine = RestartingMachine()
    refusal = BmcError("no", transient=False, reason=Reason.BMC_REFUSED)
    machine.fail = lambda asked: refusal if asked == "soft reboot" else None
    service = with_machine(machine)
    command(service, "soft rebooting")
    assert machine.commands == ["soft off", "power on"]
    assert service.node.last_error is None


def test_a_machine_that_must_stay_on_is_only_restarted() -> None:
    for machine, commands in ((RestartingMachine(), ["soft reboot"]), (SoftMachine(), [])):
        service = with_machine(machine)
        service.store.write(
            lambda tx: tx.nodes.update(
                msgspec.structs.replace(tx.nodes.get(NODE), attributes={"disable_power_off": True})
            )
        )
        command(service, "soft rebooting")
        assert machine.commands == commands
        assert ("disable_power_off" in (service.node.last_error or "")) is (commands == [])


def test_a_driver_without_soft_power_fails_with_the_published_text() -> None:
    service = with_machine(Machine())
    service.machine.power = Power.ON
    command(service, "soft power off")
    assert "The driver machine does not support the power state, soft power off" in (service.node.last_error or "")


def test_a_hard_power_state_has_the_time_that_its_caller_gives_it() -> None:
    class Stuck(Machine):
        def set_power(self, node: Node, power: Power) -> None:
            self.commands.append(str(power))

    service = with_machine(Stuck())
    began = service.clock.now
    command(service, "power on", timeout=50)
    assert service.clock.now - began >= 50 * service.settings.worker.max_attempts
    assert "accepted power on, and the machine is still off after 50 s" in (service.node.last_error or "")


def test_power_can_be_set_while_the_machine_is_awaited() -> None:
    service = with_machine(SoftMachine())
    service.machine.power = Power.OFF
    service.boot()
    assert service.node.state is State.WAITING
    service.machine.power = Power.OFF
    command(service, "power on")
    assert (service.machine.power, service.node.state) == (Power.ON, State.WAITING)
    assert service.node.provision_state is Provision.INSPECT_WAIT
    service.finish()
    assert service.node.state is State.FINISHED


def test_a_power_command_that_fails_while_the_machine_is_awaited_is_shown_and_ends_nothing() -> None:
    service = with_machine(SoftMachine())
    service.boot()
    refusal = BmcError("no", transient=False, reason=Reason.BMC_REFUSED)
    service.machine.power = Power.OFF
    service.machine.fail = lambda asked: refusal if asked == "power on" else None
    command(service, "power on")
    assert service.node.state is State.WAITING
    assert (service.node.last_error or "").startswith("Failed to change power state to 'power on' by 'power on': no")


def test_a_verified_node_has_the_boot_device_that_its_bmc_reports() -> None:
    service = with_machine(Machine())
    service.machine.once = BootDevice.CDROM
    service.store.write(lambda tx: transition.rest(tx, tx.nodes.get(NODE), Provision.VERIFYING, "manageable"))
    service.carry_out(Event.VERIFY)
    assert service.node.internal["reported_boot_device"] == {"boot_device": "cdrom", "persistent": False}
