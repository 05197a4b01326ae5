"""A scripted Redfish service, a driver for it, and what several files of tests need of both."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from ferroscope.bmc import BmcLimits, DriverOptions
from ferroscope.bmc.redfish.driver import RedfishBmc
from ferroscope.contracts.errors import BmcError
from tests.support.processes import PATIENCE
from tests.support.scripted_redfish import SYSTEM, ScriptedBmc, answer, scripted_bmc


@pytest.fixture
def bmc() -> Iterator[ScriptedBmc]:
    with scripted_bmc() as running:
        yield running


class Hurry(threading.Event):
    """A stop flag for which nobody waits: a driver tries again at once, and gives up where it waits for too long.

    So the end of a call does not depend on how fast the machine is.
    """

    def __init__(self, waits: int | None = None) -> None:
        super().__init__()
        self._left = waits

    def wait(self, timeout: float | None = None) -> bool:
        if self._left is not None:
            self._left -= 1
        return self.is_set() or self._left == 0


def hurried(waits: int | None = None) -> RedfishBmc:
    """Return a driver that waits for nothing, at most ``waits`` times."""
    limits = BmcLimits(http_passwords=True)
    return RedfishBmc(
        DriverOptions(command_timeout=PATIENCE, inventory_timeout=PATIENCE, limits=limits, stop=Hurry(waits))
    )


@pytest.fixture
def driver() -> Iterator[RedfishBmc]:
    with closing(hurried()) as made:
        yield made


def takes_boot(bmc: ScriptedBmc, *, readonly: str = "", reverts: dict[str, Any] | None = None) -> None:
    """Have a BMC that writes what it is told, refuses ``readonly``, and sets what else it likes."""

    def patch(body: dict[str, Any]) -> Any:
        wanted = body["Boot"]
        if readonly in wanted:
            return answer(400, {"error": {"message": f"{readonly} is read-only"}})
        bmc.system["Boot"].update({**(reverts or {}), **wanted})
        return None

    bmc.upon["PATCH", SYSTEM] = patch


def fails(call: Any) -> BmcError:
    with pytest.raises(BmcError) as caught:
        call()
    return caught.value
