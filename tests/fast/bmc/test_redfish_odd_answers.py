"""One odd value of a BMC costs this value only: not the resource, not the page, not the machine."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from ferroscope.bmc.redfish.driver import RedfishBmc
from ferroscope.contracts.bmc import BootDevice, Power
from ferroscope.contracts.errors import BmcError
from ferroscope.core.virtual_media import Image
from ferroscope_client.core.reasons import Reason
from tests.support.bad_server import a_server_that
from tests.support.scripted_redfish import MANAGER, SESSIONS, SYSTEM, ScriptedBmc, answer, collection, link, node_at

ROOT = "/redfish/v1/"
NICS = f"{SYSTEM}/EthernetInterfaces"
DRIVE = f"{SYSTEM}/VirtualMedia/1"
RESET = f"{SYSTEM}/Actions/ComputerSystem.Reset"
ISO = "http://192.0.2.1/ramdisk.iso"


@pytest.fixture
def machine(bmc: ScriptedBmc) -> ScriptedBmc:
    """Give a machine with two NICs and a virtual drive, whose boot device can be set."""
    macs = {f"{NICS}/{number}": f"52:54:00:00:00:0{number}" for number in (1, 2)}
    for path, mac in macs.items():
        bmc.has(path, {"Id": path[-1], "MACAddress": mac, "Description": "NIC"})
    bmc.has(NICS, collection(*macs))
    bmc.system.update({"EthernetInterfaces": link(NICS), "VirtualMedia": link(f"{SYSTEM}/VirtualMedia")})
    bmc.has(f"{SYSTEM}/VirtualMedia", collection(DRIVE))
    actions = {
        f"#VirtualMedia.{name}Media": {"target": f"{DRIVE}/Actions/VirtualMedia.{name}Media"}
        for name in ("Insert", "Eject")
    }
    bmc.has(DRIVE, MediaTypes=["CD"], Inserted=False, Actions=actions)
    bmc.upon["POST", actions["#VirtualMedia.InsertMedia"]["target"]] = lambda body: bmc.documents[DRIVE].update(
        Inserted=True, Image=body["Image"]
    )
    bmc.upon["PATCH", SYSTEM] = lambda body: bmc.system.update(Boot=(bmc.system.get("Boot") or {}) | body["Boot"])
    return bmc


def macs(driver: RedfishBmc, bmc: ScriptedBmc) -> list[str]:
    return [one.mac for one in driver.nics(bmc.node())]


def works(driver: RedfishBmc, bmc: ScriptedBmc) -> bool:
    """Whether everything that an inspection needs of a BMC works."""
    node = bmc.node()
    assert driver.get_power(node) is Power.ON
    driver.set_boot_device(node, BootDevice.PXE, persistent=False)
    assert driver.get_boot_device(node) == (BootDevice.PXE, False)
    assert driver.insert_ramdisk(node, Image(iso=ISO)) is None
    driver.reboot(node)
    return macs(driver, bmc) == ["52:54:00:00:00:01", "52:54:00:00:00:02"]


@pytest.mark.parametrize(
    ("path", "odd"),
    [
        (SYSTEM, {"MemorySummary": {"TotalSystemMemoryGiB": "64 GB"}}),
        (SYSTEM, {"BootProgress": {"LastState": "None", "LastStateTime": "N/A", "LastBootTimeSeconds": "12.5"}}),
        (SYSTEM, {"@Redfish.MaintenanceWindow": {"MaintenanceWindowStartTime": ""}}),
        (SYSTEM, {"Status": "OK", "Oem": 7, "IndicatorLED": ["Lit"], "SystemType": 1}),
        (SYSTEM, {"Manufacturer": "Supermicro", "Boot": {"BootSourceOverrideTarget": "None"}}),
        (SYSTEM, {"@Redfish.Settings": {"SettingsObject": link(f"{SYSTEM}/SD"), "SupportedApplyTimes": 1}}),
        (SYSTEM, {"@Redfish.Settings": {"SettingsObject": link(f"{SYSTEM}/missing")}}),
        (SYSTEM, {"Actions": {"#ComputerSystem.Reset": {"target": RESET, "ResetType@Redfish.AllowableValues": "On"}}}),
        (SYSTEM, {"Actions": {"#ComputerSystem.Reset": {"target": RESET, "@Redfish.ActionInfo": f"{SYSTEM}/resets"}}}),
        (ROOT, {"Id": None, "Name": 7, "RedfishVersion": 1, "UUID": []}),
        (ROOT, {"Chassis": 7, "UpdateService": "none", "ProtocolFeaturesSupported": []}),
        (DRIVE, {"Name": None, "Id": 1}),
        (DRIVE, {"MediaTypes": "CD"}),
        (DRIVE, {"Status": "OK", "VerifyCertificate": [], "TransferMethod": 1, "ConnectedVia": {}}),
    ],
)
def test_a_property_that_nobody_needs_may_have_any_value(
    machine: ScriptedBmc, driver: RedfishBmc, path: str, odd: dict[str, Any]
) -> None:
    machine.has(f"{SYSTEM}/SD", {"Id": "SD", "Name": "SD", "Boot": None})
    machine.has(f"{SYSTEM}/resets", {"Id": "resets", "Parameters": None})
    machine.documents[path] |= odd
    machine.documents[path] = {key: value for key, value in machine.documents[path].items() if value is not None}
    assert works(driver, machine)


def test_an_action_without_an_address_is_none(machine: ScriptedBmc, driver: RedfishBmc) -> None:
    machine.system["Actions"] = {"#ComputerSystem.Reset": {"target": None}}
    assert len(macs(driver, machine)) == 2
    with pytest.raises(BmcError, match=r"#ComputerSystem\.Reset") as caught:
        driver.reboot(machine.node())
    assert caught.value.reason is Reason.BMC_REFUSED


@pytest.mark.parametrize(
    "odd",
    [b'"Caf\xe9"', b'"a\tb\x01"', b"NaN", b"-Infinity", b"1e400", b'"\\ud800"'],
    ids=["not UTF-8", "control characters", "NaN", "Infinity", "out of range", "half a surrogate pair"],
)
@pytest.mark.parametrize("path", [ROOT, SYSTEM, f"{NICS}/1"])
def test_what_no_reader_of_json_takes_costs_one_value(
    machine: ScriptedBmc, driver: RedfishBmc, path: str, odd: bytes
) -> None:
    body = json.dumps(machine.documents[path] | {"AssetTag": "ODD"}).encode().replace(b'"ODD"', odd)
    machine.documents[path] = answer(200, b"\xef\xbb\xbf" + body + b"\0\n")
    assert driver.get_power(machine.node()) is Power.ON
    assert macs(driver, machine) == ["52:54:00:00:00:01", "52:54:00:00:00:02"]


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("Members@odata.nextLink", f"{NICS}?$skip=1"),
        ("Members@odata.nextlink", f"{NICS[1:]}?$skip=1"),
        ("@odata.nextLink", "EthernetInterfaces?$skip=1"),
        ("Members@odata.nextLink", "?$skip=1"),
        ("Members@odata.nextLink", f"//bmc.internal{NICS}?$skip=1"),
    ],
)
def test_the_next_page_is_found_however_its_link_is_written(
    machine: ScriptedBmc, driver: RedfishBmc, name: str, written: str
) -> None:
    first, second = machine.documents[NICS]["Members"]
    machine.documents[NICS] |= {"Members": [first], name: written}
    machine.has(f"{NICS}?$skip=1", {"Members": [second]})
    assert len(macs(driver, machine)) == 2
    assert "unread" not in driver.inventory(machine.node())


def test_a_collection_that_lists_fewer_than_it_has_is_noted(machine: ScriptedBmc, driver: RedfishBmc) -> None:
    machine.documents[NICS]["Members@odata.count"] = 4
    found = driver.inventory(machine.node())
    assert len(found["interfaces"]) == 2
    assert found["unread"] == [f"{NICS}: lists 2 of its 4 members"]


def test_a_path_with_a_slash_at_its_end_is_the_same(machine: ScriptedBmc, driver: RedfishBmc) -> None:
    machine.documents["/redfish/v1/Systems"] = collection(SYSTEM, f"{SYSTEM}/")
    for path in ("/cpu", "/drive"):
        machine.documents[f"{path}/"] = machine.documents[path] = {
            "Id": "0",
            "TotalThreads": 8,
            "CapacityBytes": 10**12,
        }
    machine.system["Processors"] = link(f"{SYSTEM}/Processors")
    machine.has(f"{SYSTEM}/Processors", collection("/cpu", "/cpu/"))
    machine.system["Storage"] = link(f"{SYSTEM}/Storage")
    machine.has(
        f"{SYSTEM}/Storage",
        {"Members": [{"Id": "0", "Drives": [link("/drive")]}, {"Drives": [link("/drive/")], "Id": "1"}]},
    )
    found = driver.inventory(machine.node())
    assert (found["cpu"]["count"], len(found["disks"])) == (8, 1)


@pytest.mark.parametrize(
    ("summary", "cpu"),
    [
        (
            {"Count": 2, "LogicalProcessorCount": 64, "Model": "Xeon"},
            {"count": 64, "socket_count": 2, "model_name": "Xeon"},
        ),
        ({"Count": "2", "CoreCount": "3.2e1", "LogicalProcessorCount": None}, {"count": 32, "socket_count": 2}),
        ({"Count": 2}, {"socket_count": 2}),
        ({"Count": 0, "Model": ""}, None),
        (None, None),
    ],
)
@pytest.mark.parametrize(
    "listed",
    [None, answer(404), collection(), {"Members": [{"Id": "0", "Status": {"State": "Absent"}, "TotalCores": 8}]}],
    ids=["no link", "404", "empty", "absent"],
)
def test_without_a_list_of_processors_the_summary_counts(
    bmc: ScriptedBmc, driver: RedfishBmc, listed: Any, summary: Any, cpu: Any
) -> None:
    """Reports: https://github.com/ibm-openbmc/dev/issues/3196 (0 in the summary), and
    https://github.com/openbmc/bmcweb/issues/125 (all are absent).
    """
    bmc.system.update({"ProcessorSummary": summary} | ({"Processors": link("/cpus")} if listed else {}))
    bmc.has("/cpus", listed or {})
    assert driver.inventory(bmc.node()).get("cpu") == cpu


def test_a_redirect_to_the_bmcs_own_name_is_followed_at_the_address_that_we_know(
    machine: ScriptedBmc, driver: RedfishBmc
) -> None:
    for path in (SYSTEM, NICS):
        machine.documents[f"{path}/"] = machine.documents[path]
        machine.documents[path] = answer(308, None, Location=f"http://idrac-abc.example{path}/")
    assert len(macs(driver, machine)) == 2


def test_the_encoding_that_a_header_claims_is_not_believed(machine: ScriptedBmc, driver: RedfishBmc) -> None:
    for path in (ROOT, SYSTEM):
        body = json.dumps(machine.documents[path]).encode()
        machine.documents[path] = answer(200, body, Content_Type="application/json; charset=utf-16")
    assert driver.get_power(machine.node()) is Power.ON


@pytest.mark.parametrize(
    "sends",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\0\x1b[2J\0\0",
        b"HTTP/1.1 OK 200\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: 90\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200,
    ],
    ids=["ssh", "binary", "status", "length", "chunks", "gzip", "headers"],
)
def test_an_answer_that_is_broken_is_not_called_a_connection_that_failed(driver: RedfishBmc, sends: bytes) -> None:
    with a_server_that([sends]) as port, pytest.raises(BmcError, match="is not HTTP") as caught:
        driver.get_power(node_at(f"http://127.0.0.1:{port}"))
    assert caught.value.transient
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_command_that_is_redirected_is_sent_as_the_command_that_it_is(
    machine: ScriptedBmc, driver: RedfishBmc, status: int
) -> None:
    machine.upon["POST", RESET] = lambda _body: answer(status, None, Location=f"{RESET}/")
    machine.has(f"{RESET}/", {"Id": "what a read would get"})
    driver.reboot(machine.node())
    assert machine.asked("POST", f"{RESET}/") == [{"ResetType": "ForceRestart"}]
    assert not machine.asked("GET", RESET)


def test_a_command_whose_answer_is_to_be_seen_elsewhere_is_done(machine: ScriptedBmc, driver: RedfishBmc) -> None:
    """https://github.com/DMTF/python-redfish-library/issues/98."""
    machine.upon["POST", RESET] = lambda _body: answer(303, None, Location="/redfish/v1/TaskService/Tasks/1")
    driver.reboot(machine.node())
    assert len(machine.asked("POST", RESET)) == 1


