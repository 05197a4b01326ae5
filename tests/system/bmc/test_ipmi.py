"""The IPMI driver against OpenIPMI's simulated BMC, and what it does when that is not as it should be."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ferroscope.bmc import BmcLimits, DriverOptions
from ferroscope.bmc.ipmi import ipmitool
from ferroscope.bmc.ipmi.driver import IpmiBmc
from ferroscope.contracts.bmc import BootDevice, Power
from ferroscope.contracts.errors import BmcError
from ferroscope.remote.addresses import Networks
from ferroscope_client.core.reasons import Reason
from tests.support.ipmi import BEHIND, PASSWORD, Simulator, simulator
from tests.support.processes import finished, until
from tests.system.bmc.process_list import watched

KEY = "key-of-the-BMC"


@pytest.fixture(scope="module")
def bmc_at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Simulator]:
    """Give a simulated BMC."""
    with simulator(tmp_path_factory.mktemp("ipmi")) as running:
        yield running


def fails(call: Callable[[], object]) -> BmcError:
    """Return the error of ``call``, while the BMC goes on as it is."""
    with pytest.raises(BmcError) as caught:
        finished(call)
    assert PASSWORD not in "".join(traceback.format_exception(caught.value))
    return caught.value


def test_power_follows_the_command(bmc_at: Simulator) -> None:
    bmc, node = IpmiBmc(), bmc_at.node()
    bmc.set_power(node, Power.OFF)
    assert bmc.get_power(node) is Power.OFF
    bmc.set_power(node, Power.ON)
    assert bmc.get_power(node) is Power.ON
    assert bmc_at.commands[-1] == "power 1"


def test_the_operating_system_is_asked_to_shut_down_if_the_machine_is_on(bmc_at: Simulator) -> None:
    bmc, node = IpmiBmc(), bmc_at.node()
    bmc.set_power(node, Power.ON)
    bmc.soft_power_off(node)
    assert until(lambda: bmc.get_power(node) is Power.OFF)
    asked = bmc_at.commands.count("shutdown")
    bmc.soft_power_off(node)
    assert (asked, bmc_at.commands.count("shutdown")) == (1, 1)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_bmc_outside_of_its_networks_is_not_asked(bmc_at: Simulator, host: str) -> None:
    node, before = bmc_at.node(ipmi_address=host), list(bmc_at.commands)
    elsewhere = IpmiBmc(DriverOptions(limits=BmcLimits(networks=Networks(["192.0.2.0/24"]))))
    error = fails(lambda: elsewhere.set_power(node, Power.ON))
    assert (error.transient, error.reason) == (False, Reason.BMC_NOT_ALLOWED)
    assert bmc_at.commands == before
    assert IpmiBmc(DriverOptions(limits=BmcLimits(networks=Networks(["127.0.0.0/8"])))).get_power(node) in (
        Power.ON,
        Power.OFF,
    )


@pytest.mark.parametrize(
    ("device", "boot"),
    [(BootDevice.PXE, "boot pxe"), (BootDevice.CDROM, "boot cdrom"), (BootDevice.DISK, "boot default")],
)
def test_the_boot_device_is_set(bmc_at: Simulator, device: BootDevice, boot: str) -> None:
    bmc, node = IpmiBmc(), bmc_at.node()
    bmc.set_boot_device(node, device, persistent=False)
    assert bmc_at.commands[-1] == boot
    assert bmc.get_boot_device(node) == (None, None)  # this BMC never says that its boot flags are valid
    bmc.clear_boot_device(node, device)
    assert bmc_at.commands[-1] == "boot none"


def test_a_boot_device_that_ipmi_does_not_know_is_refused(bmc_at: Simulator) -> None:
    error = fails(lambda: IpmiBmc().set_boot_device(bmc_at.node(), BootDevice.WANBOOT, persistent=True))
    assert not error.transient


def test_an_older_cipher_suite_is_found_once(bmc_at: Simulator) -> None:
    bmc, node = IpmiBmc(), bmc_at.node()
    bmc.get_power(node)
    assert bmc._ciphers == {("127.0.0.1", bmc_at.port): 3}
    assert bmc.get_power(node) in (Power.ON, Power.OFF)


def test_a_cipher_suite_that_is_asked_for_is_not_replaced(bmc_at: Simulator) -> None:
    error = fails(lambda: IpmiBmc().get_power(bmc_at.node(ipmi_cipher_suite=17)))
    assert (error.transient, error.reason) == (False, Reason.BMC_REFUSED)
    assert "ipmi_cipher_suite" in str(error)


def test_the_older_protocol_works_too(bmc_at: Simulator) -> None:
    assert IpmiBmc().get_power(bmc_at.node(ipmi_protocol_version="1.5")) in (Power.ON, Power.OFF)


@pytest.mark.parametrize("wrong", [{"ipmi_password": "wrong"}, {"ipmi_username": "nobody"}], ids=["password", "user"])
def test_wrong_credentials_are_permanent_and_lock_nobody_out(bmc_at: Simulator, wrong: dict[str, str]) -> None:
    error = fails(lambda: IpmiBmc().get_power(bmc_at.node(ipmi_cipher_suite=3, **wrong)))
    assert (error.transient, error.reason) == (False, Reason.BMC_CREDENTIALS)


def test_too_low_a_privilege_is_refused(bmc_at: Simulator) -> None:
    node = bmc_at.node(ipmi_priv_level="USER", ipmi_cipher_suite=3)
    error = fails(lambda: IpmiBmc().set_power(node, Power.ON))
    assert (error.transient, error.reason) == (False, Reason.BMC_PRIVILEGES)
    assert "ipmi_priv_level is USER" in str(error)


def test_a_missing_ipmitool_is_said(bmc_at: Simulator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ipmitool, "PROGRAM", "no-such-ipmitool")
    error = fails(lambda: IpmiBmc().get_power(bmc_at.node()))
    assert (error.transient, error.reason) == (False, Reason.DRIVER_INCOMPLETE)
    assert "apt-get install" in str(error)


BRIDGED: dict[str, Any] = {"ipmi_bridging": "single", "ipmi_target_channel": 0, "ipmi_target_address": hex(BEHIND)}
TRANSIT = {"ipmi_bridging": "dual", "ipmi_transit_channel": 0, "ipmi_transit_address": "0x20"}


@pytest.mark.parametrize("more", [{}, TRANSIT, {"ipmi_local_address": "0x20"}], ids=["single", "dual", "local"])
def test_a_machine_behind_another_bmc_is_commanded_and_not_the_one_before(
    bmc_at: Simulator, more: dict[str, Any]
) -> None:
    bmc, node = IpmiBmc(), bmc_at.node(ipmi_cipher_suite=3, **BRIDGED | more)
    before = bmc_at.commands
    bmc.set_power(node, Power.ON)
    assert bmc.get_power(node) is Power.ON
    bmc.set_boot_device(node, BootDevice.PXE, persistent=False)
    bmc.reboot(node)
    bmc.set_power(node, Power.OFF)
    assert bmc_at.commands_behind[-4:] == ["power 1", "boot pxe", "reset", "power 0"]
    assert bmc_at.commands == before


def test_a_bmc_that_is_not_there_behind_another_one_is_an_error(bmc_at: Simulator) -> None:
    node = bmc_at.node(ipmi_cipher_suite=3, **BRIDGED | {"ipmi_target_address": 0x40})
    error = fails(lambda: IpmiBmc(DriverOptions(command_timeout=3)).get_power(node))
    assert (error.transient, error.reason) == (True, Reason.BMC_UNREACHABLE)


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Simulator]:
    """Give a simulated BMC with a key Kg."""
    with simulator(tmp_path_factory.mktemp("keyed") / "bmc", key=KEY) as running:
        yield running


def test_a_bmc_with_a_key_wants_it(keyed: Simulator) -> None:
    node = keyed.node(ipmi_cipher_suite=3, ipmi_hex_kg_key=KEY.encode().hex())
    assert IpmiBmc().get_power(node) is Power.OFF


@pytest.mark.parametrize("key", ["", b"another key".hex()], ids=["none", "another"])
def test_a_wrong_key_is_permanent(keyed: Simulator, key: str) -> None:
    error = fails(lambda: IpmiBmc().get_power(keyed.node(ipmi_cipher_suite=3, ipmi_hex_kg_key=key)))
    assert (error.transient, error.reason) == (False, Reason.BMC_CREDENTIALS)
    assert "ipmi_hex_kg_key" in str(error)


def test_no_process_list_has_the_password_or_the_key(
    keyed: Simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with watched(keyed.port, tmp_path, monkeypatch) as seen:
        node = keyed.node(ipmi_cipher_suite=3, ipmi_hex_kg_key=KEY.encode().hex())
        assert IpmiBmc().get_power(node) in (Power.ON, Power.OFF)
    assert seen
    for secret in (PASSWORD, KEY, KEY.encode().hex()):
        assert not any(secret.encode() in line for line in seen)
