"""What the IPMI driver makes of ipmitool's words: its output, and the errors that people report of real BMCs."""

from __future__ import annotations

import pytest

from ferroscope.bmc.ipmi import driver as ipmi
from ferroscope.bmc.ipmi.driver import IpmiBmc, power_of
from ferroscope.bmc.ipmi.info import Access
from ferroscope.bmc.ipmi.ipmitool import CipherError, Command, SilentError, StateError, classify
from ferroscope.contracts.bmc import ForcesOff, Power
from ferroscope.core.model import Node
from ferroscope.core.reasons import Reason

NOISE = "Loading IANA PEN Registry...\nGet HPM.x Capabilities request failed, compcode = d4\n"
NOISE += "Invalid completion code received: Insufficient privilege level\nDiscovered IPMB address 0x0\n"
NO_SESSION = "Error: Unable to establish IPMI v2 / RMCP+ session\n"


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
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
        ("Error in open session response message : insufficient resources for session\n", Reason.BMC_NOT_READY, True),
        ("Get Chassis Power Status failed: Unspecified error\n", Reason.BMC_NOT_READY, True),
        ("Get Chassis Power Status failed: Node busy\n", Reason.BMC_NOT_READY, True),
        ("RAKP 2 message indicates an error : inactive session ID\n", Reason.BMC_NOT_READY, True),
        ("", Reason.BMC_UNREACHABLE, True),
    ],
)
def test_each_failure_has_a_reason_of_its_own(words: str, reason: Reason, transient: bool) -> None:
    error = classify(Access("bmc"), 17, "power on", NOISE + words)
    assert (error.reason, error.transient) == (reason, transient)
    assert not isinstance(error, SilentError) or not words


@pytest.mark.parametrize(
    "words",
    [
        "Get Auth Capabilities error\nError issuing Get Channel Authentication Capabilities request\n" + NO_SESSION,
        "Set Session Privilege Level to ADMINISTRATOR failed\n" + NO_SESSION + "Close Session command failed\n",
        "> Error: no response from RAKP 1 message\n"  # openbmc/openbmc#1812: the account has the privilege
        "Set Session Privilege Level to ADMINISTRATOR failed: Insufficient privilege level\n" + NO_SESSION,
        "> Error: no response from RAKP 1 message\nError: Received an Unexpected RAKP 2 message\n"
        "> RAKP 2 HMAC is invalid\n" + NO_SESSION,
        NO_SESSION,
    ],
)
def test_silence_is_told_from_refusals_and_leads_to_the_next_cipher_suite(words: str) -> None:
    error = classify(Access("bmc", level="OPERATOR"), 17, "power on", NOISE + words)
    assert isinstance(error, SilentError)
    assert (error.reason, error.transient) == (Reason.BMC_UNREACHABLE, True)
    assert "cipher suite 17, OPERATOR" in str(error)


@pytest.mark.parametrize(
    "words",
    [
        "Error in open session response message : invalid authentication algorithm\n\n" + NO_SESSION,
        "Error in open session response message : no matching cipher suite\n\n" + NO_SESSION,  # ipmitool/ipmitool#363
        "Error in open session response message : no matching integrity payload\n\n" + NO_SESSION,
        "ipmitool: lanplus.c:1839: ipmi_lanplus_build_v2x_msg: Assertion `0' failed.\n",
    ],
)
def test_a_cipher_suite_that_is_not_supported_leads_to_the_next_one(words: str) -> None:
    assert isinstance(classify(Access("bmc"), 17, "power on", NOISE + words), CipherError)


def test_a_refusal_for_the_state_of_the_machine_is_told_from_the_others() -> None:
    words = "Set Chassis Power Control to Down/Off failed: Command not supported in present state\n"
    assert isinstance(classify(Access("bmc"), 17, "power off", NOISE + words), StateError)


def test_a_password_is_masked_before_a_long_message_is_cut() -> None:
    password = "pa55-of-the-BMC-word"
    access = Access(host="192.0.2.1", username="operator", password=password)
    start = len(str(classify(access, 17, "power state", "x")))
    for padding in range(150, 210 - start + 150):
        said = str(classify(access, 17, "power state", "x" * padding + password))
        assert password[:4] not in said


@pytest.mark.parametrize("refused", [False, True])
def test_a_power_off_that_the_bmc_refuses_because_it_is_off_was_not_accepted(
    refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(access: Access, _cipher: int, command: Command, _seconds: float) -> str:
        if command.words[-1] == "status":
            return "Chassis Power is off"
        if refused:
            raise classify(access, 3, command.what, "Command not supported in present state")
        return "Chassis Power Control: Down/Off"

    monkeypatch.setattr(ipmi, "run", run)
    driver = IpmiBmc()
    assert isinstance(driver, ForcesOff)
    info = {"ipmi_address": "192.0.2.1", "ipmi_username": "operator", "ipmi_password": "hush"}
    assert driver.force_off(Node(uuid="n", driver="ipmi", driver_info=info)) is not refused