@pytest.mark.parametrize(
    "place",
    [SYSTEM, f"http://elsewhere.example{SYSTEM}", "/redfish/v1/a", "", "http://[::1"],
    ids=["itself", "host", "circle", "none", "nonsense"],
)
def test_a_redirect_that_leads_nowhere_says_so(bmc: ScriptedBmc, driver: RedfishBmc, place: str) -> None:
    bmc.documents[SYSTEM] = answer(301, None, Location=place)
    for one, other in ("ab", "ba"):
        bmc.documents[f"/redfish/v1/{one}"] = answer(301, None, Location=f"/redfish/v1/{other}")
    with pytest.raises(BmcError, match="redirects") as caught:
        driver.get_power(bmc.node())
    assert (caught.value.transient, caught.value.reason) == (False, Reason.BMC_REFUSED)


def test_power_that_is_refused_for_the_state_it_asks_for_is_done(machine: ScriptedBmc, driver: RedfishBmc) -> None:
    def late(body: dict[str, Any]) -> Any:
        machine.system["PowerState"] = "Off"  # it was off before, and the BMC has not known it yet
        return answer(400, {"error": {"code": "PSU501", "message": "Server is already powered OFF."}})

    machine.upon["POST", RESET] = late
    driver.set_power(machine.node(), Power.OFF)
    with pytest.raises(BmcError):
        driver.set_power(machine.node(), Power.ON)


