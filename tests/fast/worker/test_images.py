"""What a worker does about an image that will not boot: before it touches the machine."""

from __future__ import annotations

from ferroscope.contracts.remote import Flaw
from ferroscope_client.core.reasons import Reason
from ferroscope_client.core.states import State
from tests.fast.worker.test_boot import ISO, able, machine
from tests.support.rows import each


class Flawed:
    """Every image has this flaw; ``asked`` has their URLs."""

    def __init__(self, flaw: Flaw | None) -> None:
        self._flaw = flaw
        self.asked: list[str] = []

    def flaw(self, url: str) -> Flaw | None:
        self.asked.append(url)
        return self._flaw


def test_an_image_that_certainly_does_not_boot_leaves_the_machine_alone() -> None:
    service = able()
    service.images = Flawed(Flaw(Reason.ISO_INVALID, "not an image", certain=True))
    service.worker = service.new_worker("m1")
    service.boot()
    assert service.node.state is State.ERROR
    assert "not an image" in str(service.node.last_error)
    assert not {"insert", "power on", "power off"} & set(machine(service).commands)


@each("reason", [Reason.ISO_UNREACHABLE, Reason.ISO_CERTIFICATE])
def test_what_only_the_worker_may_not_reach_is_a_warning_before_the_power_on(reason: Reason) -> None:
    service = able()
    service.images = images = Flawed(Flaw(reason, "cannot be reached", certain=False))
    service.worker = service.new_worker("m1")
    service.boot()
    assert service.node.state is State.WAITING
    assert images.asked == [ISO]
    steps = [(entry.step, entry.reason) for entry in service.journal]
    assert ("virtual media", reason) in steps
    assert steps.index(("virtual media", reason)) < [step for step, _ in steps].index("power on")


def test_a_machine_that_boots_otherwise_has_no_image_to_check() -> None:
    service = able(ramdisk_iso="")
    service.images = images = Flawed(None)
    service.worker = service.new_worker("m1")
    service.boot()
    assert images.asked == []
