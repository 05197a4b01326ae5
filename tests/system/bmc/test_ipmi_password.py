"""The password of an IPMI user, set on OpenIPMI's simulated BMC, which keeps 16 bytes of one and says nothing."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ferroscope.bmc import DriverOptions
from ferroscope.bmc.ipmi import accounts
from ferroscope.bmc.ipmi.driver import IpmiBmc
from ferroscope.contracts.bmc import Power
from ferroscope.contracts.errors import BmcError
from ferroscope.core.model import Node
from ferroscope_client.core.reasons import Reason
from tests.support.ipmi import PASSWORD, Simulator, simulator
from tests.system.bmc.process_list import watched
from tests.system.bmc.vendors.conftest import Unhurried

NEW, LONG = "new-Pass.word_12", "new-Pass.word_1234.Z"
KEY = "key-of-the-BMC"


@pytest.fixture(params=["", KEY], ids=["without Kg", "with Kg"])
def bmc_at(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Simulator]:
    """Give a simulated BMC whose password may be changed."""
    with simulator(tmp_path / "bmc", key=request.param) as running:
        yield running


@pytest.fixture
def bmc() -> IpmiBmc:
    return IpmiBmc(DriverOptions(inventory_timeout=60.0, stop=Unhurried()))


def node_of(bmc_at: Simulator, password: str = PASSWORD, **more: Any) -> Node:
    key = {"ipmi_hex_kg_key": bmc_at.key.encode().hex()} if bmc_at.key else {}
    return bmc_at.node(ipmi_password=password, ipmi_cipher_suite=3, **key, **more)


def fails(call: Callable[[], object]) -> BmcError:
    with pytest.raises(BmcError) as caught:
        call()
    said = "".join(traceback.format_exception(caught.value))
    assert not any(secret in said for secret in (PASSWORD, NEW, LONG))
    return caught.value


@pytest.mark.parametrize("new", [NEW, "short-P1", "with'\"\\#signs12"])
def test_the_new_password_is_proven_by_a_session(bmc_at: Simulator, bmc: IpmiBmc, new: str) -> None:
    bmc.set_password(node_of(bmc_at), new)
    bmc.log_in(node_of(bmc_at, new))
    assert bmc.get_power(node_of(bmc_at, new)) is Power.OFF
    assert fails(lambda: bmc.log_in(node_of(bmc_at))).reason is Reason.BMC_CREDENTIALS


def test_a_bmc_that_keeps_16_bytes_of_20_gets_the_old_one_again(bmc_at: Simulator, bmc: IpmiBmc) -> None:
    """https://github.com/openbmc/phosphor-host-ipmid/issues/149."""
    error = fails(lambda: bmc.set_password(node_of(bmc_at), LONG))
    assert (error.transient, error.reason) == (False, Reason.BMC_REFUSED)
    bmc.log_in(node_of(bmc_at))


def test_what_ipmitool_would_change_is_refused_before_the_bmc_is_told(bmc_at: Simulator, bmc: IpmiBmc) -> None:
    """What is longer than 16 bytes is in a command, which ipmitool parses.

    Reports: https://github.com/ipmitool/ipmitool/pull/153, https://github.com/ipmitool/ipmitool/issues/347.
    """
    error = fails(lambda: bmc.set_password(node_of(bmc_at), LONG[:-1] + '"'))
    assert (error.transient, error.reason) == (False, Reason.DRIVER_INFO_INVALID)
    bmc.log_in(node_of(bmc_at))


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"ipmi_password": "wrong-Pass.1"}, Reason.BMC_CREDENTIALS),
        ({"ipmi_username": None}, Reason.DRIVER_INFO_INVALID),
        ({"ipmi_username": "reader", "ipmi_priv_level": "USER"}, Reason.BMC_PRIVILEGES),
    ],
)
def test_an_account_that_may_not_changes_nothing(
    bmc_at: Simulator, bmc: IpmiBmc, more: dict[str, Any], reason: Reason
) -> None:
    node = node_of(bmc_at)
    node.driver_info = node.driver_info | more
    assert fails(lambda: bmc.set_password(node, NEW)).reason is reason
    bmc.log_in(node_of(bmc_at))


def test_with_bridging_it_is_the_password_of_the_bmc_in_front(bmc_at: Simulator, bmc: IpmiBmc) -> None:
    behind = {"ipmi_bridging": "single", "ipmi_target_channel": 0, "ipmi_target_address": "0x30"}
    bmc.set_password(node_of(bmc_at, **behind), NEW)
    bmc.log_in(node_of(bmc_at, NEW, **behind))


@pytest.mark.parametrize("new", [NEW, LONG])
def test_no_process_list_has_either_password(
    bmc_at: Simulator, bmc: IpmiBmc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, new: str
) -> None:
    with watched(bmc_at.port, tmp_path, monkeypatch) as seen:
        if new == LONG:
            fails(lambda: bmc.set_password(node_of(bmc_at), new))
        else:
            bmc.set_password(node_of(bmc_at), new)
    wanted = b"exec" if new == LONG else b"password"
    assert any(wanted in line for line in seen)
    for secret in (PASSWORD, new, new[:16]):
        assert not any(secret.encode() in line for line in seen)


@pytest.mark.parametrize("sign", ["\n", "\0", " ", "#", "'"])
def test_a_password_is_no_second_command(sign: str) -> None:
    with pytest.raises(BmcError):
        accounts._password_command(2, f"new-Pass.word_12{sign}34")


def test_a_command_does_not_show_what_it_types() -> None:
    for password in (NEW, LONG):
        assert password not in repr(accounts._password_command(2, password))
