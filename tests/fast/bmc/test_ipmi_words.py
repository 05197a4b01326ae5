"""What the IPMI driver makes of ipmitool's words: its output, and the errors that people report of real BMCs."""

from __future__ import annotations

import pytest

from ferroscope.bmc import DriverOptions
from ferroscope.bmc.ipmi import driver as ipmi
from ferroscope.bmc.ipmi.driver import IpmiBmc, boot_device_of, power_of
from ferroscope.bmc.ipmi.info import IpmiAccess
from ferroscope.bmc.ipmi.ipmitool import CipherError, IpmiCommand, SilentError, StateError, classify
from ferroscope.contracts.bmc import BootDevice, ForcesOff, Power
from ferroscope.contracts.errors import BmcError
from ferroscope.core.model import Node
from ferroscope_client.core.reasons import Reason
from tests.fast.bmc.conftest import Hurry
from tests.support.rows import each

NOISE = "Loading IANA PEN Registry...\nGet HPM.x Capabilities request failed, compcode = d4\n"
NOISE += "Invalid completion code received: Insufficient privilege level\nDiscovered IPMB address 0x0\n"
NO_SESSION = "Error: Unable to establish IPMI v2 / RMCP+ session\n"


@each(
    ("output", "power"),
    [
        ("Chassis Power is on\n", Power.ON),
        ("Chassis Power is off", Power.OFF),
        ("Chassis Power is on\r\n", Power.ON),
        ("Chassis Power is off\r", Power.OFF),
        ("Using best available cipher suite 3\n  Chassis Power is on  \n", Power.ON),
        ("Chassis Power is off\nChassis Power is off\n", Power.OFF),
        ("", Power.UNKNOWN),
        ("\n", Power.UNKNOWN),
        ("Chassis Power is", Power.UNKNOWN),
        ("Chassis Power is o", Power.UNKNOWN),
        ("Chassis Power is of", Power.UNKNOWN),
        ("Chassis Power is unknown", Power.UNKNOWN),
        ("Chassis Power is offline", Power.UNKNOWN),
        ("Chassis Power is on hold", Power.UNKNOWN),
        ("Chassis Power is off\nChassis Power is on\n", Power.UNKNOWN),
        ("chassis power is off", Power.UNKNOWN),
        ("Chassis power = Off", Power.UNKNOWN),  # cobbler/cobbler#108
        ("Die Stromversorgung ist aus", Power.UNKNOWN),
        ("Get Chassis Power Status failed: Chassis Power is off?", Power.UNKNOWN),
        ("password verification timeout", Power.UNKNOWN),  # chaos/powerman#14 took the "on" of it for on
    ],
)
def test_only_ipmitools_own_sentence_is_a_power_state(output: str, power: Power) -> None:
    assert power_of(output) is power


