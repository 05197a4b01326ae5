"""The BMC of each vendor in turn, and a driver whose pauses take no time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from ferroscope.bmc import DriverOptions
from ferroscope.bmc.redfish.driver import RedfishBmc
from ferroscope.contracts.bmc import Power
from ferroscope.core.model import Node
from tests.support.processes import until
from tests.support.vendors import ALL
from tests.support.vendors.personality import Personality
from tests.support.vendors.recorded import recorded_node, replaying
from tests.support.vendors.service import Service, node_of, serving
from tests.system.bmc.conftest import LAX


class Unhurried:
    """A stop flag that is never set; waiting for it takes no time, and is remembered in ``pauses``."""

    def __init__(self) -> None:
        self.pauses: list[float] = []

    def is_set(self) -> bool:
        return False

    def set(self) -> None:
        """Nothing is stopped."""

    def wait(self, timeout: float | None = None) -> bool:
        self.pauses.append(timeout or 0.0)
        return False


@pytest.fixture(params=ALL, ids=lambda personality: personality.name)
def service(request: pytest.FixtureRequest) -> Iterator[Service]:
    """Give the service of each vendor; its machine is off."""
    personality: Personality = request.param
    with serving(personality) as running:
        yield running


@pytest.fixture
def unhurried() -> Unhurried:
    return Unhurried()


@pytest.fixture
def bmc(unhurried: Unhurried) -> Iterator[RedfishBmc]:
    """Give the driver, with more time than it needs: what is counted here is requests."""
    options = DriverOptions(command_timeout=60.0, inventory_timeout=60.0, limits=LAX, stop=unhurried)
    with closing(RedfishBmc(options)) as driver:
        yield driver


@pytest.fixture(params=["the BMC", "its report"])
def node(request: pytest.FixtureRequest, service: Service, bmc: RedfishBmc) -> Iterator[Node]:
    """Give the node of the machine, and then that of a service that repeats what a report of its BMC says."""
    node = node_of(service)
    if request.param == "the BMC":
        yield node
        return
    with replaying(bmc.report(node, identities=True)) as recording:
        yield recorded_node(recording)


Reaches = Callable[[Node, Power], bool]


@pytest.fixture
def reaches(bmc: RedfishBmc) -> Reaches:
    """Return a function that waits until the BMC says that the machine is in this power state."""
    return lambda node, power: until(lambda: bmc.get_power(node) is power)
