"""A BMC that is slow is served: each document is read once in a call, and whole answers extend the time of a call.

Seen with OpenBMC's web server (openbmc/bmcweb), which takes seconds for each answer while D-Bus is busy.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from ferroscope.bmc import BmcLimits, DriverOptions
from ferroscope.bmc.redfish.driver import RedfishBmc
from ferroscope.contracts.bmc import BootDevice, Power
from ferroscope.contracts.errors import BmcError
from ferroscope_client.core.reasons import Reason
from tests.support.processes import PATIENCE
from tests.support.rows import each
from tests.support.scripted_redfish import SYSTEM, ScriptedBmc, answer, link
from tests.support.speed import slowness

INFO = f"{SYSTEM}/ResetActionInfo"
SETTINGS = f"{SYSTEM}/Settings"
RESET = f"{SYSTEM}/Actions/ComputerSystem.Reset"


@pytest.fixture
def openbmc(bmc: ScriptedBmc) -> ScriptedBmc:
    """A BMC that has the allowed resets, and the settings, in resources of their own."""
    bmc.system["Actions"]["#ComputerSystem.Reset"] = {"target": RESET, "@Redfish.ActionInfo": INFO}
    bmc.has(INFO, Parameters=[{"Name": "ResetType", "AllowableValues": ["On", "ForceOff", "ForceRestart"]}])
    bmc.system["@Redfish.Settings"] = {"SettingsObject": link(SETTINGS)}
    bmc.has(SETTINGS, {"Boot": {"BootSourceOverrideTarget": "None", "BootSourceOverrideEnabled": "Disabled"}})
    bmc.upon["PATCH", SETTINGS] = lambda body: bmc.documents[SETTINGS]["Boot"].update(body["Boot"])
    bmc.upon["POST", RESET] = lambda body: bmc.system.update(
        PowerState={"ForceOff": "Off"}.get(body["ResetType"], "On")
    )
    return bmc


@pytest.fixture
def impatient() -> Iterator[RedfishBmc]:
    """A driver that does not wait long for a request."""
    options = DriverOptions(
        command_timeout=slowness() / 3, inventory_timeout=PATIENCE, limits=BmcLimits(http_passwords=True)
    )
    with closing(RedfishBmc(options)) as made:
        yield made


@each(
    "call",
    [
        lambda driver, node: driver.set_power(node, Power.OFF),
        lambda driver, node: driver.set_power(node, Power.ON),
        lambda driver, node: driver.reboot(node),
        lambda driver, node: driver.force_off(node),
        lambda driver, node: driver.set_boot_device(node, BootDevice.PXE, persistent=False),
        lambda driver, node: driver.clear_boot_device(node, BootDevice.PXE),
        lambda driver, node: driver.power_and_boot(node),
        lambda driver, node: driver.inventory(node),
        lambda driver, node: driver.health(node),
    ],
)
def test_each_document_is_read_once_until_a_command(
    openbmc: ScriptedBmc, driver: RedfishBmc, call: Callable[[RedfishBmc, Any], object]
) -> None:
    openbmc.seen.clear()
    call(driver, openbmc.node())
    for is_command, requests in itertools.groupby(openbmc.seen, lambda one: one[0] != "GET"):
        read = Counter(path for _, path, _ in requests)
        assert is_command or set(read.values()) == {1}, read


def test_a_machine_is_switched_on_though_each_answer_takes_a_third_of_the_time(
    openbmc: ScriptedBmc, impatient: RedfishBmc
) -> None:
    openbmc.system["PowerState"] = "Off"
    openbmc.arrives = lambda: time.sleep(slowness() / 9)
    impatient.set_power(openbmc.node(), Power.ON)
    assert openbmc.asked("POST", RESET) == [{"ResetType": "On"}]


def test_a_bmc_that_answers_some_requests_only_is_told_as_slow(openbmc: ScriptedBmc, impatient: RedfishBmc) -> None:
    def hang(_body: object) -> Any:
        time.sleep(slowness())
        return answer(503)

    openbmc.upon["GET", INFO] = hang
    with pytest.raises(BmcError, match="slowly") as caught:
        impatient.set_power(openbmc.node(), Power.OFF)
    assert (caught.value.transient, caught.value.reason) == (True, Reason.BMC_NOT_READY)
    assert not openbmc.asked("POST", RESET)
