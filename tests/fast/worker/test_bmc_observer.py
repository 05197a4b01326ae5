"""A driver that is watched can do what it can do otherwise, and no more."""

from __future__ import annotations

import ctypes
import time

import pytest

from ferroscope.bmc.fake import FakeBmc
from ferroscope.bmc.redfish.driver import RedfishBmc
from ferroscope.contracts.bmc import (
    Bmc,
    BootDevice,
    ListsNics,
    OutOfBand,
    Power,
    RamdiskBoot,
    ReportsHealth,
    ShowsRestarts,
)
from ferroscope.contracts.errors import BmcError
from ferroscope.core.model import Document, Node
from ferroscope.remote import processor_delay
from ferroscope.worker.attempt import ObservedDriver
from ferroscope.worker.services import BmcObserver
from ferroscope_client.core.reasons import Reason
from tests.support.rows import each


class Counted(BmcObserver):
    """Counts the calls."""

    def __init__(self) -> None:
        self.answers: list[bool] = []

    def call_started(self) -> None: ...

    def call_ended(self, *, answered: bool) -> None:
        self.answers.append(answered)

    def retry_after(self) -> float:
        return 0.0


@each("ability", [RamdiskBoot, ShowsRestarts, OutOfBand, ListsNics, ReportsHealth])
def test_a_watched_driver_keeps_its_abilities(ability: type) -> None:
    able, unable = ObservedDriver(RedfishBmc(), Counted()), ObservedDriver(FakeBmc(), Counted())
    assert isinstance(able, ability)
    assert not isinstance(unable, ability)


def test_each_call_to_a_bmc_is_watched_and_validate_is_none() -> None:
    class Telling(FakeBmc):
        def boot_marks(self, node: Node) -> Document:
            return {"at": "10:00"}

        def restarted_since(self, node: Node, marks: Document) -> bool | None:
            return marks != {"at": "10:00"}

    counted, node = Counted(), Node(uuid="1", driver="fake")
    driver: Bmc | None = ObservedDriver(Telling(), counted)
    assert driver is not None
    assert driver.validate(node) is None
    assert counted.answers == []
    driver.get_power(node)
    driver.set_power(node, Power.ON)
    driver.reboot(node)
    driver.set_boot_device(node, BootDevice.PXE, persistent=False)
    driver.get_boot_device(node)
    assert isinstance(driver, ShowsRestarts)
    assert driver.restarted_since(node, driver.boot_marks(node)) is False
    assert counted.answers == [True] * 7


class Silent(FakeBmc):
    """Does not answer; ``hold`` the interpreter for so many seconds meanwhile, as a processor that others use does."""

    def __init__(self, hold: float) -> None:
        super().__init__()
        self._hold = hold

    def get_power(self, node: Node) -> Power:
        with processor_delay.measure_delay():
            time.sleep(0.05)  # the thread that measures sleeps
            ctypes.PyDLL(None).usleep(int(self._hold * 1e6))
            time.sleep(0.05)
        raise BmcError("timed out", transient=True, reason=Reason.BMC_UNREACHABLE)


@pytest.mark.parametrize(("hold", "reason"), [(0.0, Reason.BMC_UNREACHABLE), (1.6, Reason.BMC_BUSY)])
def test_a_bmc_is_not_to_blame_while_the_process_itself_waits_for_a_processor(hold: float, reason: Reason) -> None:
    counted = Counted()
    driver = ObservedDriver(Silent(hold), counted)
    assert driver is not None
    with pytest.raises(BmcError) as caught:
        driver.get_power(Node(uuid="1", driver="fake"))
    assert (caught.value.reason, caught.value.waits) == (reason, bool(hold))
    assert counted.answers == [bool(hold)]  # its circuit stays closed
