"""What a Redfish BMC shows of a restart, and how a boot device is taken back."""

from __future__ import annotations

from typing import Any

import pytest

from ferroscope.bmc.redfish.driver import RedfishBmc
from ferroscope.contracts.bmc import BootDevice, ClearsBootDevice, Power, ShowsBoot, ShowsRestarts
from ferroscope.contracts.errors import BmcError
from ferroscope.core.reasons import Reason
from tests.fast.bmc.test_redfish_commands import takes_boot
from tests.support.scripted_redfish import SYSTEM, ScriptedBmc, answer

RUNS = {"LastState": "OSRunning", "LastStateTime": "2026-11-01T10:00:00Z"}
STARTS = {"LastState": "BusInitializationStarted", "LastStateTime": "2026-11-01T11:00:00Z"}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({"LastResetTime": "10:00"}, {"LastResetTime": "10:01"}, True),
        ({"LastResetTime": "10:00"}, {"LastResetTime": "10:00"}, None),  # ibm-openbmc/dev#3429
        ({"BootProgress": RUNS}, {"BootProgress": STARTS}, True),
        ({"BootProgress": RUNS}, {"BootProgress": RUNS}, False),
        ({"BootProgress": RUNS}, {"BootProgress": {**RUNS, "LastStateTime": "2026-11-01T11:05:00Z"}}, True),
        ({"BootProgress": STARTS}, {"BootProgress": RUNS}, None),  # it may have been booting anyway
        ({"BootProgress": {"LastState": "OSRunning"}}, {"BootProgress": {"LastState": "OSRunning"}}, None),
        ({"BootProgress": RUNS}, {"BootProgress": {"LastState": "None"}}, None),
        ({"BootProgress": RUNS}, {"BootProgress": {"LastState": "OEM", "LastStateTime": "2026-11-01T11:00:00Z"}}, None),
        ({"BootProgress": RUNS, "LastResetTime": "10:00"}, {"BootProgress": RUNS, "LastResetTime": "10:01"}, True),
        ({"BootProgress": RUNS, "LastResetTime": "10:00"}, {"BootProgress": RUNS, "LastResetTime": "10:00"}, False),
        ({"BootProgress": {}}, {"BootProgress": {}}, None),
        ({}, {"BootProgress": RUNS, "LastResetTime": "10:01"}, None),
        ({}, {}, None),
    ],
)
def test_a_restart_is_proven_by_what_changes_and_disproven_only_by_dated_boot_progress(
    bmc: ScriptedBmc, driver: RedfishBmc, before: dict[str, Any], after: dict[str, Any], expected: bool | None
) -> None:
    assert isinstance(driver, ShowsRestarts)
    bmc.system.update(before)
    marks = driver.boot_marks(bmc.node())
    for name in before:
        del bmc.system[name]
    bmc.system.update(after)
    assert driver.restarted_since(bmc.node(), marks) is expected


@pytest.mark.parametrize(
    ("step", "booting"),
    [
        ("PrimaryProcessorInitializationStarted", True),
        ("SetupEntered", True),
        ("OSRunning", False),
        ("OSBootStarted", None),  # some stay there for ever
        ("None", None),
        ("OEM", None),
        (None, None),
        (7, None),
    ],
)
def test_a_boot_is_shown_with_the_power_state_by_the_same_requests(
    bmc: ScriptedBmc, driver: RedfishBmc, step: Any, booting: bool | None
) -> None:
    assert isinstance(driver, ShowsBoot)
    bmc.system["BootProgress"] = {"LastState": step}
    driver.get_power(bmc.node())
    asked = len(bmc.asked("GET"))
    driver.get_power(bmc.node())
    usual = len(bmc.asked("GET")) - asked
    assert driver.power_and_boot(bmc.node()) == (Power.ON, booting)
    assert len(bmc.asked("GET")) - asked == 2 * usual


def set_once(bmc: ScriptedBmc, target: str = "Pxe", enabled: str = "Once") -> None:
    bmc.system["Boot"].update(BootSourceOverrideTarget=target, BootSourceOverrideEnabled=enabled)


def test_a_boot_device_is_taken_back_with_its_target_as_some_demand(bmc: ScriptedBmc, driver: RedfishBmc) -> None:
    """https://github.com/ironcore-dev/metal-operator/pull/998."""
    assert isinstance(driver, ClearsBootDevice)
    takes_boot(bmc, readonly="BootSourceOverrideMode")
    set_once(bmc)
    assert driver.clear_boot_device(bmc.node(), BootDevice.PXE)
    (written,) = bmc.asked("PATCH")
    assert written == {"Boot": {"BootSourceOverrideTarget": "Pxe", "BootSourceOverrideEnabled": "Disabled"}}
    assert not driver.clear_boot_device(bmc.node(), BootDevice.PXE)


def test_the_mode_is_written_where_that_is_demanded(bmc: ScriptedBmc, driver: RedfishBmc) -> None:
    """https://github.com/ansible-collections/community.general/pull/11543."""
    set_once(bmc)

    def patch(body: dict[str, Any]) -> Any:
        if "BootSourceOverrideMode" not in body["Boot"]:
            return answer(400, {"error": {"message": "BootSourceOverrideMode is missing"}})
        bmc.system["Boot"].update(body["Boot"])
        return None

    bmc.upon["PATCH", SYSTEM] = patch
    assert driver.clear_boot_device(bmc.node(), BootDevice.PXE)
    assert bmc.system["Boot"]["BootSourceOverrideEnabled"] == "Disabled"


@pytest.mark.parametrize(
    ("target", "enabled"), [("Hdd", "Once"), ("Cd", "Once"), ("Pxe", "Continuous"), ("Pxe", "Disabled")]
)
def test_what_is_not_ours_is_left_as_it_is(bmc: ScriptedBmc, driver: RedfishBmc, target: str, enabled: str) -> None:
    takes_boot(bmc)
    set_once(bmc, target, enabled)
    assert not driver.clear_boot_device(bmc.node(), BootDevice.PXE)
    assert bmc.asked("PATCH") == []


def test_a_boot_device_that_stays_although_it_was_taken_back_is_an_error(bmc: ScriptedBmc, driver: RedfishBmc) -> None:
    set_once(bmc)
    with pytest.raises(BmcError) as caught:
        driver.clear_boot_device(bmc.node(), BootDevice.PXE)
    assert (caught.value.transient, caught.value.reason) == (True, Reason.BMC_REFUSED)