def test_a_boot_device_that_is_set_is_set_whatever_the_answer_says(machine: ScriptedBmc, driver: RedfishBmc) -> None:
    def sets(body: dict[str, Any]) -> Any:
        machine.system["Boot"] |= body["Boot"]
        return answer(400, {"error": {"code": "Base.1.8.Success", "message": "Successfully completed request."}})

    machine.upon["PATCH", SYSTEM] = sets
    driver.set_boot_device(machine.node(), BootDevice.PXE, persistent=False)
    machine.upon["PATCH", SYSTEM] = lambda _body: answer(400)
    with pytest.raises(BmcError):
        driver.set_boot_device(machine.node(), BootDevice.DISK, persistent=False)


def test_a_session_that_is_not_valid_any_more_is_opened_anew_whatever_the_status(
    machine: ScriptedBmc, driver: RedfishBmc
) -> None:
    """Answer as bmcweb does: 403, where others say 401."""
    machine.sessions = set()
    ended = answer(403, {"error": {"code": "Base.1.13.0.NoValidSession", "message": "There is no valid session."}})
    driver.get_power(machine.node())
    reads: list[tuple[str, Callable[[], object], object]] = [
        (SYSTEM, lambda: driver.get_power(machine.node()), Power.ON),
        (f"{NICS}/2", lambda: len(macs(driver, machine)), 2),
    ]
    for number, (path, call, expected) in enumerate(reads):
        machine.will(ended, at=path)
        assert call() == expected
        assert len(machine.asked("POST", SESSIONS)) == number + 2