@each(
    ("words", "reason", "transient"),
    [
        ("> RAKP 2 HMAC is invalid\n" + NO_SESSION, Reason.BMC_CREDENTIALS, False),
        ("RAKP 2 message indicates an error : unauthorized name\n" + NO_SESSION, Reason.BMC_CREDENTIALS, False),
        ("Invalid user name\nError: Unable to establish LAN session\n", Reason.BMC_CREDENTIALS, False),
        (
            "RAKP 2 message indicates an error : unauthorized role or privilege level requested\n" + NO_SESSION,
            Reason.BMC_PRIVILEGES,
            False,
        ),
        ("Error in open session response message : invalid role\n" + NO_SESSION, Reason.BMC_PRIVILEGES, False),
        (
            "Set Session Privilege Level to ADMINISTRATOR failed: Insufficient privilege level\n" + NO_SESSION,
            Reason.BMC_PRIVILEGES,
            False,
        ),
        ("Activate Session error:\tRequested privilege level exceeds limit\n", Reason.BMC_PRIVILEGES, False),
        ("Set Chassis Power Control to Up/On failed: Insufficient privilege level\n", Reason.BMC_PRIVILEGES, False),
        ("Set Chassis Power Control to Up/On failed: Invalid command\n", Reason.BMC_REFUSED, False),
        ("Set Chassis Power Control to Up/On failed: words of a later ipmitool\n", Reason.BMC_REFUSED, False),
        ("IPMI command failed: Unknown (0x6F)\n", Reason.BMC_REFUSED, False),
        # https://github.com/RackHD/on-tasks/pull/493
        (
            "Unable to send RAW command (channel=0x0 netfn=0x0 lun=0x0 cmd=0x8 rsp=0x80): Unknown (0x80)\n",
            Reason.BMC_REFUSED,
            False,
        ),
        (
            "Set Session Privilege Level to ADMINISTRATOR failed: Unknown (0x81)\n" + NO_SESSION,
            Reason.BMC_PRIVILEGES,
            False,
        ),
        ("RAKP 4 message indicates an error : invalid name length\n" + NO_SESSION, Reason.BMC_REFUSED, False),
        (
            "Get Device ID command failed: 0xd4 Insufficient privilege level\nIPMI command failed: Node busy\n",
            Reason.BMC_NOT_READY,
            True,
        ),
        # https://github.com/openbmc/openbmc/issues/1241
        ("Error in open session response message : insufficient resources for session\n", Reason.BMC_NOT_READY, True),
        # https://github.com/openbmc/openbmc/issues/1390
        (
            "Unable to send RAW command (channel=0x0 netfn=0x0 lun=0x0 cmd=0x8 rsp=0xff): Unspecified error\n",
            Reason.BMC_NOT_READY,
            True,
        ),
        # https://github.com/ibm-openbmc/dev/issues/1390
        ("Get Chassis Boot Parameter 5 failed: Unspecified error\n", Reason.BMC_NOT_READY, True),
        # https://github.com/ipmitool/ipmitool/issues/53
        ("RAKP 2 message indicates an error : illegal parameter\n" + NO_SESSION, Reason.BMC_REFUSED, False),
        ("Get Chassis Power Status failed: Unspecified error\n", Reason.BMC_NOT_READY, True),
        ("Get Chassis Power Status failed: Node busy\n", Reason.BMC_NOT_READY, True),
        # It restarts: openbmc/openbmc#1810, https://github.com/ipmitool/ipmitool/issues/154
        ("RAKP 2 message indicates an error : inactive session ID\n", Reason.BMC_NOT_READY, True),
        ("", Reason.BMC_UNREACHABLE, True),
    ],
)
def test_each_failure_has_a_reason_of_its_own(words: str, reason: Reason, transient: bool) -> None:
    error = classify(IpmiAccess("bmc"), 17, "power on", NOISE + words)
    assert (error.reason, error.transient) == (reason, transient)
    assert not isinstance(error, SilentError) or not words


@each(
    "words",
    [
        "Get Auth Capabilities error\nError issuing Get Channel Authentication Capabilities request\n" + NO_SESSION,
        # https://github.com/ipmitool/ipmitool/issues/376
        "Set Session Privilege Level to ADMINISTRATOR failed\n" + NO_SESSION + "Close Session command failed\n",
        # The account has the privilege: https://github.com/openbmc/openbmc/issues/1812
        "> Error: no response from RAKP 1 message\n"
        "Set Session Privilege Level to ADMINISTRATOR failed: Insufficient privilege level\n" + NO_SESSION,
        # https://github.com/openbmc/phosphor-net-ipmid/issues/16
        "> Error: no response from RAKP 1 message\nError: Received an Unexpected RAKP 2 message\n"
        "> RAKP 2 HMAC is invalid\n" + NO_SESSION,
        NO_SESSION,
        "Connect to 192.0.2.1 failed: No route to host\n" + NO_SESSION,
    ],
)
def test_silence_is_distinguished_from_refusals_and_leads_to_the_next_cipher_suite(words: str) -> None:
    error = classify(IpmiAccess("bmc", level="OPERATOR"), 17, "power on", NOISE + words)
    assert isinstance(error, SilentError)
    assert (error.reason, error.transient) == (Reason.BMC_UNREACHABLE, True)
    assert "cipher suite 17, OPERATOR" in str(error)


