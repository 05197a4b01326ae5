"""Health and firmware out of Redfish: from the emulator, from resources that it lacks, and from BMCs that misbehave.

``_Bmc`` puts resources before the emulator by their exact path; everything else is the emulator's.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support import faulty_proxy as fault
from tests.support.faulty_proxy import Fault, FaultyProxy, proxy_to
from tests.support.processes import finished
from tests.support.redfish import Emulator, node_at, system_uuid
from tests.system.bmc.conftest import MakeBmc
from tests.system.bmc.test_redfish_nonsense import mangled

NUMBER = 30
SYSTEM = f"/redfish/v1/Systems/{system_uuid(NUMBER)}"
STATUS = {"Critical": {"Status": {"State": "Enabled", "Health": "Critical"}}, "OK": {"Status": {"Health": "OK"}}}


class _Bmc(FaultyProxy):
    """Answers for these paths; the system and its drives are amended, the others are there only."""

    def __init__(self, upstream: str, *, sessions: bool = False) -> None:
        super().__init__(upstream, sessions=sessions)
        self.has: dict[str, Any] = {}
        self.also: dict[str, dict[str, Any]] = {}
        self.faults: dict[str, Fault] = {}

    def next_fault(self, method: str, path: str) -> Fault | None:
        if method != "GET":
            return None
        if path in self.faults:
            return self.faults[path]
        if path in self.has:
            return fault.resource(self.has[path])
        if path in self.also:
            return fault.amended(lambda document: document.update(self.also[path]))
        return super().next_fault(method, path)

    def system(self, **more: Any) -> None:
        self.also.setdefault(SYSTEM, {}).update(more)

    def log(self, entries: list[dict[str, Any]], **more: Any) -> None:
        """Have a log of the system."""
        self.system(LogServices=link("/logs"))
        self.has["/logs"] = collection("/logs/sel")
        self.has["/logs/sel"] = {"Id": "Sel", "LogEntryType": "SEL", "Entries": link("/entries")}
        self.has["/entries"] = {"Members": entries, "Members@odata.count": len(entries), **more}


def link(path: str) -> dict[str, str]:
    return {"@odata.id": path}


def collection(*paths: str) -> dict[str, Any]:
    return {"Members": [link(path) for path in paths]}


def entry(number: int, severity: str = "Critical") -> dict[str, Any]:
    return {"@odata.id": f"/entries/{number}", "Created": f"2026-01-01T00:00:{number:05d}", "Severity": severity,
            "Message": f"event {number}"}  # fmt: skip


@pytest.fixture
def bmc(rack: Emulator) -> Iterator[_Bmc]:
    with proxy_to(rack.url, kind=_Bmc) as running:
        yield running


def read(make_bmc: MakeBmc, bmc: _Bmc, *, seconds: float = 10.0) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return health and firmware, which must come while the BMC goes on as it is."""
    found: dict[str, Any] = finished(lambda: make_bmc(inventory_timeout=seconds).health(node_at(bmc.url, NUMBER)))
    json.dumps(found, allow_nan=False)
    return found["health"], found["firmware"]


def test_the_emulator_is_well_and_has_sensors_and_firmware(rack: Emulator, make_bmc: MakeBmc) -> None:
    found = make_bmc().health(node_at(rack.url, NUMBER))
    health, firmware = found["health"], found["firmware"]
    assert (health["state"], health["complete"], health["log"]) == ("ok", True, [])
    assert [(one["component"], one["health"]) for one in health["parts"]] == [("drive", "ok")] * 2
    assert {"kind": "temperature", "name": "Chassis Intake Temp", "reading": 25.0, "unit": "°C", "health": "ok"} in (
        health["sensors"]
    )
    assert [one["unit"] for one in health["sensors"] if one["kind"] == "fan"] == ["RPM", "RPM"]
    versions = {(one["component"], one["version"], one.get("model")) for one in firmware}
    assert {("disk", "100A", "C123"), ("controller", "1.0.0.7", "12Gbs Integrated RAID")} <= versions