def test_a_session_that_ends_as_soon_as_it_is_opened_is_opened_anew(machine: ScriptedBmc, driver: RedfishBmc) -> None:
    """End it as a BMC with few sessions does, when others log in at the same time."""
    machine.sessions = set()
    machine.will(answer(401), at=SYSTEM, times=2)
    assert driver.get_power(machine.node()) is Power.ON
    assert len(machine.asked("POST", SESSIONS)) == 3
    machine.will(answer(401), at=SYSTEM, times=3)  # one that has been of use, and two that have not
    assert driver.get_power(machine.node()) is Power.ON
    resets = [answer(401), answer(401)]
    machine.upon["POST", RESET] = lambda _body: resets.pop() if resets else None
    driver.reboot(machine.node())
    assert len(machine.asked("POST", RESET)) == 3


def test_what_is_rejected_after_an_accepted_login_is_no_wrong_password(
    machine: ScriptedBmc, driver: RedfishBmc
) -> None:
    machine.sessions = set()
    machine.upon["POST", RESET] = lambda _body: answer(401)
    with pytest.raises(BmcError, match="accepts the login, but not this request") as caught:
        driver.reboot(machine.node())
    assert (caught.value.transient, caught.value.reason) == (False, Reason.BMC_PRIVILEGES)
    assert len(machine.asked("POST", SESSIONS)) == 3


