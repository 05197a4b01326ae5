"""A BMC that restarts or is busy answers with anything for a while; one that is none is told from that."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from email.utils import formatdate

import pytest

from ferroscope.bmc import BmcLimits, DriverOptions
from ferroscope.bmc.redfish.driver import RedfishBmc
from ferroscope.contracts.bmc import BootDevice, Power
from ferroscope.contracts.errors import BmcError
from ferroscope.remote.retry import BmcRetries, retry_after
from ferroscope_client.core.reasons import Reason
from tests.fast.bmc.conftest import hurried
from tests.support.bad_server import a_server_that
from tests.support.processes import until
from tests.support.rows import each
from tests.support.scripted_redfish import (
    SESSIONS,
    SYSTEM,
    Answer,
    ScriptedBmc,
    answer,
    collection,
    node_at,
    scripted_bmc,
)

RESET = f"{SYSTEM}/Actions/ComputerSystem.Reset"
HTML = b"<html>starting</html>"
NOT_READY = {"error": {"@Message.ExtendedInfo": [{"MessageId": "IDRAC.1.6.SWC0700", "Message": "iDRAC is not ready."}]}}
FULL = {"error": {"code": "Base.1.0.SessionLimitExceeded", "message": "The session limit has been exceeded."}}


def fails(call: Callable[[], object]) -> BmcError:
    with pytest.raises(BmcError) as caught:
        call()
    return caught.value


@pytest.mark.parametrize(
    "settling",
    [
        answer(200),
        answer(404),
        answer(200, HTML),
        answer(200, b"[]"),
        answer(500),
        answer(503, HTML),
        answer(400, NOT_READY),
        answer(409, {"error": "in another shape"}),
        answer(400, {"error": {"message": "The iLO is initializing; try again."}}),
        answer(400, {"error": {"@Message.ExtendedInfo": [{"MessageId": "IDRAC.2.9.SYS518", "Message": "Wait."}]}}),
        answer(400, {"error": {"@Message.ExtendedInfo": [{"MessageId": "IDRAC.2.9.RAC0508", "Message": "Wait."}]}}),
    ],
    ids=["empty", "404", "html", "list", "500", "503", "SWC0700", "409", "initializing", "SYS518", "RAC0508"],
)
def test_what_a_restarting_bmc_answers_is_waited_out(bmc: ScriptedBmc, driver: RedfishBmc, settling: Answer) -> None:
    """Reports: https://github.com/quadsproject/badfish/issues/129 (SWC0700), ironcore-dev/metal-operator#170 (SYS518),
    https://github.com/microsoft/lisa/pull/4421 (RAC0508).
    """
    assert driver.get_power(bmc.node()) is Power.ON
    bmc.will(settling, at=SYSTEM, times=5)  # more than the tries of a call
    assert driver.get_power(bmc.node()) is Power.ON
    assert not bmc.first


@pytest.mark.parametrize("settling", [answer(200), answer(404), answer(200, HTML)], ids=["empty", "404", "html"])
def test_it_stays_temporary_if_it_takes_longer(bmc: ScriptedBmc, settling: Answer) -> None:
    driver = hurried(waits=5)
    driver.get_power(bmc.node())
    bmc.will(settling, times=100)
    assert fails(lambda: driver.get_power(bmc.node())).transient


def test_a_restarting_bmc_that_lists_no_system_yet_is_waited_for(bmc: ScriptedBmc, driver: RedfishBmc) -> None:
    """redhat-performance/jetlag#778: the list of systems is empty for a while."""
    bmc.will(answer(200, collection()), at="/Systems", times=2)
    assert driver.get_power(bmc.node()) is Power.ON


def test_one_404_of_a_bmc_that_nobody_has_asked_yet_is_tried_again(bmc: ScriptedBmc, driver: RedfishBmc) -> None:
    bmc.will(answer(404), at=SYSTEM)
    assert driver.get_power(bmc.node(redfish_system_id=SYSTEM)) is Power.ON


def test_what_never_was_there_is_permanent(bmc: ScriptedBmc, driver: RedfishBmc) -> None:
    error = fails(lambda: driver.get_power(bmc.node(redfish_system_id="/redfish/v1/Systems/none")))
    assert (error.transient, error.reason) == (False, Reason.BMC_REFUSED)
    assert len(bmc.asked("GET", "none")) == 4


class Clock:
    """A stop flag that notes how long it was waited for, and a budget."""

    def __init__(self, budget: float) -> None:
        self.left = budget
        self.waited: list[float] = []

    def wait(self, seconds: float) -> bool:
        self.left -= seconds
        self.waited.append(seconds)
        return False

    def is_set(self) -> bool:
        return False


