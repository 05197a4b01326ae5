"""A scripted Redfish service, and a driver for it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from ferroscope.bmc.drivers import DriverOptions, Limits
from ferroscope.bmc.redfish.driver import RedfishBmc
from tests.support.scripted_redfish import ScriptedBmc, scripted_bmc


@pytest.fixture
def bmc() -> Iterator[ScriptedBmc]:
    with scripted_bmc() as running:
        yield running


class Hurry(threading.Event):
    """A stop flag for which nobody waits: a driver tries again at once."""

    def wait(self, timeout: float | None = None) -> bool:
        return self.is_set()


@pytest.fixture
def driver() -> Iterator[RedfishBmc]:
    options = DriverOptions(
        command_timeout=20.0, inventory_timeout=20.0, limits=Limits(http_passwords=True), stop=Hurry()
    )
    with closing(RedfishBmc(options)) as made:
        yield made
