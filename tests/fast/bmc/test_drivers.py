"""Loading drivers: what is enabled is there and keeps the contract, or the service says what to change."""

from __future__ import annotations

import tomllib
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import pytest

from ferroscope.bmc import GROUP, DriverOptions, load_drivers
from ferroscope.bmc.fake import FakeBmc
from ferroscope.bmc.redfish.driver import RedfishBmc
from ferroscope.contracts.bmc import (
    Discovers,
    KeepsConnections,
    ListsNics,
    NamesInterfaces,
    OutOfBand,
    RamdiskBoot,
    ReportsAnswers,
    ReportsHealth,
    Requirements,
    ShowsRestarts,
    Simulated,
)
from ferroscope_client.installed import PluginError
from tests import ROOT
from tests.support.rows import each

HERE = "tests.fast.bmc.test_drivers"
OPTIONAL = (
    RamdiskBoot,
    ShowsRestarts,
    OutOfBand,
    ListsNics,
    ReportsHealth,
    ReportsAnswers,
    Discovers,
    Requirements,
    KeepsConnections,
    Simulated,
)
BUILT_IN = ("redfish", "ipmi", "sim", "fake-hardware", "fake")


class Remembers(FakeBmc):
    """Keeps what it was built with."""

    def __init__(self, options: DriverOptions) -> None:
        super().__init__(options)
        self.options = options


class Blind:
    """Has forgotten some of the contract."""

    def __init__(self, options: DriverOptions) -> None: ...

    def validate(self, node: Any) -> None: ...

    def set_power(self, node: Any, power: Any) -> None: ...

    def reboot(self, node: Any) -> None: ...

    def set_boot_device(self, node: Any, device: Any, *, persistent: bool) -> None: ...


def broken(options: DriverOptions) -> None:
    raise RuntimeError("no licence")


def point(name: str, value: str) -> EntryPoint:
    return EntryPoint(name, value, GROUP)


def published() -> dict[str, str]:
    """Return the entry points of our package, whether it is installed as it is now or as it was before."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found: dict[str, str] = project["entry-points"][GROUP]
    return found


def refusal(name: str, *values: str) -> tuple[str, str]:
    with pytest.raises(PluginError) as info:
        load_drivers([name], DriverOptions(), [point(name, value) for value in values])
    return str(info.value), info.value.advice


def test_the_drivers_of_the_service_come_through_the_same_door() -> None:
    drivers = load_drivers(BUILT_IN, DriverOptions())
    assert tuple(drivers) == BUILT_IN
    abilities = {name: {one.__name__ for one in OPTIONAL if isinstance(bmc, one)} for name, bmc in drivers.items()}
    fake = {"Discovers", "Simulated"}
    assert abilities == {
        "redfish": {one.__name__ for one in OPTIONAL} - {"Simulated"},
        "ipmi": {"Requirements"},
        "sim": {"OutOfBand", "ReportsHealth", "KeepsConnections", "Simulated"},
        "fake-hardware": fake,
        "fake": fake,
    }


def test_a_driver_is_built_with_the_options_of_all() -> None:
    options = DriverOptions(command_timeout=3.0)
    driver = load_drivers(["x"], options, [point("x", f"{HERE}:Remembers")])["x"]
    assert isinstance(driver, Remembers)
    assert driver.options is options


def test_an_unknown_driver_is_named_with_those_that_there_are() -> None:
    message, advice = refusal("nope")
    assert "'nope'" in message
    assert "is the package ferroscope installed?" in advice
    with pytest.raises(PluginError) as info:
        load_drivers(["nope"], DriverOptions())
    assert all(name in info.value.advice for name in BUILT_IN)


def test_a_driver_of_two_packages_is_refused_rather_than_chosen() -> None:
    message, advice = refusal("redfish", "ferroscope.bmc.redfish.driver:RedfishBmc", f"{HERE}:Remembers")
    assert "ferroscope.bmc.redfish.driver:RedfishBmc and tests." in message
    assert "uninstall" in advice


@each(
    ("value", "said"),
    [
        ("acme_bmc:Driver", "needs the Python package acme_bmc, which is not installed"),
        (f"{HERE}:Nothing", "cannot be loaded: AttributeError"),
        (f"{HERE}:broken", "cannot be loaded: RuntimeError('no licence')"),
        (f"{HERE}:Blind", "lacks get_power, get_boot_device, properties of ferroscope.contracts.bmc.Bmc"),
    ],
)
def test_a_driver_that_does_not_load_is_named_with_its_place_and_why(value: str, said: str) -> None:
    message, advice = refusal("acme", value)
    assert message.startswith(f"driver 'acme' ({value}) ")
    assert said in message
    assert "remove acme from [drivers] enabled" in advice


def test_what_a_driver_knows_of_a_discovered_machines_bmc() -> None:
    drivers = load_drivers(BUILT_IN, DriverOptions())
    known = {
        name: driver.driver_info("2001:db8::7") for name, driver in drivers.items() if isinstance(driver, Discovers)
    }
    assert known == {
        "redfish": {"redfish_address": "https://[2001:db8::7]"},
        "fake-hardware": {"bmc_address": "2001:db8::7"},
        "fake": {"bmc_address": "2001:db8::7"},
    }
    redfish = drivers["redfish"]
    assert isinstance(redfish, Discovers)
    assert redfish.driver_info("192.0.2.7") == {"redfish_address": "https://192.0.2.7"}


def test_no_entry_point_is_left_over() -> None:
    assert set(published()) == {*BUILT_IN, "idrac", "ironic"}  # the last needs an attached Ironic: tests/nightly
    ours = {point.name for point in entry_points(group=GROUP) if point.value.startswith("ferroscope.")}
    assert ours <= set(published())


def test_idrac_is_redfish_under_the_names_that_clients_use_for_dell() -> None:
    driver = load_drivers(["idrac"], DriverOptions(), [point("idrac", published()["idrac"])])["idrac"]
    assert isinstance(driver, RedfishBmc)
    assert isinstance(driver, NamesInterfaces)
    assert driver.interfaces["power"][0] == "idrac-redfish"
