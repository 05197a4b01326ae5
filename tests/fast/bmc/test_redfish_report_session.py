"""The login of a report is ended, wherever the BMC says where the session is, and however the report ends."""

from __future__ import annotations

import pytest

from ferroscope.bmc.drivers import Limits
from ferroscope.bmc.redfish.driver import RedfishBmc, read_access
from ferroscope.bmc.redfish.report import collect
from ferroscope.remote.addresses import ANYWHERE
from ferroscope.remote.deadline import Deadline
from tests.support.scripted_redfish import SESSIONS, SYSTEM, Answer, ScriptedBmc, answer

PLACE = f"{SESSIONS}/9"


@pytest.mark.parametrize(
    "opened",
    [
        answer(201, {"@odata.id": PLACE}, X_Auth_Token="token"),
        answer(201, {}, X_Auth_Token="token", Content_Location=PLACE),
        answer(201, {}, X_Auth_Token="token", Location=f"https://bmc.internal{PLACE}"),
        answer(201, {}, X_Auth_Token="token", Location=PLACE.lstrip("/")),
        answer(201, {"@odata.id": PLACE}),
    ],
)
def test_a_reports_session_is_deleted_wherever_it_is_named(
    bmc: ScriptedBmc, driver: RedfishBmc, opened: Answer
) -> None:
    bmc.will(opened, at=SESSIONS)
    assert driver.report(bmc.node(), identities=False)["answers"]
    assert bmc.asked("DELETE", "Sessions/9") == [None]


def test_a_location_that_is_no_address_ends_no_report(bmc: ScriptedBmc, driver: RedfishBmc) -> None:
    bmc.will(answer(201, {"@odata.id": PLACE}, X_Auth_Token="token", Location="https://[bmc/1"), at=SESSIONS)
    report = driver.report(bmc.node(), identities=False)
    assert any(one["path"] == SYSTEM for one in report["answers"])


def test_a_report_that_has_run_out_of_time_ends_its_login(bmc: ScriptedBmc) -> None:
    bmc.sessions = set()
    access = read_access(bmc.node().driver_info, Limits(http_passwords=True))
    with Deadline(60.0) as deadline:

        def too_slow(_body: object) -> None:
            deadline.end -= 60.0

        bmc.upon["GET", "/redfish/v1/Systems"] = too_slow
        report = collect(access, ANYWHERE, lambda _seconds: None, identities=False)
    assert not report["complete"]
    assert len(bmc.asked("POST", SESSIONS)) == 1
    assert not bmc.sessions
