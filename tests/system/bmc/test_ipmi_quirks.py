"""The IPMI driver against what real BMCs do: silence about a cipher suite, 0xd5, refusals that ipmitool passes over.

The BMC is OpenIPMI's; what it does not do by itself is done to its datagrams on their way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from ferroscope.bmc import BmcLimits, DriverOptions
from ferroscope.bmc.ipmi.driver import IpmiBmc
from ferroscope.contracts.bmc import BootDevice, Power
from ferroscope.contracts.errors import BmcError
from ferroscope.core.model import Node
from ferroscope.remote import resolver
from ferroscope.remote.addresses import Networks
from ferroscope_client.core.reasons import Reason
from tests.support.ipmi import READER, Simulator, asks_for_sha256, between, opposite, refused, simulator
from tests.support.rows import each

CONTROL = 0x02  # chassis commands
STATUS = 0x01
ANOTHER_STATE, BUSY, NO_PRIVILEGE = 0xD5, 0xC0, 0xD4


@pytest.fixture(scope="module")
def bmc_at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Simulator]:
    """Give a simulated BMC."""
    with simulator(tmp_path_factory.mktemp("ipmi")) as running:
        yield running


def test_silence_about_a_cipher_suite_leads_to_the_next_one_which_is_remembered(bmc_at: Simulator) -> None:
    """https://github.com/ipmitool/ipmitool/issues/29, https://github.com/bmc-toolbox/bmclib/issues/323."""
    with between(bmc_at.port, drops=asks_for_sha256) as (port, seen):
        bmc, node = IpmiBmc(), bmc_at.node(ipmi_port=port)
        assert bmc.get_power(node) in (Power.ON, Power.OFF)
        assert any(map(asks_for_sha256, seen))
        del seen[:]
        bmc.set_power(node, Power.ON)
        assert bmc.get_power(node) is Power.ON
        assert seen
        assert not any(map(asks_for_sha256, seen))


def test_silence_about_the_suite_that_has_worked_leads_back_to_the_other_one(bmc_at: Simulator) -> None:
    bmc = IpmiBmc()
    bmc._ciphers[("127.0.0.1", bmc_at.port)] = 3
    with between(bmc_at.port, drops=lambda one: one[4:6] == b"\x06\x10" and not asks_for_sha256(one)) as (port, seen):
        node = bmc_at.node(ipmi_port=port)
        bmc._ciphers[("127.0.0.1", port)] = 3
        with pytest.raises(BmcError) as caught:  # this BMC does not have the other one
            bmc.get_power(node)
        assert any(map(asks_for_sha256, seen))
        assert (caught.value.transient, caught.value.reason) == (True, Reason.BMC_UNREACHABLE)


