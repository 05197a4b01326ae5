"""What does not fit together is found when a process starts."""

from __future__ import annotations

import pytest

from ferroscope.config.settings import DiscoverySettings, DriverSettings, Settings
from ferroscope.runtime.wiring import SetupError, build_drivers


def test_discovered_nodes_need_an_enabled_driver() -> None:
    drivers = DriverSettings(enabled=("fake-hardware",))
    wrong = Settings(drivers=drivers, auto_discovery=DiscoverySettings(enabled=True, driver="redfish"))
    with pytest.raises(SetupError, match=r"auto_discovery.*'redfish'.*it has: fake-hardware"):
        build_drivers(wrong)
    assert set(build_drivers(Settings(drivers=drivers, auto_discovery=DiscoverySettings(driver="redfish")))) == {
        "fake-hardware"
    }
