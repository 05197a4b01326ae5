"""What does not fit together is found when a process starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from ferroscope.config.options import (
    DiscoverySettings,
    DriverSettings,
    InspectionRuleSettings,
    RegistrySettings,
    Settings,
)
from ferroscope.runtime.system import SetupError
from ferroscope.runtime.wiring import build_drivers, built_in_rules


def test_discovered_nodes_need_an_enabled_driver() -> None:
    drivers = DriverSettings(enabled=("fake-hardware",))
    wrong = Settings(drivers=drivers, auto_discovery=DiscoverySettings(enabled=True, driver="redfish"))
    with pytest.raises(SetupError, match=r"auto_discovery.*'redfish'.*fake-hardware"):
        build_drivers(wrong)
    with pytest.raises(SetupError, match=r"auto_discovery. driver is not set"):
        build_drivers(Settings(drivers=drivers, auto_discovery=DiscoverySettings(enabled=True)))
    assert set(build_drivers(Settings(drivers=drivers, auto_discovery=DiscoverySettings(driver="redfish")))) == {
        "fake-hardware"
    }


def test_a_driver_that_does_nothing_is_offered_only_where_it_is_asked_for() -> None:
    assert set(build_drivers(Settings())) == {"redfish", "ipmi"}


def test_discovery_does_not_go_with_a_registry_that_knows_no_such_nodes() -> None:
    registry = RegistrySettings(url="http://ironic.example:6385")
    with pytest.raises(SetupError, match="registry"):
        build_drivers(Settings(registry=registry, auto_discovery=DiscoverySettings(enabled=True, driver="ipmi")))
    build_drivers(Settings(registry=registry))


def test_a_broken_file_of_built_in_rules_is_refused_at_the_start(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text("- actions: [{op: nope, args: {}}]")
    settings = Settings(inspection_rules=InspectionRuleSettings(built_in_rules=str(file)))
    with pytest.raises(SetupError, match="unknown op 'nope'"):
        built_in_rules(settings)