def test_a_name_whose_first_address_is_silent_leads_to_the_next_one_which_is_remembered(
    bmc_at: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a name still has an address that the BMC lost, or one of IPv6 that it does not serve."""
    dead = ("127.0.0.8", "127.0.0.9")
    monkeypatch.setattr(
        resolver.socket, "getaddrinfo", lambda *_, **__: [(0, 0, 0, "", (one, 0)) for one in (*dead, bmc_at.address)]
    )
    bmc = IpmiBmc(DriverOptions(limits=BmcLimits(networks=Networks(["127.0.0.0/8"])), command_timeout=2.0))
    node = bmc_at.node(ipmi_address="bmc.example")
    for _ in dead:  # silence takes all the time of a call; the worker tries again
        with suppress(BmcError):
            bmc.get_power(node)
    for _ in range(2):
        assert bmc.get_power(node) in (Power.ON, Power.OFF)


def test_silence_names_the_cipher_suite_and_the_privilege_level(bmc_at: Simulator) -> None:
    with between(bmc_at.port, drops=lambda _: True) as (port, _):
        node = bmc_at.node(ipmi_port=port, ipmi_priv_level="OPERATOR")
        with pytest.raises(BmcError) as caught:
            IpmiBmc(DriverOptions(command_timeout=1.0)).get_power(node)
    assert (caught.value.transient, caught.value.reason) == (True, Reason.BMC_UNREACHABLE)
    assert "cipher suite 3, OPERATOR" in str(caught.value)


@pytest.mark.parametrize("power", [Power.ON, Power.OFF])
def test_a_command_that_is_refused_for_the_state_it_asks_for_is_done(bmc_at: Simulator, power: Power) -> None:
    """Dell refuses to power off what is off: https://github.com/bmc-toolbox/bmclib/issues/382."""
    IpmiBmc().set_power(bmc_at.node(), power)  # type: ignore[arg-type]
    with between(bmc_at.port, changes=refused(CONTROL, ANOTHER_STATE)) as (port, _):
        IpmiBmc().set_power(bmc_at.node(ipmi_port=port, ipmi_cipher_suite=0), power)  # type: ignore[arg-type]


@pytest.mark.parametrize("power", [Power.ON, Power.OFF])
def test_a_command_that_is_refused_in_another_state_was_not_done(bmc_at: Simulator, power: Power) -> None:
    other = Power.OFF if power is Power.ON else Power.ON
    IpmiBmc().set_power(bmc_at.node(), other)  # type: ignore[arg-type]
    with between(bmc_at.port, alters=opposite, changes=refused(CONTROL, ANOTHER_STATE)) as (port, _):
        node = bmc_at.node(ipmi_port=port, ipmi_cipher_suite=0)
        with pytest.raises(BmcError) as caught:
            IpmiBmc().set_power(node, power)  # type: ignore[arg-type]
    assert (caught.value.transient, caught.value.reason, caught.value.not_done) == (True, Reason.BMC_REFUSED, True)
    assert str(other) in str(caught.value)


def test_a_bmc_that_is_busy_is_asked_again_and_says_nothing_about_the_power(bmc_at: Simulator) -> None:
    with between(bmc_at.port, changes=refused(STATUS, BUSY)) as (port, _), pytest.raises(BmcError) as caught:
        IpmiBmc(DriverOptions(command_tries=2)).get_power(bmc_at.node(ipmi_port=port, ipmi_cipher_suite=0))
    assert (caught.value.transient, caught.value.not_done) == (True, False)


def test_a_refused_boot_device_is_an_error_although_ipmitool_ends_well(bmc_at: Simulator) -> None:
    node = bmc_at.node(ipmi_username=READER, ipmi_priv_level="USER", ipmi_cipher_suite=3)
    before = bmc_at.commands
    with pytest.raises(BmcError) as caught:
        IpmiBmc().set_boot_device(node, BootDevice.PXE, persistent=False)
    assert (caught.value.transient, caught.value.reason) == (False, Reason.BMC_PRIVILEGES)
    assert bmc_at.commands == before


def test_a_refused_command_was_certainly_not_done(bmc_at: Simulator) -> None:
    node = bmc_at.node(ipmi_username=READER, ipmi_priv_level="USER", ipmi_cipher_suite=3)
    with pytest.raises(BmcError) as caught:
        IpmiBmc().set_power(node, Power.ON)
    assert caught.value.not_done


def test_a_reset_whose_answer_got_lost_is_not_sent_again(bmc_at: Simulator) -> None:
    def lost(answer: bytes) -> bytes:
        message = answer[16:]
        about = (message[1], message[5]) if answer[4:6] == b"\x06\x00" and len(message) >= 8 else None
        return b"" if about == (0x01 << 2, CONTROL) else answer

    IpmiBmc().set_power(bmc_at.node(), Power.ON)
    before = len(bmc_at.commands)
    with between(bmc_at.port, changes=lost) as (port, _):
        bmc = IpmiBmc(DriverOptions(command_timeout=20.0))
        with pytest.raises(BmcError) as caught:
            bmc.reboot(bmc_at.node(ipmi_port=port, ipmi_cipher_suite=0))
    assert (caught.value.transient, caught.value.not_done) == (True, False)
    assert bmc_at.commands[before:] == ["reset"]


# The codes of IPMI 2.0, table 5-2, one of a command and one of a vendor; ipmitool takes 0xcf for a repeated answer.
CODES = (0x6F, 0x80, *range(0xC0, 0xCF), *range(0xD0, 0xD7), 0xFF)
WAITING = {0xC0, 0xC3, 0xC4, 0xCE, 0xD0, 0xD1, 0xD2, 0xD3, 0xFF}
SET_BOOT, GET_BOOT = 0x08, 0x09
CALLS: dict[str, tuple[int, Callable[[IpmiBmc, Node], object]]] = {
    "get_power": (STATUS, lambda bmc, node: bmc.get_power(node)),
    "set_power": (CONTROL, lambda bmc, node: bmc.set_power(node, Power.ON)),
    "reboot": (CONTROL, lambda bmc, node: bmc.reboot(node)),
    "soft_power_off": (CONTROL, lambda bmc, node: bmc.soft_power_off(node)),
    "set_boot_device": (SET_BOOT, lambda bmc, node: bmc.set_boot_device(node, BootDevice.PXE, persistent=False)),
    "get_boot_device": (GET_BOOT, lambda bmc, node: bmc.get_boot_device(node)),
}


@each("code", CODES)
def test_every_completion_code_of_every_command_is_an_answer(bmc_at: Simulator, code: int) -> None:
    """What is no text of a list was silence, and closed the BMC off.

    Reports: https://github.com/bougou/go-ipmi/pull/74, https://github.com/kinvolk/racker/pull/36.
    """
    IpmiBmc().set_power(bmc_at.node(), Power.ON)
    reason = Reason.BMC_NOT_READY if code in WAITING else Reason.BMC_REFUSED
    for name, (command, call) in CALLS.items():
        if code == ANOTHER_STATE and name in ("set_power", "soft_power_off"):
            continue  # the machine is in the state that they ask for
        with between(bmc_at.port, changes=refused(command, code)) as (port, _), pytest.raises(BmcError) as caught:
            call(IpmiBmc(DriverOptions(command_tries=1)), bmc_at.node(ipmi_port=port, ipmi_cipher_suite=0))
        wanted = Reason.BMC_PRIVILEGES if code == NO_PRIVILEGE else reason
        assert caught.value.reason is wanted, name


@each("code", [0x80, BUSY, 0xC1, 0xCC, NO_PRIVILEGE, ANOTHER_STATE, 0xFF])
def test_a_boot_device_needs_neither_its_time_limit_lifted_nor_its_flags_shown(bmc_at: Simulator, code: int) -> None:
    """A BMC without parameter 3 was taken for one without power: https://github.com/RackHD/on-tasks/pull/493."""
    parameter = [0]

    def note(request: bytes) -> bytes:
        message = request[16:]
        if request[4:6] == b"\x06\x00" and len(message) >= 8 and message[1] == 0 and message[5] == SET_BOOT:
            parameter[0] = message[6]
        return request

    def refuse(answer: bytes) -> bytes:
        return refused(GET_BOOT, code)(refused(SET_BOOT, code)(answer) if parameter[0] == 3 else answer)

    with between(bmc_at.port, alters=note, changes=refuse) as (port, _):
        bmc, node = IpmiBmc(DriverOptions(command_tries=1)), bmc_at.node(ipmi_port=port, ipmi_cipher_suite=0)
        bmc.set_boot_device(node, BootDevice.PXE, persistent=False)
    assert bmc_at.commands[-1] == "boot pxe"