@each(
    ("pause", "waited"),
    [(None, [0.25, 0.5, 1.0]), (3.0, [3.0, 3.0, 3.0]), (0.0, [0.25, 0.5, 1.0, 2.0, 2.0, 2.0, 2.0]), (60.0, [])],
)
def test_a_busy_bmc_is_asked_when_it_wants_and_as_long_as_there_is_time(
    pause: float | None, waited: list[float]
) -> None:
    clock = Clock(10.0)
    retries = BmcRetries(lambda: clock.left, clock)  # type: ignore[arg-type]
    for _ in waited:
        retries.wait_after(BmcError("busy", transient=True, pause=pause))
    with pytest.raises(BmcError):
        retries.wait_after(BmcError("busy", transient=True, pause=pause))
    assert clock.waited == waited


def test_retry_after_is_seconds_or_a_date_by_the_bmcs_own_clock() -> None:
    now = formatdate(86400.0, usegmt=True)  # the clock of this BMC is decades behind
    assert retry_after("7", None) == 7
    assert retry_after(formatdate(86400.0 + 90, usegmt=True), now) == 90
    assert retry_after(formatdate(86400.0 - 90, usegmt=True), now) == 0
    for nonsense in (None, "", "soon", "-5", "9" * 400, "Thu, 99 Foo 2026 00:00:00 GMT"):
        assert 0 <= retry_after(nonsense, now) < 1e8


def test_the_seconds_of_a_503_are_waited_for_wherever_they_are(bmc: ScriptedBmc) -> None:
    """ironcore-dev/metal-operator#170: some say them in the message only."""
    info = {"MessageId": "Base.1.12.ServiceTemporarilyUnavailable", "MessageArgs": ["30"], "Message": "Retry in 30 s."}
    for refusal in (
        answer(503, {}, Retry_After="30"),
        answer(429, HTML, Retry_After="30"),
        answer(503, {"error": {"@Message.ExtendedInfo": [info]}}),
    ):
        driver = RedfishBmc(DriverOptions(command_timeout=25.0, limits=BmcLimits(http_passwords=True)))
        driver.get_power(bmc.node())
        before = len(bmc.seen)
        bmc.will(refusal, at=SYSTEM, times=100)
        error = fails(lambda: driver.get_power(bmc.node()))  # noqa: B023
        assert (error.transient, error.pause, len(bmc.seen) - before) == (True, 30, 2)
        bmc.first.clear()
        driver.close()


@pytest.mark.parametrize(
    ("refusal", "logins"),
    [(answer(503, FULL), 1), (answer(400, FULL), 1), (answer(503), 2), (answer(503, HTML), 2), (answer(500), 2)],
    ids=["503 limit", "400 limit", "503", "503 html", "500"],
)
def test_without_a_free_session_the_password_is_sent(
    bmc: ScriptedBmc, driver: RedfishBmc, refusal: Answer, logins: int
) -> None:
    """Reports: https://github.com/stmcginnis/gofish/issues/75, https://github.com/bb-Ricardo/check_redfish/issues/89."""
    bmc.sessions = set()
    bmc.will(refusal, at=SESSIONS, times=100)
    assert driver.get_power(bmc.node()) is Power.ON
    assert len(bmc.asked("POST", SESSIONS)) == logins
    assert "Authorization" in bmc.headers[-1]


def test_exhausted_sessions_are_reported_if_the_password_must_not_be_sent(bmc: ScriptedBmc) -> None:
    driver = hurried(waits=5)
    bmc.will(answer(503, FULL), at=SESSIONS, times=100)
    error = fails(lambda: driver.get_power(bmc.node(redfish_auth_type="session")))
    assert (error.transient, error.reason) == (True, Reason.BMC_BUSY)
    assert not any("Authorization" in headers for headers in bmc.headers)


@pytest.mark.parametrize("place", ["", "https://bmc.internal", "http://192.0.2.7:8443", "//10.0.0.1"])
def test_a_session_is_deleted_whatever_host_its_location_has(bmc: ScriptedBmc, place: str) -> None:
    """Reports: https://github.com/DMTF/python-redfish-library/issues/107, stmcginnis/gofish#77."""
    bmc.sessions, bmc.location = set(), place
    driver = RedfishBmc(DriverOptions(limits=BmcLimits(http_passwords=True)))
    driver.get_power(bmc.node())
    assert len(bmc.sessions) == 1
    driver.close()
    assert not bmc.sessions  # at once: the process may end now


def test_a_session_that_is_named_in_the_body_only_is_deleted(bmc: ScriptedBmc) -> None:
    """Reports: https://github.com/DMTF/python-redfish-library/issues/11, and
    https://github.com/DMTF/python-redfish-library/pull/177.
    """
    opened = answer(201, {"@odata.id": f"{SESSIONS}/9"}, X_Auth_Token="token")
    bmc.will(opened, at=SESSIONS)
    driver = RedfishBmc(DriverOptions(limits=BmcLimits(http_passwords=True)))
    driver.get_power(bmc.node())
    driver.close()
    assert until(lambda: bmc.asked("DELETE", f"{SESSIONS}/9") == [None])


def test_a_session_is_opened_where_the_bmc_leads(bmc: ScriptedBmc, driver: RedfishBmc) -> None:
    """Some demand a slash at the end: https://github.com/bb-Ricardo/check_redfish/pull/187."""
    bmc.sessions = set()
    bmc.will(answer(308, Location=f"{SESSIONS}/"), at=SESSIONS)
    assert driver.get_power(bmc.node(redfish_auth_type="session")) is Power.ON
    assert len(bmc.sessions) == 1


