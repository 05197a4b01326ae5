"""The boot device as BMCs take it, change it, ignore it or demand it, and what shows that a machine has restarted."""

from __future__ import annotations

from typing import Any

import pytest

from ferroscope.bmc.redfish.driver import RedfishBmc
from ferroscope.contracts.bmc import BootDevice, ClearsBootDevice, Power, ShowsBoot, ShowsRestarts
from ferroscope.contracts.errors import BmcError
from ferroscope_client.core.reasons import Reason
from tests.fast.bmc.conftest import fails, takes_boot
from tests.support.scripted_redfish import SYSTEM, Answer, ScriptedBmc, answer, link

RUNS = {"LastState": "OSRunning", "LastStateTime": "2026-11-01T10:00:00Z"}
STARTS = {"LastState": "BusInitializationStarted", "LastStateTime": "2026-11-01T11:00:00Z"}
ROOT = "/redfish/v1/"
# Of an AMI service (DMTF/Redfish-Tacklebox#144).
MOVED = "Support of this Operation for Boot Properties is moved to FutureState URI({})"


@pytest.mark.parametrize(("capabilities", "shown"), [("boot_mode:uefi", True), ("", True), ("boot_mode:uefi", False)])
def test_a_boot_mode_that_is_right_already_or_is_not_shown_is_not_written(
    bmc: ScriptedBmc, driver: RedfishBmc, capabilities: str, shown: bool
) -> None:
    """Reports: https://github.com/ansible-collections/community.general/issues/3509,
    https://github.com/ironcore-dev/metal-operator/issues/608; ironcore-dev/metal-operator#985.
    """
    if not shown:
        del bmc.system["Boot"]["BootSourceOverrideMode"]
    takes_boot(bmc, readonly="BootSourceOverrideMode")
    node = bmc.node()
    node.properties = {"capabilities": capabilities}
    driver.set_boot_device(node, BootDevice.PXE, persistent=False)
    assert bmc.system["Boot"]["BootSourceOverrideTarget"] == "Pxe"


@pytest.mark.parametrize("capabilities", ["boot_mode:uefi", ""])
def test_a_boot_mode_that_the_bmc_changes_by_itself_is_set_back(
    bmc: ScriptedBmc, driver: RedfishBmc, capabilities: str
) -> None:
    """DMTF/Redfishtool#106: without a mode, some write their default one."""
    takes_boot(bmc, reverts={"BootSourceOverrideMode": "Legacy"})
    node = bmc.node()
    node.properties = {"capabilities": capabilities}
    driver.set_boot_device(node, BootDevice.PXE, persistent=False)
    assert bmc.system["Boot"]["BootSourceOverrideMode"] == "UEFI"


def test_a_boot_mode_that_reverts_whatever_is_written_is_an_error(bmc: ScriptedBmc, driver: RedfishBmc) -> None:
    """bmc-toolbox/bmclib#459: the device sticks, mode and frequency do not."""
    legacy = {"BootSourceOverrideMode": "Legacy", "BootSourceOverrideEnabled": "Disabled"}
    bmc.upon["PATCH", SYSTEM] = lambda body: bmc.system["Boot"].update(body["Boot"], **legacy)
    node = bmc.node()
    node.properties = {"capabilities": "boot_mode:uefi"}
    error = fails(lambda: driver.set_boot_device(node, BootDevice.PXE, persistent=False))
    assert (error.transient, error.reason) == (True, Reason.BMC_REFUSED)


def test_a_device_that_is_set_and_cannot_be_written_is_no_error(bmc: ScriptedBmc, driver: RedfishBmc) -> None:
    bmc.system["Boot"].update(BootSourceOverrideTarget="Pxe", BootSourceOverrideEnabled="Once")
    takes_boot(bmc, readonly="BootSourceOverrideTarget")
    driver.set_boot_device(bmc.node(), BootDevice.PXE, persistent=False)
    assert fails(lambda: driver.set_boot_device(bmc.node(), BootDevice.DISK, persistent=False)).transient is False


def test_a_boot_device_that_is_accepted_and_ignored_is_an_error(bmc: ScriptedBmc, driver: RedfishBmc) -> None:
    error = fails(lambda: driver.set_boot_device(bmc.node(), BootDevice.PXE, persistent=False))
    assert (error.transient, error.reason) == (True, Reason.BMC_REFUSED)
    assert len(bmc.asked("PATCH")) == 4


