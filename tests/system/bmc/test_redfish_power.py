"""The power state of an emulated Redfish service whose answer is amended on its way: only "Off" is off."""

from __future__ import annotations

from typing import Any

import pytest

from ferroscope.contracts.bmc import Power
from ferroscope.contracts.errors import BmcError
from ferroscope.core.reasons import Reason
from tests.support.faulty_proxy import FaultyProxy, amended, status
from tests.support.redfish import Emulator, node_at, system_uuid
from tests.support.speed import slowness
from tests.system.bmc.conftest import MakeBmc

MACHINE = 31
RESET = "ComputerSystem.Reset"


def says(proxy: FaultyProxy, **more: Any) -> None:
    """Let the system say so from now on; without a value, say nothing about its power."""

    def change(document: dict[str, Any]) -> None:
        document.pop("PowerState", None)
        document.update(more)

    proxy.will(amended(change), times=100, method="GET", path=system_uuid(MACHINE))


@pytest.mark.parametrize(
    "value", [None, "", "off", "Off.", "Unknown", "Standby", 0, False, [], ["Off"], {"State": "Off"}, 10**30]
)
def test_a_state_that_is_not_in_the_standard_is_unknown(
    rack: Emulator, proxy: FaultyProxy, make_bmc: MakeBmc, value: Any
) -> None:
    says(proxy, PowerState=value)
    assert make_bmc().get_power(node_at(proxy.url, MACHINE)) is Power.UNKNOWN


def test_a_system_that_says_nothing_about_its_power_is_unknown(
    rack: Emulator, proxy: FaultyProxy, make_bmc: MakeBmc
) -> None:
    says(proxy)
    assert make_bmc().get_power(node_at(proxy.url, MACHINE)) is Power.UNKNOWN


@pytest.mark.parametrize("value", ["PoweringOn", "PoweringOff"])
def test_a_system_that_is_changing_is_neither_on_nor_off(
    rack: Emulator, proxy: FaultyProxy, make_bmc: MakeBmc, value: str
) -> None:
    says(proxy, PowerState=value)
    bmc, node = make_bmc(timeout=5.0 * slowness()), node_at(proxy.url, MACHINE)
    assert bmc.get_power(node) is Power.CHANGING
    with pytest.raises(BmcError) as caught:
        bmc.reboot(node)
    assert (caught.value.transient, caught.value.reason) == (True, Reason.POWER_FAILED)
    assert proxy.requests("POST", RESET) == 0


def test_the_power_of_a_system_that_says_nothing_is_cut(rack: Emulator, proxy: FaultyProxy, make_bmc: MakeBmc) -> None:
    bmc, node = make_bmc(), node_at(proxy.url, MACHINE)
    bmc.set_power(node, Power.ON)
    says(proxy)
    bmc.set_power(node, Power.OFF)
    proxy.heal()
    assert bmc.get_power(node) is Power.OFF


def test_a_forced_power_off_that_is_refused_counts_as_done_only_if_the_system_is_off(
    rack: Emulator, proxy: FaultyProxy, make_bmc: MakeBmc
) -> None:
    bmc, node = make_bmc(), node_at(proxy.url, MACHINE)
    bmc.set_power(node, Power.OFF)
    assert bmc.force_off(node) is True
    proxy.will(status(400), times=10, method="POST", path=RESET)
    assert bmc.force_off(node) is False
    says(proxy, PowerState=None)
    with pytest.raises(BmcError) as caught:
        bmc.force_off(node)
    assert (caught.value.transient, caught.value.not_done) == (False, True)