def test_a_password_that_is_sent_with_each_request_is_sent_once_if_it_is_wrong(
    machine: ScriptedBmc, driver: RedfishBmc
) -> None:
    machine.will(answer(401), at=SYSTEM, times=100)
    with pytest.raises(BmcError, match="credentials were rejected") as caught:
        driver.get_power(machine.node(redfish_auth_type="basic"))
    assert (caught.value.transient, caught.value.reason) == (False, Reason.BMC_CREDENTIALS)
    assert len(machine.asked("GET", SYSTEM)) == 1


def test_the_addresses_of_nics_are_read_from_every_property_that_has_them(bmc: ScriptedBmc, driver: RedfishBmc) -> None:
    bmc.has(f"{MANAGER}/1", {"Id": "1", "MacAddress": "52-54-00-00-00-09"})
    bmc.documents[MANAGER]["EthernetInterfaces"] = link("/manager-nics")
    bmc.has("/manager-nics", collection(f"{MANAGER}/1"))
    assert driver.inventory(bmc.node())["bmc_mac"] == "52:54:00:00:00:09"


@pytest.mark.parametrize("status", [400, 401])
def test_a_long_error_is_not_decoded(driver: RedfishBmc, machine: ScriptedBmc, status: int) -> None:
    """sushy decodes errors uncounted, and writes all of them into a message: 4 MB of lists took it 1.7 s."""
    details = [{"Message": "x", "MessageId": "y"}] * 20_000
    machine.will(answer(status, {"error": {"code": "x", "message": "said", "@Message.ExtendedInfo": details}}), times=9)
    with pytest.raises(BmcError, match=rf"\(HTTP {status}\)"):
        driver.get_power(machine.node())


ERROR = {"error": {"code": "Base.1.19.InternalError", "message": "The request failed due to an internal error."}}


@pytest.mark.parametrize("path", [SYSTEM, NICS, f"{NICS}/1", MANAGER, DRIVE])
def test_an_error_does_not_outweigh_a_whole_resource_beside_it(
    machine: ScriptedBmc, driver: RedfishBmc, path: str
) -> None:
    """openbmc/bmcweb: HTTP 500 with all but what one D-Bus service knows; it counts, and is noted."""
    machine.upon["GET", path] = lambda _body: answer(500, machine.documents[path] | {"@odata.id": path} | ERROR)
    assert works(driver, machine)
    unread = driver.inventory(machine.node()).get("unread", [])
    assert unread == ([] if path in (DRIVE,) else [f"{path}: in part, with an error"])


@pytest.mark.parametrize("left", [{}, {"@odata.id": SYSTEM}, {"@odata.id": SYSTEM, "Id": "1"}, {"Id": "1"}])
def test_an_error_with_nothing_that_commands_need_passes(
    machine: ScriptedBmc, driver: RedfishBmc, left: dict[str, Any]
) -> None:
    machine.will(answer(500, left | ERROR), at=SYSTEM, times=3)
    driver.set_power(machine.node(), Power.OFF)
    assert machine.asked("POST", RESET) == [{"ResetType": "ForceOff"}]
