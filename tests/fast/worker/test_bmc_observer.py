"""A driver that is watched can do what it can do otherwise, and no more."""

from __future__ import annotations

from ferroscope.bmc.fake import FakeBmc
from ferroscope.bmc.redfish.driver import RedfishBmc
from ferroscope.contracts.bmc import Bmc, BootDevice, ListsNics, OutOfBand, Power, ReportsHealth, ShowsRestarts
from ferroscope.contracts.images import RamdiskBoot
from ferroscope.core.model import Document, Node
from ferroscope.worker.bmc import BmcObserver, observed
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
    able, unable = observed(RedfishBmc(), Counted()), observed(FakeBmc(), Counted())
    assert isinstance(able, ability)
    assert not isinstance(unable, ability)


def test_each_call_to_a_bmc_is_watched_and_validate_is_none() -> None:
    class Telling(FakeBmc):
        def boot_marks(self, node: Node) -> Document:
            return {"at": "10:00"}

        def restarted_since(self, node: Node, marks: Document) -> bool | None:
            return marks != {"at": "10:00"}

    counted, node = Counted(), Node(uuid="1", driver="fake")
    driver: Bmc | None = observed(Telling(), counted)
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
