"""Which machine the BMC is that of: learned by the first verification or inspection, and not from another machine."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from ferroscope.contracts.errors import BmcError
from ferroscope.core.delivery import TRIAL
from ferroscope.core.model import Document, Node
from ferroscope.core.states import Event
from ferroscope.hardware import machine_identity
from ferroscope.hardware.machine_identity import MachineIdentity
from ferroscope_client.core.reasons import Reason
from ferroscope_client.core.states import State
from tests.fast.worker.conftest import NODE, Machine, Service, settings


class TellingMachine(Machine):
    """A machine whose BMC says which one it is."""

    serial = "SN-1"

    def machine(self, node: Node) -> Document:
        self._check("machine")
        self.commands.append("which machine")
        return {"serial": self.serial} if self.serial else {}


@pytest.fixture
def telling() -> Service:
    made = Service(settings())
    made.machine = TellingMachine()
    made.worker = made.new_worker("m1")
    return made


def known(service: Service) -> MachineIdentity | None:
    return machine_identity.behind_bmc(service.node)


def inspected(service: Service) -> None:
    service.boot()


def verified(service: Service) -> None:
    service.carry_out(Event.VERIFY, {TRIAL: True})


@pytest.mark.parametrize("first", [inspected, verified])
def test_it_is_learned_before_the_machine_is_commanded_and_asked_for_once(
    telling: Service, first: Callable[[Service], None]
) -> None:
    first(telling)
    assert known(telling) == MachineIdentity(serial="SN-1")
    assert telling.machine.commands[0] == "which machine"
    if first is inspected:
        telling.call_back()
        telling.work()
    telling.machine.commands.clear()
    inspected(telling)
    assert telling.node.state is State.WAITING
    assert "which machine" not in telling.machine.commands


def test_it_is_learned_anew_for_another_address(telling: Service) -> None:
    verified(telling)
    moved = {"machine_address": "192.0.2.9"}
    telling.store.write(lambda tx: tx.nodes.update(msgspec.structs.replace(tx.nodes.get(NODE), driver_info=moved)))
    telling.machine.serial = "SN-2"  # type: ignore[attr-defined]
    verified(telling)
    assert known(telling) == MachineIdentity(serial="SN-2")


def test_a_trial_does_not_accept_another_machine(telling: Service) -> None:
    verified(telling)
    telling.machine.serial = "SN-2"  # type: ignore[attr-defined]
    refusal = BmcError("another machine", transient=False, reason=Reason.BMC_OTHER_MACHINE)
    telling.machine.fail = lambda command: refusal if command == "get" else None
    verified(telling)
    assert known(telling) == MachineIdentity(serial="SN-1")
    assert "bmc-other-machine" in (telling.node.last_error or "")


def test_a_bmc_that_does_not_say_it_is_no_trouble(telling: Service) -> None:
    telling.machine.serial = ""  # type: ignore[attr-defined]
    inspected(telling)
    assert (telling.node.state, known(telling)) == (State.WAITING, None)