def test_drives_that_fail_wear_out_or_are_predicted_to_fail(bmc: _Bmc, make_bmc: MakeBmc) -> None:
    drives = f"{SYSTEM}/Storage/1/Drives"
    bmc.also[f"{drives}/disk0"] = {"FailurePredicted": True, "PredictedMediaLifeLeftPercent": 80}
    bmc.also[f"{drives}/disk1"] = {"PredictedMediaLifeLeftPercent": 3.5, "Status": {"Health": "OK"}}
    health, _ = read(make_bmc, bmc)
    assert health["state"] == "warning"
    assert [(one["name"], one["health"], one["problem"], one["life_left"]) for one in health["parts"]] == [
        ("Disk 0", "warning", "failure predicted", 80),
        ("Disk 1", "warning", "3.5 % of its life left", 3.5),
    ]


def test_modules_are_read_only_if_their_summary_is_not_well(bmc: _Bmc, make_bmc: MakeBmc) -> None:
    bmc.has["/dimms"] = collection("/dimms/1", "/dimms/2")
    bmc.has["/dimms/1"] = {"Name": "DIMM A1", "PartNumber": "18ASF", "SerialNumber": "s1", **STATUS["Critical"]}
    bmc.has["/dimms/2"] = {"Name": "DIMM A2", **STATUS["OK"]}
    bmc.system(Memory=link("/dimms"))
    assert read(make_bmc, bmc)[0]["state"] == "ok"
    assert bmc.requests("GET", "/dimms") == 0
    bmc.system(MemorySummary={"Status": {"Health": "OK", "HealthRollup": "Critical"}})
    health, _ = read(make_bmc, bmc)
    (dimm,) = [one for one in health["parts"] if one["component"] == "memory"]
    assert (dimm["name"], dimm["serial"], dimm["health"], health["state"]) == ("DIMM A1", "s1", "critical", "critical")


def test_power_and_newer_sensors(bmc: _Bmc, make_bmc: MakeBmc) -> None:
    bmc.system(Links={"Chassis": [link("/c")], "ManagedBy": [link("/m")]})
    bmc.has |= {
        "/c": {"Sensors": link("/s"), "PowerSubsystem": link("/p"), "NetworkAdapters": link("/n")},
        "/s": collection("/s/1", "/s/2", "/s/2"),
        "/s/1": {"Name": "Inlet", "Reading": 61, "ReadingUnits": "Cel", "ReadingType": "Temperature",
                 **STATUS["Critical"]},
        "/s/2": {"Name": "absent", "Reading": None, "Status": {"State": "Absent", "Health": "Critical"}},
        "/p": {"PowerSupplies": link("/ps")},
        "/ps": collection("/ps/1"),
        "/ps/1": {"Id": "1", "Name": "PSU 1", "FirmwareVersion": "00.1B.53", **STATUS["Critical"]},
        "/m": {"Id": "iDRAC.Embedded.1", "Model": "14G Monolithic", "FirmwareVersion": "7.00.00"},
        "/n": collection("/n/1"),
        "/n/1": {"Id": "NIC.1", "Model": "ConnectX-5", "Manufacturer": "Mellanox", "SerialNumber": "n1",
                 "Controllers": [{"FirmwarePackageVersion": "16.35"}, {"FirmwarePackageVersion": "16.35"}]},
    }  # fmt: skip
    health, firmware = read(make_bmc, bmc)
    assert health["sensors"] == [
        {"kind": "temperature", "name": "Inlet", "reading": 61.0, "unit": "Cel", "health": "critical"}
    ]
    assert [one["name"] for one in health["parts"] if one["component"] == "power supply"] == ["PSU 1"]
    found = {one["component"]: one for one in firmware}
    assert found["bmc"] == {
        "component": "bmc",
        "name": "iDRAC.Embedded.1",
        "model": "14G Monolithic",
        "version": "7.00.00",
    }
    assert (found["nic"]["name"], found["nic"]["version"], found["nic"]["vendor"]) == ("NIC.1", "16.35", "Mellanox")
    assert found["power supply"]["version"] == "00.1B.53"