def test_missing_privileges_open_no_further_session(bmc: ScriptedBmc, driver: RedfishBmc) -> None:
    bmc.sessions = set()
    driver.get_power(bmc.node())
    bmc.will(answer(403), at=SYSTEM, times=3)
    error = fails(lambda: driver.get_power(bmc.node()))
    assert (error.transient, error.reason) == (False, Reason.BMC_PRIVILEGES)
    assert len(bmc.asked("POST", SESSIONS)) == 1


def test_a_session_that_the_bmc_calls_invalid_is_deleted_all_the_same(bmc: ScriptedBmc, driver: RedfishBmc) -> None:
    bmc.sessions = set()
    driver.get_power(bmc.node())
    bmc.will(answer(401), at=SYSTEM)
    assert driver.get_power(bmc.node()) is Power.ON
    assert until(lambda: len(bmc.sessions or ()) == 1)


def test_a_password_that_must_be_changed_first_is_reported(bmc: ScriptedBmc, driver: RedfishBmc) -> None:
    bmc.will(answer(403, {"error": {"code": "Base.1.8.PasswordChangeRequired"}}), at=SYSTEM, times=9)
    error = fails(lambda: driver.get_power(bmc.node()))
    assert (error.transient, error.reason) == (False, Reason.BMC_CREDENTIALS)
    assert "new password" in str(error)


def test_several_systems_are_named(bmc: ScriptedBmc, driver: RedfishBmc) -> None:
    bmc.has("/redfish/v1/Systems", collection(SYSTEM, "/redfish/v1/Systems/2"))
    error = fails(lambda: driver.get_power(bmc.node()))
    assert (error.transient, error.reason) == (False, Reason.BMC_SYSTEM_UNCLEAR)
    assert f"{SYSTEM}, /redfish/v1/Systems/2" in str(error)


def test_a_web_server_is_no_bmc(bmc: ScriptedBmc, driver: RedfishBmc) -> None:
    bmc.will(answer(200, HTML), times=100)
    error = fails(lambda: driver.get_power(bmc.node()))
    assert (error.transient, error.reason) == (False, Reason.BMC_NOT_REDFISH)


def test_a_redirect_to_https_says_so(bmc: ScriptedBmc, driver: RedfishBmc) -> None:
    bmc.will(answer(301, HTML, Location="https://127.0.0.1/redfish/v1/"), times=100)
    error = fails(lambda: driver.get_power(bmc.node()))
    assert (error.transient, error.reason) == (False, Reason.BMC_NOT_REDFISH)
    assert "https://127.0.0.1" in str(error)


def test_https_to_a_plain_port_says_so(bmc: ScriptedBmc, driver: RedfishBmc) -> None:
    error = fails(lambda: driver.get_power(bmc.node(redfish_address=f"https://{bmc.host}")))
    assert (error.transient, error.reason) == (False, Reason.BMC_NOT_REDFISH)
    assert "does not use TLS" in str(error)


@pytest.mark.parametrize(
    "said",
    [b"\x15\x03\x01\x00\x02\x02\x46", b"HTTP/1.1 400 Bad Request\r\nContent-Length: 64\r\n\r\n"
     b"<h1>The plain HTTP request was sent to HTTPS port</h1>          "],
    ids=["alert", "400"],
)  # fmt: skip
def test_http_to_a_port_of_tls_says_so(driver: RedfishBmc, said: bytes) -> None:
    with a_server_that([said]) as port:
        error = fails(lambda: driver.get_power(node_at(f"http://127.0.0.1:{port}")))
    assert (error.transient, error.reason) == (False, Reason.BMC_NOT_REDFISH)
    assert "uses TLS" in str(error)


@each(
    ("method", "path", "command"),
    [
        ("POST", RESET, lambda driver, node: driver.set_power(node, Power.OFF)),
        ("POST", RESET, lambda driver, node: driver.reboot(node)),
        ("PATCH", SYSTEM, lambda driver, node: driver.set_boot_device(node, BootDevice.PXE, persistent=True)),
    ],
)
def test_a_command_that_is_not_found_is_sent_again(
    driver: RedfishBmc, method: str, path: str, command: Callable[..., object]
) -> None:
    """openbmc/bmcweb answers 404 to a reset while its service of the host restarts, and 200 to a read of the system."""
    with scripted_bmc() as bmc:
        left = [answer(404)] * 5  # more than the tries of a call
        bmc.upon[method, path] = lambda body: left.pop() if left else bmc.system["Boot"].update(body.get("Boot") or {})
        command(driver, bmc.node())
        assert not left
        bmc.system["Boot"]["BootSourceOverrideTarget"] = "None"
        left += [answer(404)] * 10_000
        with closing(hurried(waits=5)) as impatient:
            error = fails(lambda: command(impatient, bmc.node()))
        assert (error.transient, error.reason) == (True, Reason.BMC_NOT_READY)
