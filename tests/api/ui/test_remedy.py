"""A machine in trouble: its page opens on the timeline, says why, and has the way out."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest

from ferroscope.api.http.context import DataAccess
from ferroscope.bmc.fake import FakeBmc
from ferroscope.bmc.redfish.driver import RedfishBmc
from ferroscope.contrib.ui import remedy
from ferroscope.core import lookup
from ferroscope.core.delivery import TRIAL, Fail
from ferroscope.core.model import Entry
from ferroscope.core.states import Event
from ferroscope_client.core.database_fault import DatabaseFailure, DatabaseFault
from ferroscope_client.core.reasons import Reason
from ferroscope_client.core.states import Provision
from tests.api.browsing import IDENTITIES, Browser, Elements, add, failed, text_of
from tests.api.callers import service_for
from tests.api.service import Service, callback_body
from tests.support import examples

PASSWORD = "pw-of-the-bmc"
INFO = {"redfish_address": "https://192.0.2.7", "redfish_username": "root", "redfish_password": PASSWORD}


@pytest.fixture
def service(sqlite_url: str) -> Service:
    return service_for(sqlite_url, IDENTITIES, drivers={"redfish": RedfishBmc(), "fake-hardware": FakeBmc()})


def broken(service: Service, name: str = "bad", **fields: object) -> str:
    return failed(service, name, Reason.BMC_CREDENTIALS, driver="redfish", driver_info=INFO, **fields)


def test_a_failed_machine_opens_on_its_timeline_with_cause_time_hint_and_commands(service: Service) -> None:
    uuid = broken(service)
    browser = Browser(service).log_in("root")
    page = browser.get(f"/ui/machines/{uuid}")
    assert 'href="/ui/machines/' + uuid + '?tab=timeline" aria-current="page"' in page.text
    card = page.text[page.text.index('class="remedy"') : page.text.index("</section>")]
    assert "The inspection failed" in card
    assert "<bdi>It failed</bdi>" in card
    assert "bmc-credentials" in card
    assert re.search(r"<time [^>]*data-age>", card)
    assert "What to try:" in card
    commands = [html.unescape(one) for one in re.findall(r'data-copy="([^"]*)"', card)]
    assert "ferroscope node set bad -d redfish_password=@-" in commands
    assert "ferroscope inspect bad --watch" in commands
    assert 'href="https://192.0.2.7/"' in card
    assert PASSWORD not in page.text
    # The message is there once, beside what the timeline's step itself says.
    assert text_of(page).lower().count("it failed") <= 2


def test_a_machine_that_is_well_opens_on_its_hardware_without_a_card(service: Service) -> None:
    add(service, "well", driver="redfish", driver_info=INFO)
    page = Browser(service).log_in("root").get("/ui/machines/well").text
    assert 'class="remedy"' not in page
    assert 'tab=hardware" aria-current="page"' in page
    assert 'href="https://192.0.2.7/"' in page


def test_the_bmc_is_corrected_and_tried_at_once(service: Service) -> None:
    uuid = broken(service)
    browser = Browser(service).log_in("root")
    answer = browser.post(
        f"/ui/machines/{uuid}/bmc",
        action="correct",
        redfish_address="https://192.0.2.8",
        redfish_username="admin",
        redfish_password="new",
    )
    assert (answer.status_code, answer.headers["Location"]) == (303, f"/ui/machines/{uuid}?tab=timeline&done=try")
    info = service.node(uuid).driver_info
    assert (info["redfish_address"], info["redfish_username"]) == ("https://192.0.2.8", "admin")
    assert info["redfish_password"] == "new"
    (request,) = service.pending(uuid)
    assert (request.event, request.payload) == (Event.VERIFY, {TRIAL: True})
    assert "The BMC is being tried" in browser.get(answer.headers["Location"]).text
    assert service.node(uuid).provision_state is Provision.INSPECT_FAILED


def test_a_password_is_written_only_and_an_empty_one_stays(service: Service) -> None:
    uuid = broken(service)
    browser = Browser(service).log_in("root")
    assert PASSWORD not in browser.get(f"/ui/machines/{uuid}").text
    browser.post(f"/ui/machines/{uuid}/bmc", action="correct", redfish_username="admin", redfish_password="")
    info = service.node(uuid).driver_info
    assert (info["redfish_username"], info["redfish_password"]) == ("admin", PASSWORD)


def test_a_stored_password_is_not_sent_to_another_address_and_the_form_says_so(service: Service) -> None:
    uuid = broken(service)
    browser = Browser(service).log_in("root")
    wrong = browser.post(f"/ui/machines/{uuid}/bmc", action="correct", redfish_address="https://203.0.113.9")
    assert wrong.status_code in (400, 409)
    assert "redfish_password" in text_of(wrong)
    assert 'value="https://203.0.113.9"' in wrong.text
    assert service.node(uuid).driver_info == INFO
    assert service.pending(uuid) == []


@pytest.mark.parametrize(
    ("address", "status", "said"),
    [("https://10.40.0.041", 400, "10.40.0.33"), ("https://192.0.2.8:443", 409, "other-one")],
)
def test_the_form_says_why_an_address_is_refused(service: Service, address: str, status: int, said: str) -> None:
    uuid = broken(service)
    other = add(service, "other-one", driver="redfish", driver_info={"redfish_address": "192.0.2.8"})
    service.store.write(lambda tx: tx.addresses.set_bmc(other, ["192.0.2.8"]))
    page = (
        Browser(service)
        .log_in("root")
        .post(f"/ui/machines/{uuid}/bmc", action="correct", redfish_address=address, redfish_password="new")
    )
    assert page.status_code == status
    assert said in text_of(page)
    assert service.node(uuid).driver_info == INFO


def test_who_corrects_a_bmc_does_not_undo_what_somebody_else_has_corrected_meanwhile(service: Service) -> None:
    uuid = broken(service)
    one, other = Browser(service).log_in("root"), Browser(service).log_in("root")
    shown = {f"was-{name}": value for name, value in INFO.items() if name != "redfish_password"}
    first = shown | INFO | {"redfish_address": "https://192.0.2.8", "redfish_password": "new"}
    assert one.post(f"/ui/machines/{uuid}/bmc", action="correct", **first).status_code == 303
    # The address stands in the form of the other one as it was.
    second = shown | INFO | {"redfish_username": "admin", "redfish_password": ""}
    assert other.post(f"/ui/machines/{uuid}/bmc", action="correct", **second).status_code == 303
    info = service.node(uuid).driver_info
    assert (info["redfish_address"], info["redfish_username"]) == ("https://192.0.2.8", "admin")
    third = shown | INFO | {"redfish_address": "https://192.0.2.9", "redfish_password": "newer"}
    refused = other.post(f"/ui/machines/{uuid}/bmc", action="correct", **third)
    assert refused.status_code == 409
    assert "Another user changed redfish_address meanwhile" in text_of(refused)
    assert 'name="redfish_address" value="https://192.0.2.9"' in refused.text
    assert 'name="was-redfish_address" value="https://192.0.2.8"' in refused.text
    assert service.node(uuid).driver_info["redfish_address"] == "https://192.0.2.8"


def test_the_outcome_of_a_trial_is_on_the_card(service: Service) -> None:
    uuid = broken(service)
    browser = Browser(service).log_in("root")
    browser.post(f"/ui/machines/{uuid}/bmc", action="try")
    browser.post(f"/ui/machines/{uuid}/bmc", action="try")
    assert len(service.pending(uuid)) == 1
    service.consume()
    steps = [Entry(node=uuid, inspection=None, step="verified", message="the BMC responds: power on")]
    service.store.write(lambda tx: tx.journal.append(steps))
    assert "the BMC responds: power on" in text_of(browser.get(f"/ui/machines/{uuid}"))
    browser.post(f"/ui/machines/{uuid}/bmc", action="try")
    assert "The BMC is being tried" in browser.get(f"/ui/machines/{uuid}").text


def test_what_a_bmc_answered_before_the_inspection_failed_is_no_news(service: Service) -> None:
    uuid = add(service, "once-well", driver="redfish", driver_info=INFO)
    browser = Browser(service).log_in("root")
    browser.post(f"/ui/machines/{uuid}/bmc", action="try")
    service.consume()
    steps = [Entry(node=uuid, inspection=None, step="verified", message="the BMC responds: power on")]
    service.store.write(lambda tx: tx.journal.append(steps))
    assert "The BMC answered" in text_of(browser.get(f"/ui/machines/{uuid}?tab=timeline"))
    browser.post("/ui/machines/act", action="inspect", node=uuid, confirm="yes")
    service.consume()
    service.step(uuid, Event.FAIL, Fail(Reason.BMC_UNREACHABLE, "no answer"))
    assert "The BMC answered" not in text_of(browser.get(f"/ui/machines/{uuid}"))


def test_who_may_only_read_sees_no_form_and_changes_nothing(service: Service) -> None:
    uuid = broken(service)
    browser = Browser(service).log_in("reader")
    page = browser.get(f"/ui/machines/{uuid}")
    assert "What to try:" in page.text
    assert [tag for tag in Elements(page.text).tags if tag[0] == "button" and tag[1].get("name") == "action"] == []
    assert browser.post(f"/ui/machines/{uuid}/bmc", action="correct", redfish_username="x").status_code == 403
    assert browser.post(f"/ui/machines/{uuid}/bmc", action="try").status_code == 303
    assert service.node(uuid).driver_info == INFO
    assert service.pending(uuid) == []


def test_unknown_machines_that_called_meanwhile_lead_to_the_inbox(service: Service) -> None:
    uuid = add(service, "waits", driver="fake-hardware")
    browser = Browser(service).log_in("root")
    browser.post("/ui/machines/act", action="inspect", node=uuid, confirm="yes")
    service.consume()
    service.step(uuid, Event.WAIT)
    assert "called meanwhile" not in browser.get(f"/ui/machines/{uuid}").text
    moment = service.store.read(lambda tx: tx.now)
    for number in range(2):
        add(service, f"new-{number}", inbox=True, auto_discovered=True, created_at=moment + 1)
    page = browser.get(f"/ui/machines/{uuid}")
    assert text_of(page).count("called meanwhile") + text_of(page).count("Meanwhile") == 1
    assert "2 unknown machines called meanwhile" in text_of(page)
    assert 'href="/ui/inbox">Show the inbox' in page.text
    service.step(uuid, Event.FAIL, Fail(Reason.TIMEOUT, "no callback within 1800 s"))
    assert "2 unknown machines called meanwhile" in text_of(browser.get(f"/ui/machines/{uuid}"))
    mac = examples.mac()
    assert service.call_back(callback_body(mac), remote_addr="192.0.2.66").status_code == 404
    for path in ("/ui/inbox", f"/ui/machines/{uuid}"):
        assert mac in text_of(browser.get(path))
        assert "192.0.2.66" in text_of(browser.get(path))
    assert "3 unknown machines called meanwhile" in text_of(browser.get(f"/ui/machines/{uuid}"))


def test_of_a_full_inbox_those_count_that_called_last(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (remedy, lookup):
        monkeypatch.setattr(module, "MAX_COUNTED_DISCOVERIES", 3)
    uuid = add(service, "waits", driver="fake-hardware")
    browser = Browser(service).log_in("root")
    moment = service.store.read(lambda tx: tx.now)
    for number in range(4):
        add(service, f"old-{number}", inbox=True, auto_discovered=True, created_at=moment - 3600)
    browser.post("/ui/machines/act", action="inspect", node=uuid, confirm="yes")
    service.consume()
    service.step(uuid, Event.WAIT)
    for number, said in ((1, "1 unknown machine called"), (2, ""), (3, "at least 3 unknown machines called")):
        add(service, f"new-{number}", inbox=True, auto_discovered=True, created_at=moment + 60)
        assert said in text_of(browser.get(f"/ui/machines/{uuid}"))


def test_a_machine_that_rests_says_that_the_database_cannot_be_written(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    failure = DatabaseFailure(DatabaseFault.FULL, "disk full")
    monkeypatch.setattr(DataAccess, "read_write_failure", lambda *_, **__: failure)
    uuid = add(service, "well", driver="fake-hardware")
    card = text_of(Browser(service).log_in("root").get(f"/ui/machines/{uuid}"))
    assert DatabaseFault.FULL.advice.lower() in card.lower()


def test_power_is_changed_after_a_confirmation_and_leads_back_to_the_machine(service: Service) -> None:
    uuid = add(service, "one", driver="redfish", driver_info=INFO)
    browser, back = Browser(service).log_in("root"), f"/ui/machines/{uuid}"
    asked = browser.post("/ui/machines/act", action="off", node=uuid, back=back)
    assert "Power off: one" in text_of(asked)
    assert "powers off 1 machine at once" in text_of(asked)
    assert service.pending(uuid) == []
    done = browser.post("/ui/machines/act", action="off", node=uuid, back=back, confirm="yes")
    assert (done.status_code, done.headers["Location"]) == (303, f"{back}?done=off")
    assert "Power-off requested: one." in text_of(browser.get(done.headers["Location"]))
    (request,) = service.pending(uuid)
    assert (request.event, request.payload["target"]) == (Event.SET_POWER, "power off")


def test_machines_are_deleted_after_a_confirmation(service: Service) -> None:
    uuids = [add(service, f"m{number}") for number in range(2)]
    browser = Browser(service).log_in("root")
    assert "deletes 2 machines" in text_of(browser.post("/ui/machines/act", action="delete", node=uuids))
    assert "2 of 2 machines deleted" in text_of(
        browser.post("/ui/machines/act", action="delete", node=uuids, confirm="yes")
    )
    assert browser.get(f"/ui/machines/{uuids[0]}").status_code == 404


def test_an_action_without_a_selection_keeps_the_filter(service: Service) -> None:
    add(service, "one")
    browser = Browser(service).log_in("root")
    page = browser.post("/ui/machines/act", action="inspect", back="/ui/machines?state=manageable")
    assert (page.status_code, "No machine is selected" in page.text) == (400, True)
    assert 'href="/ui/machines?state=manageable"' in page.text


def test_an_error_leads_back_to_where_the_form_was(service: Service) -> None:
    uuid = add(service, "one")
    browser = Browser(service).log_in("root")
    search = "/ui/machines?q=one&state=enroll"
    wrong: tuple[tuple[str, dict[str, Any]], ...] = (
        ("/ui/machines/act", {"action": "nosuch", "node": uuid}),
        ("/ui/machines/act", {"action": "delete", "all": "yes", "q": "nosuch"}),
        ("/ui/machines/saved", {"name": "a/b", "q": "one"}),
    )
    for path, given in wrong:
        page = browser.post(path, back=search, **given)
        assert (page.status_code >= 400, f'href="{html.escape(search)}">Go back' in page.text) == (True, True), given
        page = browser.post(path, back="https://example.org/", **given)
        assert ("example.org" in page.text, "Back to the fleet" in page.text) == (False, True), given