@pytest.mark.parametrize(("persistent", "becomes"), [(False, "Continuous"), (True, "Once"), (False, "Disabled")])
def test_a_device_must_last_for_one_boot_at_least(
    bmc: ScriptedBmc, driver: RedfishBmc, persistent: bool, becomes: str
) -> None:
    """kubevirtbmc/kubevirtbmc#165, and sushy-tools' emulator: each boot is from the device, also if one is wanted."""

    def patch(body: dict[str, Any]) -> None:
        bmc.system["Boot"].update(body["Boot"], BootSourceOverrideEnabled=becomes)

    bmc.upon["PATCH", SYSTEM] = patch
    if becomes == "Continuous":
        driver.set_boot_device(bmc.node(), BootDevice.PXE, persistent=persistent)
    else:
        error = fails(lambda: driver.set_boot_device(bmc.node(), BootDevice.PXE, persistent=persistent))
        assert becomes in str(error)


def test_what_waits_in_a_resource_of_settings_is_set(bmc: ScriptedBmc, driver: RedfishBmc) -> None:
    settings = f"{SYSTEM}/Settings"
    bmc.system["@Redfish.Settings"] = {"SettingsObject": link(settings)}
    bmc.has(settings, {"Boot": {"BootSourceOverrideTarget": "None", "BootSourceOverrideEnabled": "Disabled"}})
    bmc.upon["PATCH", settings] = lambda body: bmc.documents[settings]["Boot"].update(body["Boot"])
    driver.set_boot_device(bmc.node(), BootDevice.PXE, persistent=False)
    assert bmc.documents[settings]["Boot"]["BootSourceOverrideTarget"] == "Pxe"


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


def refusal(status: int, message: str) -> Answer:
    return answer(status, {"error": {"code": "Base.1.8.GeneralError", "message": message}})


def obeys_with(bmc: ScriptedBmc, etag: str | None, status: int) -> None:
    """Have the BMC write a boot device only with this ETag, or without any."""

    def write(body: dict[str, Any]) -> Answer | None:
        if bmc.headers[-1].get("If-Match") != etag:
            return refusal(status, "the precondition")
        bmc.system["Boot"] |= body["Boot"]
        return None

    bmc.upon["PATCH", SYSTEM] = write


@pytest.mark.parametrize(
    ("shown", "wanted", "status"),
    [
        ('"12"', '"12"', 428),
        ('W/"12"', 'W/"12"', 428),
        ('W/"12"', '"12"', 412),
        ('"12"', None, 412),
        ('"12-gzip"', '"12"', 412),
        ('W/"12;br"', '"12"', 412),
        ('""12""', '"12"', 412),
        ("12", '"12"', 412),
        (12, '"12"', 428),
        (12, '"12"', 412),
        (None, "*", 428),
        ('"12"', "*", 412),
    ],
)
def test_an_etag_that_only_the_body_shows_is_sent_with_a_write(
    bmc: ScriptedBmc, driver: RedfishBmc, shown: object, wanted: str | None, status: int
) -> None:
    """Reports: https://github.com/ansible/ansible/pull/56150, https://github.com/DMTF/Redfish-Tacklebox/issues/22,
    https://github.com/theforeman/smart-proxy/pull/930 (428 without If-Match),
    https://github.com/ansible-collections/community.general/pull/6434 (weak ETags),
    https://github.com/ansible-collections/community.general/pull/3268 (quoted twice),
    https://github.com/ansible-collections/community.general/issues/11261 (412 with the right one).
    """
    bmc.system["@odata.etag"] = shown
    obeys_with(bmc, wanted, status)
    driver.set_boot_device(bmc.node(), BootDevice.PXE, persistent=False)
    assert driver.get_boot_device(bmc.node()) == (BootDevice.PXE, False)


def test_a_write_that_is_refused_with_each_etag_is_refused(bmc: ScriptedBmc, driver: RedfishBmc) -> None:
    bmc.system["@odata.etag"] = 'W/"12-gzip"'
    obeys_with(bmc, "none of them", 412)
    with pytest.raises(BmcError) as caught:
        driver.set_boot_device(bmc.node(), BootDevice.PXE, persistent=False)
    assert (caught.value.transient, caught.value.reason) == (False, Reason.BMC_REFUSED)
    assert len(bmc.asked("PATCH")) == len({one.get("If-Match") for one in bmc.headers}) <= 6


@pytest.mark.parametrize("odd", [7, None, "", "ä", "a\r\nX-Other: b"])
def test_an_odd_etag_is_none(bmc: ScriptedBmc, driver: RedfishBmc, odd: object) -> None:
    bmc.system["@odata.etag"] = odd
    obeys_with(bmc, None, 400)
    driver.set_boot_device(bmc.node(), BootDevice.PXE, persistent=False)


