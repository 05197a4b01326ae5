"""What is told of a BMC that fails: in words for people, and never the password."""

from __future__ import annotations

import errno
import os
import socket

import pytest
import requests
import sushy.exceptions
from urllib3.exceptions import MaxRetryError

from ferroscope.bmc.ipmi import ipmitool
from ferroscope.bmc.ipmi.info import read as read_ipmi
from ferroscope.bmc.redfish.driver import RedfishAccess
from ferroscope.bmc.redfish.failures import translate
from ferroscope.remote import bounded_http
from ferroscope.remote.deadline import Deadline
from ferroscope_client.core.reasons import Reason
from ferroscope_client.core.values import WITHHELD

URL = "https://192.0.2.1"


def refuse(*_args: object) -> None:
    raise OSError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))


def hang(*_args: object) -> None:
    raise TimeoutError("timed out")


def unanswered(host: str = "192.0.2.1") -> Exception:
    """Return the error of a connection that is not made, as requests has it."""
    pool = bounded_http._HttpsPool(host, 443)
    connection = pool.ConnectionCls(host, 443)
    try:
        with Deadline(5.0):
            connection.connect()
    except Exception as exc:  # noqa: BLE001  # whatever it is, it is what is looked at
        return requests.exceptions.ConnectionError(MaxRetryError(pool, "/redfish/v1/", exc))
    raise AssertionError("connected")


@pytest.mark.parametrize(
    ("how", "said", "reason"),
    [
        (refuse, "(Connection refused)", Reason.BMC_CONNECTION_REFUSED),
        (hang, "(connecting timed out)", Reason.BMC_UNREACHABLE),
    ],
)
@pytest.mark.parametrize("password", ["a long password", "p"])
def test_a_bmc_that_is_not_there_is_reported_without_our_own_names(
    monkeypatch: pytest.MonkeyPatch, how: object, said: str, reason: Reason, password: str
) -> None:
    monkeypatch.setattr(socket, "create_connection", how)
    error = translate(unanswered(), RedfishAccess(URL, None, "u", password), "power on", Deadline(5.0))
    text = str(error)
    assert text.startswith(f"power on at {URL}: ")
    assert said in text
    assert "_Https" not in text
    assert error.reason is reason


@pytest.mark.parametrize("password", ["a long password", "p"])
def test_a_name_without_an_address_is_reported_as_such(monkeypatch: pytest.MonkeyPatch, password: str) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    access = RedfishAccess("https://bmc-7", None, "u", password)
    error = translate(unanswered("bmc-7"), access, "power on", Deadline(5.0))
    assert (error.transient, error.reason) == (True, Reason.BMC_NAME_UNKNOWN)
    assert str(error) == "power on at https://bmc-7: cannot resolve bmc-7: Name or service not known"


def test_a_busy_bmc_is_not_one_that_does_not_answer() -> None:
    error = translate(
        Refusal(503, "later"), RedfishAccess(URL, None, "u", "a long password"), "power on", Deadline(5.0)
    )
    assert (error.transient, error.reason) == (True, Reason.BMC_NOT_READY)


class Refusal(sushy.exceptions.HTTPError):
    """An answer of a BMC that repeats what it was sent."""

    def __init__(self, status: int, detail: str) -> None:
        self.status_code = status
        self.detail = detail
        Exception.__init__(self, detail)


def test_a_password_is_masked_in_what_a_bmc_says() -> None:
    error = translate(Refusal(400, "bad hush1"), RedfishAccess(URL, None, "u", "hush1"), "power on", Deadline(5.0))
    assert str(error) == f"power on at {URL}: the BMC refused (HTTP 400: bad ******)"


def test_what_a_bmc_says_is_withheld_where_a_mask_would_tell_the_password() -> None:
    error = translate(Refusal(400, "bad p"), RedfishAccess(URL, None, "u", "p"), "power on", Deadline(5.0))
    assert WITHHELD in str(error)
    assert "bad" not in str(error)
    assert "The BMC rejected the command" in str(error)
    assert error.reason is Reason.BMC_REFUSED


def test_the_same_holds_for_ipmi() -> None:
    info = {"ipmi_address": "192.0.2.1", "ipmi_username": "u"}
    for password, said in (("hush1", "no ****** here"), ("no", WITHHELD)):
        access = read_ipmi(info | {"ipmi_password": password})
        assert said in str(ipmitool.classify(access, 3, "power on", "no hush1 here"))
