"""Images that a BMC inserts later (202 and a task), and drives that are not ready while others are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import Any

import pytest

from ferroscope.bmc.redfish.driver import RedfishBmc
from ferroscope.contracts.bmc import Power
from ferroscope.contracts.errors import BmcError
from ferroscope.core.virtual_media import Image
from ferroscope_client.core.reasons import Reason
from tests.fast.bmc.conftest import hurried
from tests.support.scripted_redfish import SYSTEM, Answer, ScriptedBmc, answer, collection, link

MEDIA = f"{SYSTEM}/VirtualMedia"
MONITOR = "/redfish/v1/TaskService/TaskMonitors/1"
TASK = "/redfish/v1/TaskService/Tasks/1"
IMAGE = Image(iso="http://192.0.2.1/ramdisk.iso")
# Longer than a BMC without tasks is given.
LOOKS = 40
WHY = "Unable to mount http://192.0.2.1/ramdisk.iso: no route to host"


def insert(drive: str) -> str:
    return f"{drive}/Actions/VirtualMedia.InsertMedia"


def has_drives(bmc: ScriptedBmc, *drives: str) -> None:
    """Have these empty CD drives, which take an image at once."""
    bmc.system["VirtualMedia"] = link(MEDIA)
    bmc.has(MEDIA, collection(*drives))
    for drive in drives:
        targets = {name: f"{drive}/Actions/VirtualMedia.{name}Media" for name in ("Insert", "Eject")}
        actions = {f"#VirtualMedia.{name}Media": {"target": target} for name, target in targets.items()}
        bmc.has(drive, MediaTypes=["CD"], Inserted=False, Image=None, Actions=actions)
        bmc.upon["POST", targets["Insert"]] = partial(_shows, bmc, drive, True)
        bmc.upon["POST", targets["Eject"]] = partial(_shows, bmc, drive, False)
    bmc.upon["PATCH", SYSTEM] = lambda body: bmc.system["Boot"].update(body["Boot"])


def _shows(bmc: ScriptedBmc, drive: str, inserted: bool, body: dict[str, Any] | None) -> None:
    bmc.documents[drive].update(Inserted=inserted, Image=body["Image"] if inserted and body else None)


def running(kind: str) -> Iterator[Answer]:
    """Yield what a service of this kind says of a task that goes on."""
    says = {"monitor": answer(202), "task": answer(200, {"Id": "1", "TaskState": "Running"})}
    for _ in range(LOOKS):
        yield says[kind]


@pytest.mark.parametrize("kind", ["monitor", "task", "task in the body"])
def test_an_image_that_is_inserted_later_is_waited_for_as_long_as_its_task_runs(
    bmc: ScriptedBmc, driver: RedfishBmc, kind: str
) -> None:
    drive, place = f"{MEDIA}/1", MONITOR if kind == "monitor" else TASK
    has_drives(bmc, drive)
    accepted = answer(202, link(TASK)) if kind == "task in the body" else answer(202, Location=place)
    bmc.upon["POST", insert(drive)] = lambda _body: accepted
    states = running("monitor" if kind == "monitor" else "task")

    def state(_body: object) -> Answer:
        if (found := next(states, None)) is None:
            bmc.documents[drive] |= {"Inserted": True, "Image": IMAGE.iso}
        return found or answer(204)

    bmc.upon["GET", place] = state
    driver.insert_ramdisk(bmc.node(), IMAGE)
    assert len(bmc.asked("POST", insert(drive))) == 1
    assert len(bmc.asked("GET", place)) > LOOKS


@pytest.mark.parametrize(
    "end",
    [
        answer(400, {"error": {"code": "Base.1.8.GeneralError", "message": WHY}}),
        answer(200, {"TaskState": "Exception", "Messages": [{"Message": "Mounting"}, {"Message": WHY}]}),
    ],
    ids=["monitor", "task"],
)
def test_an_insertion_that_fails_later_says_why(bmc: ScriptedBmc, driver: RedfishBmc, end: Answer) -> None:
    first, second = f"{MEDIA}/1", f"{MEDIA}/2"
    has_drives(bmc, first, second)
    for drive in (first, second):
        bmc.upon["POST", insert(drive)] = lambda _body: answer(202, Location=MONITOR)
    bmc.documents[MONITOR] = end
    with pytest.raises(BmcError, match="no route to host") as caught:
        driver.insert_ramdisk(bmc.node(), IMAGE)
    assert (caught.value.transient, caught.value.reason) == (False, Reason.BMC_REFUSED)
    assert [len(bmc.asked("POST", insert(drive))) for drive in (first, second)] == [1, 1]


@pytest.mark.parametrize("end", [answer(404), answer(204), answer(200, {"TaskState": "Completed"}), answer(200, {})])
def test_a_task_that_has_ended_and_inserted_nothing_is_given_up(
    bmc: ScriptedBmc, driver: RedfishBmc, end: Answer
) -> None:
    has_drives(bmc, f"{MEDIA}/1")
    bmc.upon["POST", insert(f"{MEDIA}/1")] = lambda _body: answer(202, Location=MONITOR)
    bmc.documents[MONITOR] = end
    with pytest.raises(BmcError, match="never inserted it"):
        driver.insert_ramdisk(bmc.node(), IMAGE)


@pytest.mark.parametrize("status", [500, 503])
def test_a_drive_that_is_never_ready_is_left_for_an_empty_one(
    bmc: ScriptedBmc, driver: RedfishBmc, status: int
) -> None:
    has_drives(bmc, f"{MEDIA}/1", f"{MEDIA}/2")
    refused = answer(status, {"error": {"code": "Base.1.8.InternalError", "message": "internal"}})
    bmc.upon["POST", insert(f"{MEDIA}/1")] = lambda _body: refused
    driver.insert_ramdisk(bmc.node(), IMAGE)
    assert [bmc.documents[f"{MEDIA}/{number}"]["Inserted"] for number in (1, 2)] == [False, True]


def test_a_refusal_without_a_word_is_judged_by_its_status(bmc: ScriptedBmc) -> None:
    has_drives(bmc, f"{MEDIA}/1")
    bmc.upon["POST", insert(f"{MEDIA}/1")] = lambda _body: answer(503)
    with closing(hurried(5)) as driver, pytest.raises(BmcError) as caught:
        driver.insert_ramdisk(bmc.node(), IMAGE)
    assert (caught.value.transient, caught.value.reason) == (True, Reason.BMC_NOT_READY)
    assert len(bmc.asked("POST", insert(f"{MEDIA}/1"))) == 5


def test_no_foreign_medium_is_ejected_because_another_drive_is_not_ready(bmc: ScriptedBmc, driver: RedfishBmc) -> None:
    has_drives(bmc, f"{MEDIA}/1", f"{MEDIA}/2")
    bmc.documents[f"{MEDIA}/2"] |= {"Inserted": True, "Image": "http://192.0.2.9/foreign.iso"}
    answers: list[Any] = [answer(503)] * 10
    takes = bmc.upon["POST", insert(f"{MEDIA}/1")]
    bmc.upon["POST", insert(f"{MEDIA}/1")] = lambda body: answers.pop() if answers else takes(body)
    driver.insert_ramdisk(bmc.node(), IMAGE)
    assert bmc.documents[f"{MEDIA}/1"]["Image"] == IMAGE.iso
    assert bmc.documents[f"{MEDIA}/2"]["Image"] == "http://192.0.2.9/foreign.iso"


RESET = f"{SYSTEM}/Actions/ComputerSystem.Reset"
FAILED = {"TaskState": "Exception", "Messages": [{"Message": "The chassis has no power budget."}]}


@pytest.mark.parametrize(
    ("says", "why"),
    [
        (answer(202), ""),
        (answer(200, {"TaskState": "Running"}), ""),
        (answer(200, {"TaskState": "Completed"}), ""),
        (answer(404), ""),
        (answer(403), ""),
        (answer(503), ""),
        (answer(200, FAILED), "no power budget"),
        (answer(400, {"error": {"message": "no power budget"}}), "no power budget"),
    ],
    ids=["202", "running", "completed", "404", "403", "503", "failed", "400"],
)
def test_a_reset_that_is_carried_out_later_is_refused_by_its_task_alone(
    bmc: ScriptedBmc, driver: RedfishBmc, says: Answer, why: str
) -> None:
    """202, and the task says that it could not; the power state would only not follow.

    Report: https://github.com/DMTF/Redfishtool/issues/55.
    """
    bmc.upon["POST", RESET] = lambda _body: answer(202, Location=MONITOR)
    bmc.documents[MONITOR] = says
    if not why:
        driver.set_power(bmc.node(), Power.OFF)
    else:
        with pytest.raises(BmcError, match=why) as caught:
            driver.set_power(bmc.node(), Power.OFF)
        assert (caught.value.transient, caught.value.reason) == (False, Reason.BMC_REFUSED)
    assert len(bmc.asked("POST", RESET)) == len(bmc.asked("GET", MONITOR)) == 1