@each(
    "words",
    [
        # https://github.com/openbmc/openbmc/issues/3666
        "Error in open session response message : invalid authentication algorithm\n\n" + NO_SESSION,
        # https://github.com/ipmitool/ipmitool/issues/363
        "Error in open session response message : no matching cipher suite\n\n" + NO_SESSION,
        "Error in open session response message : no matching integrity payload\n\n" + NO_SESSION,
        # https://github.com/ipmitool/ipmitool/issues/196
        "ipmitool: lanplus.c:1839: ipmi_lanplus_build_v2x_msg: Assertion `0' failed.\n",
    ],
)
def test_a_cipher_suite_that_is_not_supported_leads_to_the_next_one(words: str) -> None:
    assert isinstance(classify(IpmiAccess("bmc"), 17, "power on", NOISE + words), CipherError)


@each(
    "words",
    [
        # https://github.com/aws/eks-anywhere/issues/3568
        "Set Chassis Power Control to Down/Off failed: Command not supported in present state\n",
        # https://github.com/siderolabs/sidero/issues/145
        "Unable to send RAW command (channel=0x0 netfn=0x0 lun=0x0 cmd=0x2 rsp=0xd5): Command not supported in present "
        "state\n",
    ],
)
def test_a_refusal_for_the_state_of_the_machine_is_distinguished_from_the_others(words: str) -> None:
    assert isinstance(classify(IpmiAccess("bmc"), 17, "power off", NOISE + words), StateError)


def test_a_password_is_masked_before_a_long_message_is_cut() -> None:
    password = "pa55-of-the-BMC-word"
    access = IpmiAccess(host="192.0.2.1", username="operator", password=password)
    start = len(str(classify(access, 17, "power state", "x")))
    for padding in range(150, 210 - start + 150):
        said = str(classify(access, 17, "power state", "x" * padding + password))
        assert password[:4] not in said


