"""Reports of each vendor's BMC: they contain what the driver reads, and nothing that identifies the machine."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from ferroscope.bmc import DriverOptions
from ferroscope.bmc.redfish.driver import RedfishBmc
from ferroscope.bmc.redfish.report import MAX_BYTES
from ferroscope.contracts.errors import BmcError
from ferroscope_client.core.reasons import Reason
from tests.support.redfish import PASSWORD, USER
from tests.support.vendors.dell import IDRAC9
from tests.support.vendors.hardware import BMC_ADDRESS, BMC_MAC, DISKS, HOSTNAME, MACS, SERIAL, UUID
from tests.support.vendors.hosting import Answer, hosted
from tests.support.vendors.logins import VIEWER
from tests.support.vendors.personality import waits
from tests.support.vendors.recorded import recorded_node, replaying
from tests.support.vendors.service import Service, node_of, serving
from tests.system.bmc.conftest import LAX

IDENTITIES = (*MACS, BMC_MAC, SERIAL, UUID, HOSTNAME, HOSTNAME.split(".")[0], BMC_ADDRESS, *(one for one, _ in DISKS))


def leaked(report: dict[str, Any]) -> list[str]:
    """Return the identities in a report, in any spelling of MACs."""
    text = json.dumps(report).casefold()
    bare = text.replace(":", "").replace("-", "")
    return [one for one in IDENTITIES if one.casefold() in text or (":" in one and one.replace(":", "") in bare)]


def without_stand_ins(inventory: dict[str, Any]) -> dict[str, Any]:
    """Return what is the same in the inventory of a machine and of its report."""
    macs: dict[str, int] = {}
    nics = [macs.setdefault(nic["mac_address"], len(macs)) for nic in inventory["interfaces"]]
    disks = [{key: value for key, value in disk.items() if key not in ("serial", "wwn")} for disk in inventory["disks"]]
    vendor = {key: value for key, value in inventory["system_vendor"].items() if key != "serial_number"}
    same = {key: inventory[key] for key in ("cpu", "memory", "boot")}
    return same | {"nics": nics, "disks": disks, "system_vendor": vendor, "bmc": "bmc_mac" in inventory}


def test_a_report_identifies_nothing_and_has_all_that_the_inventory_is_made_of(
    service: Service, bmc: RedfishBmc
) -> None:
    node = node_of(service)
    report = bmc.report(node, identities=False)
    assert report["complete"]
    assert leaked(report) == []
    assert PASSWORD not in json.dumps(report)
    assert USER not in json.dumps(report)
    with replaying(json.loads(json.dumps(report))) as recording:
        found = bmc.inventory(recorded_node(recording))
        assert without_stand_ins(found) == without_stand_ins(bmc.inventory(node))
        assert leaked(found) == []


def test_a_report_changes_nothing_and_leaves_no_session(service: Service, bmc: RedfishBmc) -> None:
    bmc.report(node_of(service, user=VIEWER), identities=False)
    assert {one.method for one in service.asked if one.account} == {"GET", "DELETE"}
    assert service.logins.sessions == {}
    assert service.machine.resets == []


def test_without_a_free_session_a_report_is_made_all_the_same(service: Service, bmc: RedfishBmc) -> None:
    service.logins.occupy()
    others = dict(service.logins.sessions)
    report = bmc.report(node_of(service), identities=False)
    (login,) = (one for one in report["answers"] if one["method"] == "POST")
    assert (report["authentication"], login["status"]) == ("basic", service.personality.sessions.status)
    assert service.logins.sessions == others
    with replaying(report) as recording:
        assert bmc.inventory(recorded_node(recording))["memory"]


def test_what_a_bmc_answers_while_it_settles_is_in_the_report(service: Service, bmc: RedfishBmc) -> None:
    service.machine.reset("On")
    report = bmc.report(node_of(service), identities=False)
    answers = [one for one in report["answers"] if one["path"].rstrip("/") == service.system]
    assert len(answers) == waits(service.personality.power) + 1
    status = 500 if "partial" in service.personality.power.settling else 200
    assert (answers[-1]["status"], answers[-1]["kind"]) == (status, "json")
    assert all(one["status"] != 200 or one["kind"] != "json" for one in answers[:-1])


def test_a_wrong_password_is_sent_once(service: Service, bmc: RedfishBmc) -> None:
    with pytest.raises(BmcError) as caught:
        bmc.report(node_of(service, password="wrong-" + PASSWORD), identities=False)
    assert (caught.value.transient, caught.value.reason) == (False, Reason.BMC_CREDENTIALS)
    assert service.logins.rejected == 1


class Endless:
    """A service whose every resource links to more, each larger than the one before."""

    asked = 0

    def answer(self, method: str, path: str, headers: Any, body: Any) -> Answer:
        self.asked += 1
        links = [{"@odata.id": f"{path.rstrip('/')}/{number}"} for number in range(500)]
        return Answer(200, {"Members": links, "Links": None})


def test_a_report_of_a_service_without_end_ends(bmc: RedfishBmc) -> None:
    endless = Endless()
    with hosted(endless) as url, serving(IDRAC9) as service:
        node = node_of(service, redfish_address=url)
        report = bmc.report(node, identities=False)
    assert not report["complete"]
    assert endless.asked <= 202
    assert len(json.dumps(report)) < 2 * MAX_BYTES


def test_what_cannot_be_reached_or_is_no_redfish_service_is_no_internal_error(bmc: RedfishBmc) -> None:
    with serving(IDRAC9) as service:
        node = node_of(service)
    with pytest.raises(BmcError) as caught:
        bmc.report(node, identities=False)
    assert (caught.value.transient, caught.value.reason) == (True, Reason.BMC_CONNECTION_REFUSED)


class Silent:
    """A service that takes a request and does not answer it before ``over`` is set."""

    def __init__(self) -> None:
        self.over = threading.Event()

    def answer(self, method: str, path: str, headers: Any, body: Any) -> Answer:
        self.over.wait()
        return Answer(200, {})


def test_a_report_of_a_service_that_does_not_answer_ends() -> None:
    silent, driver = Silent(), RedfishBmc(DriverOptions(inventory_timeout=0.2, limits=LAX))
    with hosted(silent) as url, serving(IDRAC9) as service:
        with pytest.raises(BmcError) as caught:
            driver.report(node_of(service, redfish_address=url), identities=False)
        silent.over.set()
    assert (caught.value.transient, caught.value.reason) == (True, Reason.BMC_UNREACHABLE)
