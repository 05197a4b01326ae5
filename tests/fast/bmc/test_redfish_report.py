"""What is in a report of a BMC's answers, and that its login is ended however it ends."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ferroscope.bmc import BmcLimits
from ferroscope.bmc.redfish.driver import RedfishBmc, read_access
from ferroscope.bmc.redfish.redaction import Redactor, is_words
from ferroscope.bmc.redfish.report import collect
from ferroscope.remote.addresses import ANYWHERE
from ferroscope.remote.deadline import Deadline
from tests.support.rows import each
from tests.support.scripted_redfish import SESSIONS, SYSTEM, Answer, ScriptedBmc, answer

PLACE = f"{SESSIONS}/9"
MAC = "B0:26:28:C7:1A:0F"
SERIAL = "7ZK2MN3"
HOST = "db-17.rack4.example.org"


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
    access = read_access(bmc.node().driver_info, BmcLimits(http_passwords=True))
    with Deadline(60.0) as deadline:

        def too_slow(_body: object) -> None:
            deadline.end -= 60.0

        bmc.upon["GET", "/redfish/v1/Systems"] = too_slow
        report = collect(access, ANYWHERE, lambda _seconds: None, identities=False)
    assert not report["complete"]
    assert len(bmc.asked("POST", SESSIONS)) == 1
    assert not bmc.sessions


def shown(document: dict[str, Any], **more: Any) -> Any:
    return Redactor((), **more).document(document)


@each(
    "document",
    [
        {"Oem": {"Dell": {"ServiceTag": SERIAL}}},
        {"Description": HOST},
        {"Location": {"Info": SERIAL}},
        {"Status": {"State": HOST, "Conditions": [{"Message": HOST}]}},
        {"PowerState": HOST},
        {"Model": f"host {MAC}"},
        {"Name": HOST, "Id": SERIAL},
        {"@odata.id": f"/redfish/v1/Systems/{SERIAL}"},
        {"@odata.id": f"/redfish/v1/Systems/{HOST}"},
        {"@odata.id": f"/redfish/v1/Systems/1/EthernetInterfaces/{MAC}"},
        {"@odata.id": f"/redfish/v1/Systems?name={HOST}"},
        {"Members@odata.nextLink": f"/redfish/v1/X?$skip=2&$filter={SERIAL}"},
        {"error": {"@Message.ExtendedInfo": [{"Message": HOST, "MessageArgs": [HOST], "MessageId": HOST}]}},
        {"Inserted": HOST, "CapacityBytes": SERIAL, "Links": HOST, "Members": [HOST]},
        {"ResetType@Redfish.AllowableValues": [HOST]},
        {HOST: "On", "BootSourceOverrideTarget": [{HOST: {HOST: HOST}}]},
        {"SerialNumber": {"Value": SERIAL}, "UUID": [SERIAL], "HostName": HOST, "MACAddress": MAC},
        {"Image": f"http://{HOST}/{SERIAL}.iso", "ImageName": SERIAL},
        {"@odata.etag": SERIAL},
    ],
)
def test_nothing_that_identifies_a_machine_is_shown(document: dict[str, Any]) -> None:
    text = json.dumps(shown(document)).casefold()
    for word in (SERIAL, HOST, MAC, MAC.replace(":", ""), "rack4"):
        assert word.casefold() not in text


def test_what_matters_is_shown() -> None:
    document = {
        "@odata.id": "/redfish/v1/Systems/System.Embedded.1/",
        "PowerState": None,
        "Links": None,
        "Model": "Intel(R) Xeon(R) CPU @ 2.80GHz",
        "Boot": {"BootSourceOverrideTarget@Redfish.AllowableValues": ["None", "UefiHttp"]},
        "InstructionSet": "x86-64",
        "Members@odata.count": 3,
        "Members@odata.nextLink": "/redfish/v1/Systems?$skip=2",
        "error": {
            "code": "iLO.0.10.ExtendedInfo",
            "@Message.ExtendedInfo": [{"MessageArgs": ["BootSourceOverrideMode"]}],
        },
    }
    assert shown(document) == document


def test_stand_ins_have_the_shape_of_what_they_stand_for() -> None:
    redactor = Redactor(())
    first = redactor.document({"MACAddress": MAC, "PermanentMACAddress": MAC.lower().replace(":", "-")})
    assert first == {"MACAddress": "02:00:00:00:00:01", "PermanentMACAddress": "02-00-00-00-00-01"}
    assert redactor.document({"MACAddress": "B0:26:28:C7:1A:10"}) == {"MACAddress": "02:00:00:00:00:02"}
    assert redactor.document({"SerialNumber": f"{SERIAL} \0"}) == {"SerialNumber": "serial-1 \0"}
    assert redactor.document({"SerialNumber": SERIAL.lower()}) == {"SerialNumber": "serial-1"}
    assert redactor.document({"Image": f"http://{HOST}/a.ISO"}) == {"Image": "http://host/image-1.iso"}
    assert redactor.document({"@odata.etag": 'W/"1a2b"'}) == {"@odata.etag": 'W/"etag-1"'}
    assert redactor.document({"@odata.etag": '"1234"'}) == {"@odata.etag": '"2"'}


@each("value", [None, "", "N/A", "To be filled by O.E.M.", "00:00:00:00:00:00", "0"])
def test_what_identifies_nobody_is_kept(value: str | None) -> None:
    assert shown({"SerialNumber": value, "MACAddress": value}) == {"SerialNumber": value, "MACAddress": value}


def test_a_name_that_identifies_is_found_in_every_other_value_too() -> None:
    redactor = Redactor(("pa55-word",), ("bmc-7.example.org", "operator"))
    document = redactor.document(
        {
            "SerialNumber": SERIAL,
            "HostName": HOST,
            "Model": f"R650 {SERIAL}",
            "Product": "R650 of DB-17",
            "Version": "operator 1.0",
            "Vendor": "pa55-word",
        }
    )
    assert redactor.remove_identities(document) == {
        "SerialNumber": "serial-1",
        "HostName": "host-3",
        "Model": "redacted",
        "Product": "redacted",
        "Version": "redacted",
        "Vendor": "redacted",
    }


def test_identities_are_kept_if_that_is_asked_for_and_secrets_never() -> None:
    redactor = Redactor(("pa55-word",), ("bmc-7.example.org",), identities=True)
    document = {"SerialNumber": SERIAL, "MACAddress": MAC, "HostName": HOST, "@odata.id": f"/redfish/v1/{SERIAL}"}
    assert redactor.remove_identities(redactor.document(document)) == document
    assert redactor.remove_identities(redactor.document({"HostName": "pa55-word"})) == {"HostName": "redacted"}


def test_of_headers_those_are_shown_that_say_how_to_talk_to_the_service() -> None:
    headers = [
        ("Location", f"https://{HOST}/redfish/v1/SessionService/Sessions/{SERIAL}"),
        ("X-Auth-Token", "topsecret"),
        ("Set-Cookie", "session=topsecret"),
        ("Server", HOST),
        ("Allow", "GET, PATCH"),
        ("Retry-After", "30"),
    ]
    assert Redactor(()).headers(headers, "10.0.0.1") == {
        "Location": "https://other-name/redfish/v1/SessionService/Sessions/id-1",
        "Allow": "GET, PATCH",
        "Retry-After": "30",
    }


@each(
    ("name", "known"),
    [
        ("NIC.Slot.1-1-1", True),
        ("Disk.Bay.0:Enclosure.Internal.0-1:RAID.Slot.6-1", True),
        ("HGX_Baseboard_0", True),
        ("EXT1", True),
        ("1", True),
        ("10.118.7.31", False),
        ("nic-10-118-7-31", False),
        ("b0-26-28-c7-21-01", False),
        ("rack4-node17", False),
        ("A123", False),
        ("437XR1138R2", False),
        ("4711", False),
    ],
)
def test_names_of_parts_are_distinguished_from_names_of_machines(name: str, known: bool) -> None:
    assert is_words(name) is known