@pytest.mark.parametrize("refused", [False, True])
def test_a_power_off_that_the_bmc_refuses_because_it_is_off_was_not_accepted(
    refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(access: IpmiAccess, _cipher: int, command: IpmiCommand, _seconds: float) -> str:
        if command.words[-1] == "status":
            return "Chassis Power is off"
        if refused:
            raise classify(
                access,
                3,
                command.action,
                "Set Chassis Power Control to Down/Off failed: Command not supported in present state",
            )
        return "Chassis Power Control: Down/Off"

    monkeypatch.setattr(ipmi, "run", run)
    driver = IpmiBmc()
    assert isinstance(driver, ForcesOff)
    info = {"ipmi_address": "192.0.2.1", "ipmi_username": "operator", "ipmi_password": "hush"}
    assert driver.force_off(Node(uuid="n", driver="ipmi", driver_info=info)) is not refused


def boot_flags(selector: str, *, valid: bool = True, often: str = "only next boot") -> str:
    """Return what ipmitool prints of the boot flags."""
    return (
        "Boot parameter version: 1\nBoot parameter 5 is valid/unlocked\nBoot parameter data: 8004000000\n"
        f" Boot Flags :\n   - Boot Flag {'Valid' if valid else 'Invalid'}\n   - Options apply to {often}\n"
        f"   - BIOS PC Compatible (legacy) boot \n   - Boot Device Selector : {selector}\n"
        "   - BIOS verbosity : System Default\n"
    )


@each(
    ("output", "expected"),
    [
        (boot_flags("Force PXE"), (BootDevice.PXE, False)),
        (boot_flags("Force PXE", often="all future boots"), (BootDevice.PXE, True)),
        (boot_flags("Force PXE", valid=False), (None, None)),  # used up
        (boot_flags("No override"), (None, None)),
        ("", (None, None)),
    ],
)
def test_only_valid_boot_flags_are_a_boot_device(output: str, expected: tuple[BootDevice | None, bool | None]) -> None:
    assert boot_device_of(output) == expected


class Flags:
    """A BMC with boot flags, in place of ipmitool's process; ``obeys``: it keeps what it accepts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, output: str, *, obeys: bool = True) -> None:
        self.output, self.obeys, self.sent = output, obeys, list[tuple[str, ...]]()
        monkeypatch.setattr(ipmi, "run", self.run)
        info = {"ipmi_address": "192.0.2.1", "ipmi_username": "operator", "ipmi_password": "hush"}
        self.node = Node(uuid="n", driver="ipmi", driver_info=info)
        self.driver = IpmiBmc(DriverOptions(stop=Hurry()))

    def run(self, _access: IpmiAccess, _cipher: int, command: IpmiCommand, _seconds: float) -> str:
        if command.words[:3] == ("chassis", "bootparam", "get"):
            return self.output
        self.sent.append(command.words)
        if self.obeys and command.words[0] == "raw" and command.words[3] == "0x05":
            self.output = boot_flags("No override", valid=False)
        if self.obeys and command.words[1] == "bootdev":
            self.output = boot_flags("Force PXE")
        return "Set Boot Device to pxe"


def test_a_boot_device_is_cleared_with_the_bit_that_makes_it_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    """``bootdev none`` leaves it set: https://github.com/ipmitool/ipmitool/issues/304."""
    flags = Flags(monkeypatch, boot_flags("Force PXE"))
    assert flags.driver.clear_boot_device(flags.node, BootDevice.PXE)
    assert flags.sent == [("raw", "0x00", "0x08", "0x05", "0x00", "0x00", "0x00", "0x00", "0x00")]
    assert not flags.driver.clear_boot_device(flags.node, BootDevice.PXE)


def test_boot_flags_that_are_not_valid_are_cleared_and_prove_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    flags = Flags(monkeypatch, boot_flags("Force PXE", valid=False))
    assert not flags.driver.clear_boot_device(flags.node, BootDevice.PXE)
    assert len(flags.sent) == 1


@pytest.mark.parametrize(
    "output", [boot_flags("Force PXE", often="all future boots"), boot_flags("Force Boot from CD/DVD")]
)
def test_boot_flags_of_others_are_not_cleared(monkeypatch: pytest.MonkeyPatch, output: str) -> None:
    flags = Flags(monkeypatch, output)
    assert not flags.driver.clear_boot_device(flags.node, BootDevice.PXE)
    assert flags.sent == []


def test_boot_flags_that_are_accepted_and_not_kept_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    flags = Flags(monkeypatch, boot_flags("No override", valid=False), obeys=False)
    with pytest.raises(BmcError) as caught:
        flags.driver.set_boot_device(flags.node, BootDevice.PXE, persistent=False)
    assert (caught.value.transient, caught.value.reason) == (True, Reason.BMC_REFUSED)
    flags.output = boot_flags("Force PXE")
    with pytest.raises(BmcError) as caught:
        flags.driver.clear_boot_device(flags.node, BootDevice.PXE)
    assert caught.value.reason is Reason.BMC_REFUSED


@pytest.mark.parametrize("output", ["", boot_flags("Force PXE", valid=False), boot_flags("Force PXE")])
def test_a_bmc_that_does_not_show_its_boot_flags_is_believed(monkeypatch: pytest.MonkeyPatch, output: str) -> None:
    flags = Flags(monkeypatch, output, obeys=False)
    flags.driver.set_boot_device(flags.node, BootDevice.PXE, persistent=False)
    assert flags.sent[-1] == ("chassis", "bootdev", "pxe")
