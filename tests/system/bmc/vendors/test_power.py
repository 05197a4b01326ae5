"""Power, with the BMC of each vendor."""

from __future__ import annotations

import pytest

from ferroscope.bmc.redfish.driver import RedfishBmc
from ferroscope.contracts.bmc import Power, Switch
from ferroscope.contracts.errors import BmcError
from ferroscope_client.core.reasons import Reason
from tests.support.vendors.machine import DISK
from tests.support.vendors.personality import waits
from tests.support.vendors.service import Service, node_of
from tests.system.bmc.vendors.conftest import Reaches, Unhurried


def test_a_machine_is_powered_on_restarted_and_powered_off(service: Service, bmc: RedfishBmc, reaches: Reaches) -> None:
    node, machine = node_of(service), service.machine
    assert bmc.get_power(node) is Power.OFF
    bmc.set_power(node, Power.ON)
    assert reaches(node, Power.ON)
    assert machine.boots == [DISK]
    bmc.reboot(node)
    assert reaches(node, Power.ON)
    assert machine.boots == [DISK, DISK]
    bmc.set_power(node, Power.OFF)
    assert reaches(node, Power.OFF)
    assert machine.resets == ["On", "ForceRestart", "ForceOff"]


def test_on_and_off_are_said_only_of_a_machine_of_which_the_bmc_says_so(service: Service, bmc: RedfishBmc) -> None:
    node, machine = node_of(service), service.machine
    for wanted, state in ((Power.ON, "On"), (Power.OFF, "Off")):
        bmc.set_power(node, wanted)
        for _ in range(5):
            found = bmc.get_power(node)
            assert (found is Power.ON, found is Power.OFF) == (machine.reported == "On", machine.reported == "Off")
        assert machine.reported == state


def test_a_command_for_the_state_that_the_machine_is_in_is_no_error(
    service: Service, bmc: RedfishBmc, reaches: Reaches
) -> None:
    """PSU501 of a Dell: https://github.com/cybozu-go/neco/pull/1520."""
    node = node_of(service)
    bmc.set_power(node, Power.OFF)
    bmc.force_off(node)
    bmc.soft_power_off(node)
    bmc.set_power(node, Power.ON)
    assert reaches(node, Power.ON)
    bmc.set_power(node, Power.ON)
    assert service.machine.resets[-1] == "On"
    assert len(service.machine.boots) == 1


def test_the_power_is_cut_of_a_machine_that_is_on(service: Service, bmc: RedfishBmc, reaches: Reaches) -> None:
    node = node_of(service)
    service.machine.power = "On"
    bmc.force_off(node)
    assert reaches(node, Power.OFF)
    assert service.machine.resets == ["ForceOff"]


def test_a_machine_that_is_off_is_powered_on_by_a_reboot(service: Service, bmc: RedfishBmc, reaches: Reaches) -> None:
    """An iLO refuses to reset it: https://github.com/goldyfruit/ansible-ilo/issues/1."""
    node = node_of(service)
    bmc.reboot(node)
    assert reaches(node, Power.ON)
    assert service.machine.resets == ["On"]


@pytest.mark.parametrize("kind", ["GracefulShutdown", "GracefulRestart"])
def test_an_operating_system_is_asked_if_the_bmc_can_and_nothing_else_is_done_otherwise(
    service: Service, bmc: RedfishBmc, reaches: Reaches, kind: str
) -> None:
    node, machine = node_of(service), service.machine
    machine.power = "On"
    call = bmc.soft_power_off if kind == "GracefulShutdown" else bmc.soft_reboot
    if kind in service.personality.power.resets:
        call(node)
        assert reaches(node, Power.OFF if kind == "GracefulShutdown" else Power.ON)
        assert machine.resets == [kind]
        return
    with pytest.raises(BmcError) as caught:
        call(node)
    assert (caught.value.transient, caught.value.reason) == (False, Reason.BMC_REFUSED)
    assert machine.resets == []


def test_a_bmc_that_settles_is_asked_again_and_not_before_it_wants_to_be(
    service: Service, bmc: RedfishBmc, unhurried: Unhurried
) -> None:
    node, power = node_of(service), service.personality.power
    assert bmc.get_power(node) is Power.OFF
    service.machine.reset("On")
    before = len(unhurried.pauses)
    found = bmc.get_power(node)
    assert found is Power.ON or power.way
    pauses = unhurried.pauses[before:]
    assert len(pauses) >= waits(power)
    if power.retry_after is not None:
        assert all(pause >= power.retry_after for pause in pauses)


def test_a_reset_is_seen_if_the_bmc_shows_one_and_one_that_is_ignored_never_is(
    service: Service, bmc: RedfishBmc, reaches: Reaches
) -> None:
    node, dated = node_of(service), service.personality.power.dated
    bmc.set_power(node, Power.ON)
    assert reaches(node, Power.ON)
    marks = bmc.boot_marks(node)
    assert bool(marks) is dated
    service.machine.ignores_resets = True
    bmc.reboot(node)
    assert reaches(node, Power.ON)
    assert bmc.restarted_since(node, marks) is (False if dated else None)
    service.machine.ignores_resets = False
    bmc.reboot(node)
    assert reaches(node, Power.ON)
    assert bmc.restarted_since(node, marks) is (True if dated else None)
    assert len(service.machine.boots) == 2


@pytest.mark.parametrize("power", [Power.ON, Power.OFF])
def test_a_power_command_that_is_accepted_and_ignored_is_not_seen(
    service: Service, bmc: RedfishBmc, power: Switch
) -> None:
    node, before = node_of(service), Power.OFF if power is Power.ON else Power.ON
    service.machine.power = "On" if before is Power.ON else "Off"
    service.machine.ignores_resets = True
    bmc.set_power(node, power)
    assert bmc.get_power(node) is before