def test_the_firmware_inventory_adds_what_no_resource_has(bmc: _Bmc, make_bmc: MakeBmc) -> None:
    bmc.also["/redfish/v1/"] = {"UpdateService": link("/u")}
    bmc.has |= {
        "/u": {"FirmwareInventory": link("/f")},
        "/f": collection("/f/1", "/f/2", "/f/3", "/f/4", "/f/5"),
        "/f/1": {"Id": "Installed-1", "Name": "System CPLD", "Version": "1.0.8"},
        "/f/2": {"Id": "Previous-1", "Name": "System CPLD", "Version": "1.0.7"},
        "/f/3": {"Id": "Installed-2", "Name": "BIOS", "Version": "2.19.1", "RelatedItem": [link(f"{SYSTEM}/Bios")]},
        "/f/4": {"Id": "NIC", "Name": "BCM57414", "Version": "22.3", "RelatedItem": [link("/c/1/NetworkAdapters/1")]},
        "/f/5": {"Id": "no version", "Name": "x"},
    }
    _, firmware = read(make_bmc, bmc)
    found = [(one["component"], one["model"], one["version"]) for one in firmware]
    added = [one for one in found if one[0] in ("other", "nic", "bios")]
    assert added == [("other", "System CPLD", "1.0.8"), ("nic", "BCM57414", "22.3")]


def test_the_newest_errors_of_a_long_log_are_read_whichever_end_comes_first(bmc: _Bmc, make_bmc: MakeBmc) -> None:
    every = [entry(number, "OK" if number % 2 else "Warning") for number in range(1000)]
    newest = [f"event {number}" for number in range(998, 958, -2)]
    bmc.log(every[::-1])
    assert [one["message"] for one in read(make_bmc, bmc)[0]["log"]] == newest
    pages = [every[first : first + 50] for first in range(0, 1000, 50)]
    for number, page in enumerate(pages):
        following = {"Members@odata.nextLink": f"/entries?$skip={50 * number + 50}"} if number < 19 else {}
        path = f"/entries?$skip={50 * number}" if number else "/entries"
        bmc.has[path] = {"Members": page, "Members@odata.count": 1000, **following}
    before = bmc.requests("GET", "/entries")
    found = read(make_bmc, bmc)[0]["log"]
    assert {one["severity"] for one in found} == {"warning"}
    assert [one["message"] for one in found] == newest
    assert bmc.requests("GET", "/entries") - before == 2


def test_texts_are_one_line_and_bounded(bmc: _Bmc, make_bmc: MakeBmc) -> None:
    bmc.log([{"Severity": "Critical", "Message": "\x1b[31m a\n" + "b" * 5_000, "Created": "9" * 1000}] * 500)
    log = read(make_bmc, bmc)[0]["log"]
    assert len(log) == 20
    assert all(len(one["message"]) < 400 and "\n" not in one["message"] and "\x1b" not in one["message"] for one in log)
    assert len(log[0]["created"]) < 100


def test_links_to_another_address_are_not_followed(rack: Emulator, bmc: _Bmc, make_bmc: MakeBmc) -> None:
    with proxy_to(rack.url) as elsewhere:
        host = elsewhere.url.removeprefix("http:")
        bmc.log([entry(1)], **{"Members@odata.nextLink": f"{elsewhere.url}/redfish/v1/"})
        bmc.system(
            Storage=link(f"{elsewhere.url}/storage"),
            Links={"Chassis": [link(f"{host}/c"), link("/moved")], "ManagedBy": [link(elsewhere.url)]},
        )
        bmc.faults["/moved"] = lambda handler: handler.answer(307, b"{}", headers={"Location": f"{elsewhere.url}/c"})
        health, _ = read(make_bmc, bmc)
        assert [one["message"] for one in health["log"]] == ["event 1"]
        assert elsewhere.seen == []
        assert bmc.requests("GET", "/moved") >= 1


