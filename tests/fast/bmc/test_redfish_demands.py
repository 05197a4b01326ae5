"""What some services demand before they answer or obey, and how what they do not support is said."""

from __future__ import annotations

from typing import Any

import pytest

from ferroscope.bmc.redfish.driver import RedfishBmc
from ferroscope.contracts.bmc import BootDevice, Power
from ferroscope.contracts.errors import BmcError
from ferroscope.core.reasons import Reason
from tests.support.scripted_redfish import SYSTEM, Answer, ScriptedBmc, answer

ROOT = "/redfish/v1/"
# Of an AMI service (DMTF/Redfish-Tacklebox#144).
MOVED = "Support of this Operation for Boot Properties is moved to FutureState URI({})"


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