def test_a_boot_device_is_written_where_the_bmc_says_that_it_has_moved_to(bmc: ScriptedBmc, driver: RedfishBmc) -> None:
    settings = f"{SYSTEM}/SD"
    bmc.has(settings, {"Id": "SD", "Name": "SD", "Boot": dict(bmc.system["Boot"])})
    bmc.upon["PATCH", SYSTEM] = lambda _body: refusal(400, MOVED.format(settings))
    bmc.upon["PATCH", settings] = lambda body: bmc.documents[settings]["Boot"].update(body["Boot"])
    driver.set_boot_device(bmc.node(), BootDevice.PXE, persistent=False)
    assert bmc.documents[settings]["Boot"]["BootSourceOverrideTarget"] == "Pxe"
    assert bmc.system["Boot"]["BootSourceOverrideTarget"] == "None"


def test_a_move_to_nowhere_is_a_refusal(bmc: ScriptedBmc, driver: RedfishBmc) -> None:
    bmc.upon["PATCH", SYSTEM] = lambda _body: refusal(400, MOVED.format(f"{SYSTEM}/SD"))
    with pytest.raises(BmcError) as caught:
        driver.set_boot_device(bmc.node(), BootDevice.PXE, persistent=False)
    assert (caught.value.transient, caught.value.reason) == (False, Reason.BMC_REFUSED)


@pytest.mark.parametrize("kind", ["", "basic"])
@pytest.mark.parametrize("is_right", [True, False], ids=["right", "wrong"])
def test_a_root_that_wants_the_password_gets_it_and_a_wrong_one_once(
    bmc: ScriptedBmc, driver: RedfishBmc, kind: str, is_right: bool
) -> None:
    """DMTF/python-redfish-library#132, #165, karmab/kcli#678."""
    shown = bmc.documents[ROOT]

    def root(_body: object) -> Answer:
        return answer(200, shown) if is_right and "Authorization" in bmc.headers[-1] else answer(401)

    bmc.upon["GET", ROOT] = root
    node = bmc.node(**{"redfish_auth_type": kind} if kind else {})
    if is_right:
        assert driver.get_power(node) is Power.ON
        return
    with pytest.raises(BmcError) as caught:
        driver.get_power(node)
    assert (caught.value.transient, caught.value.reason) == (False, Reason.BMC_CREDENTIALS)
    assert sum("Authorization" in one for one in bmc.headers) == 1


def test_what_a_bmc_does_not_support_is_said_in_redfishs_words(bmc: ScriptedBmc, driver: RedfishBmc) -> None:
    actions = bmc.system["Actions"]["#ComputerSystem.Reset"]
    actions["ResetType@Redfish.AllowableValues"] = ["On", "PushPowerButton"]
    bmc.system["Boot"]["BootSourceOverrideTarget@Redfish.AllowableValues"] = ["None", "UefiHttp"]
    with pytest.raises(BmcError, match=r'"ForceOff" is invalid\. Valid values are: On, PushPowerButton$'):
        driver.set_power(bmc.node(), Power.OFF)
    with pytest.raises(BmcError, match=r'"ForceOff" is invalid\. Valid values are: On, PushPowerButton$'):
        driver.force_off(bmc.node())
    with pytest.raises(BmcError, match=r'"Pxe" is invalid\. Valid values are: None, UefiHttp$'):
        driver.set_boot_device(bmc.node(), BootDevice.PXE, persistent=False)
    with pytest.raises(BmcError, match=r'"Cd" is invalid\. Valid values are: None, UefiHttp$'):
        driver.set_boot_device(bmc.node(), BootDevice.CDROM, persistent=False)
    assert not bmc.asked("POST", "Reset")


@pytest.mark.parametrize("readonly", [True, False])
def test_boot_words_in_lower_case_are_understood(bmc: ScriptedBmc, driver: RedfishBmc, readonly: bool) -> None:
    boot = bmc.system["Boot"]
    for name, value in list(boot.items()):
        boot[name] = [one.lower() for one in value] if isinstance(value, list) else value.lower()

    def write(body: dict[str, Any]) -> Answer | None:
        if readonly and "BootSourceOverrideMode" in body["Boot"]:
            return refusal(400, "BootSourceOverrideMode is read-only")
        boot.update({name: value.lower() for name, value in body["Boot"].items()})
        return None

    bmc.upon["PATCH", SYSTEM] = write
    node = bmc.node()
    node.properties = {"capabilities": "boot_mode:uefi"}
    for persistent in (True, False):
        driver.set_boot_device(node, BootDevice.PXE, persistent=persistent)
        assert driver.get_boot_device(node) == (BootDevice.PXE, persistent)
    assert driver.clear_boot_device(node, BootDevice.PXE)
    assert driver.get_boot_device(node) == (None, None)
