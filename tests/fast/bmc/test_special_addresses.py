"""Which addresses of BMCs are refused unless they are listed, in every spelling, and when a name resolves to one."""

from __future__ import annotations

import socket

import pytest

from ferroscope.bmc import BmcLimits, DriverOptions
from ferroscope.bmc.ipmi.driver import IpmiBmc
from ferroscope.bmc.redfish.driver import RedfishBmc
from ferroscope.bmc.sim.driver import SimBmc
from ferroscope.config.options import DriverSettings, Settings
from ferroscope.contracts.errors import BmcError
from ferroscope.remote import resolver
from ferroscope.remote.addresses import Networks
from ferroscope.remote.resolver import UnresolvedError
from ferroscope.runtime.externals import build_drivers
from ferroscope_client.core.reasons import Reason
from tests.support import examples
from tests.support.rows import each

GUARDED = Networks(guarded=True)
REFUSED = [
    "127.0.0.1", "127.8.8.8", "0.0.0.0", "0.1.2.3", "169.254.169.254", "169.254.1.1", "224.0.0.1", "239.1.1.1",
    "255.255.255.255", "240.0.0.1", "192.0.0.192", "100.100.100.200", "168.63.129.16",
    "::", "::1", "fe80::1", "fe80::1%eth0", "ff02::1", "fd00:ec2::254", "fd20:ce::254",
    "::ffff:127.0.0.1", "::ffff:a9fe:a9fe", "::ffff:0:169.254.169.254", "::127.0.0.1", "::169.254.169.254",
    "64:ff9b::169.254.169.254", "64:ff9b::7f00:1", "64:ff9b:1::a9fe:a9fe", "64:ff9b:1:a9fe:a9:fe00::",
    "2002:7f00:1::1", "2002:a9fe:a9fe::", "2001:0:a9fe:a9fe::", "[::1]",
    "2130706433", "0x7f000001", "0x7f.1", "127.1", "0177.0.0.1", "017700000001", "0", "2852039166",
]  # fmt: skip
ALLOWED = [
    "10.0.0.1", "172.16.3.4", "192.168.1.1", "192.0.2.1", "198.51.100.7", "100.64.0.1", "8.8.8.8", "168.63.129.17",
    "fd00::1", "fd12:3456::1", "2001:db8::1", "2a00:1450::1", "::ffff:10.0.0.1", "64:ff9b::10.0.0.1",
    "64:ff9b:1:a00:0:100:a00:1", "2002:a00:1::1",
]  # fmt: skip


@each("address", REFUSED)
def test_no_spelling_of_a_special_address_is_allowed(address: str) -> None:
    assert address not in GUARDED
    # Networks that are listed do not open a way around.
    assert address not in Networks(["10.0.0.0/8", "64:ff9b::/96", "2000::/3"], guarded=True)


@each("address", ALLOWED)
def test_other_addresses_are_allowed(address: str) -> None:
    assert address in GUARDED


def test_a_special_address_that_is_listed_is_allowed() -> None:
    listed = Networks(["127.0.0.0/8", "fe80::/10"], guarded=True)
    for address in ("127.0.0.1", "::ffff:127.0.0.1", "2130706433", "fe80::1%eth0"):
        assert address in listed
    for address in ("169.254.169.254", "10.0.0.1", "::1"):
        assert address not in listed


def info(driver: str, host: str) -> dict[str, str]:
    bracketed = f"[{host}]" if ":" in host else host
    if driver == "redfish":
        return {"redfish_address": f"https://{bracketed}", "redfish_username": "u", "redfish_password": "long enough"}
    return {"ipmi_address": host, "ipmi_username": "u", "ipmi_password": "long enough"}


@each("driver", ["redfish", "ipmi"])
@each("host", ["127.0.0.1", "169.254.169.254", "::1", "::ffff:127.0.0.1"])
def test_drivers_refuse_them_when_a_node_is_validated(driver: str, host: str) -> None:
    drivers = build_drivers(Settings(drivers=DriverSettings(enabled=("redfish", "ipmi"))))
    problem = drivers[driver].validate(examples.node(driver=driver, driver_info=info(driver, host)))
    assert problem is not None
    assert "bmc_networks" in problem
    listed = DriverSettings(enabled=("redfish", "ipmi"), bmc_networks=("127.0.0.0/8", "169.254.169.254/32", "::1/128"))
    allowed = build_drivers(Settings(drivers=listed))
    assert allowed[driver].validate(examples.node(driver=driver, driver_info=info(driver, host))) is None


@each("driver", ["redfish", "ipmi"])
@each(("host", "meant"), [("10.40.0.041", "10.40.0.33"), ("10.40.34", "10.40.0.34"), ("0x0a280029", "10.40.0.41")])
def test_drivers_refuse_a_spelling_that_might_be_another_bmc_also_if_it_is_stored(
    driver: str, host: str, meant: str
) -> None:
    drivers = build_drivers(Settings(drivers=DriverSettings(enabled=("redfish", "ipmi"), bmc_networks=("0.0.0.0/0",))))
    with pytest.raises(BmcError) as refused:
        drivers[driver].get_power(examples.node(driver=driver, driver_info=info(driver, host)))
    assert (refused.value.reason, refused.value.transient) == (Reason.DRIVER_INFO_INVALID, False)
    assert meant in str(refused.value)


@each("host", ["10.40.0.041", "10.40.34", "170393641", "0177.0.0.1"])
def test_such_a_spelling_is_never_connected_to(host: str) -> None:
    with pytest.raises(UnresolvedError):
        resolver.resolve(host, 1.0)


@pytest.mark.parametrize("kind", [RedfishBmc, IpmiBmc])
def test_a_name_is_decided_upon_when_it_is_connected_to(
    kind: type[RedfishBmc] | type[IpmiBmc], monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = kind(DriverOptions(limits=BmcLimits(networks=GUARDED)))
    name = "redfish" if kind is RedfishBmc else "ipmi"
    node = examples.node(driver=name, driver_info=info(name, "bmc.example.net"))
    assert driver.validate(node) is None  # at that time it may have had another address
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("169.254.169.254", 0))]
    monkeypatch.setattr(resolver.socket, "getaddrinfo", lambda *_args, **_more: found)
    with pytest.raises(BmcError) as refused:
        driver.get_power(node)
    assert refused.value.reason is Reason.BMC_NOT_ALLOWED
    assert "169.254" not in str(refused.value)


def test_the_simulated_fleet_is_on_this_host_unless_networks_are_listed() -> None:
    node = examples.node(driver="sim", driver_info={"sim_address": "127.0.0.1:7623", "sim_node": "one"})
    assert SimBmc(DriverOptions(limits=BmcLimits(networks=GUARDED))).validate(node) is None
    listed = BmcLimits(networks=Networks(["192.0.2.0/24"], guarded=True))
    assert SimBmc(DriverOptions(limits=listed)).validate(node) is not None
    link = examples.node(driver="sim", driver_info={"sim_address": "169.254.169.254:80", "sim_node": "one"})
    assert SimBmc(DriverOptions(limits=BmcLimits(networks=GUARDED))).validate(link) is not None