def test_pages_and_collections_without_end_are_bounded(bmc: _Bmc, make_bmc: MakeBmc) -> None:
    def next_page(handler: Any) -> None:
        name, _, number = handler.path.rpartition("=")
        members = [entry(int(number)) | STATUS["OK"], link(f"/endless?{number}={number}")]
        page = {"Members": members, "Members@odata.nextLink": f"{name}={int(number) + 1}"}
        handler.answer(200, json.dumps(page).encode())

    bmc.log([])
    bmc.has["/logs/sel"]["Entries"] = link("/endless?log=0")
    bmc.will(next_page, times=100_000, path="/endless")
    bmc.system(Storage=link("/endless?a=0"), Memory=link("/endless?b=0"), MemorySummary={}, Processors=link("/loop"))
    bmc.has["/loop"] = {"Members": [link("/loop")] * 100_000, "Members@odata.nextLink": "/loop"}
    health, _ = read(make_bmc, bmc, seconds=20.0)
    assert health["log"]
    assert len(bmc.seen) < 300


@pytest.mark.parametrize("trouble", [fault.flood, fault.trickle, fault.silence, fault.reset, fault.cut, fault.web_page,
                                     fault.status(500), fault.status(404), fault.status(403)])  # fmt: skip
def test_a_resource_in_trouble_costs_no_more_than_itself_and_the_time(
    bmc: _Bmc, make_bmc: MakeBmc, trouble: Fault
) -> None:
    bmc.log([entry(1)])
    bmc.faults["/logs"] = trouble
    health, firmware = read(make_bmc, bmc, seconds=3.0)
    assert health["state"] == "ok"
    assert health["log"] == []
    assert len([one for one in firmware if one["component"] == "disk"]) == 2
    assert health["complete"] is (trouble not in (fault.trickle, fault.silence))


def test_a_bmc_that_breaks_down_is_left_alone(bmc: _Bmc, make_bmc: MakeBmc) -> None:
    for path in range(50):
        bmc.faults[f"/broken/{path}"] = fault.status(503)
    bmc.system(Links={"ManagedBy": [], "Chassis": []}, Storage=link("/st"))
    bmc.has["/st"] = collection("/st/1")
    bmc.has["/st/1"] = {"Drives": [link(f"/broken/{path}") for path in range(50)]}
    health, _ = read(make_bmc, bmc)
    assert health["complete"] is False
    assert bmc.requests("GET", "/broken") == 5


def test_credentials_that_are_refused_once_are_not_tried_again_and_again(rack: Emulator, make_bmc: MakeBmc) -> None:
    with proxy_to(rack.url, sessions=True, kind=_Bmc) as running:
        for drive in ("disk0", "disk1"):
            running.faults[f"{SYSTEM}/Storage/1/Drives/{drive}"] = fault.status(401)
        health, _ = read(make_bmc, running)
        assert health["complete"] is False
        assert running.requests("POST", "/Sessions") <= 2


@pytest.mark.parametrize("seed", range(20))
def test_nonsense_is_left_out_or_sound(bmc: _Bmc, make_bmc: MakeBmc, seed: int) -> None:
    chance = random.Random(seed)

    def act(handler: Any) -> None:
        code, body = handler.forwarded()
        handler.answer(code, json.dumps(mangled(json.loads(body), chance)).encode() if body else body)

    for path in ("/Chassis", "/Managers", "/Storage"):
        bmc.will(act, times=1000, method="GET", path=path)
    bmc.log([mangled(entry(number), chance) for number in range(100)])
    for name in ("/logs", "/logs/sel", "/entries"):
        bmc.has[name] = mangled(bmc.has[name], chance)
    health, firmware = read(make_bmc, bmc)
    assert health["state"] in (None, "ok", "warning", "critical")
    for one in (*health["parts"], *health["sensors"]):
        assert all(isinstance(value, str | float | int) and len(str(value)) < 400 for value in one.values())
        assert one["health"] in ("ok", "warning", "critical", "unknown")
    assert all(isinstance(one["version"], str) and one["component"] for one in firmware)


def test_a_drive_that_two_controllers_list_is_one(bmc: _Bmc, make_bmc: MakeBmc) -> None:
    drives = {"Drives": [link(f"{SYSTEM}/Storage/1/Drives/disk0")]}
    bmc.has |= {"/st": collection("/st/1", "/st/2"), "/st/1": drives, "/st/2": drives}
    bmc.system(Storage=link("/st"))
    health, _ = read(make_bmc, bmc)
    assert [one["name"] for one in health["parts"]] == ["Disk 0"]
