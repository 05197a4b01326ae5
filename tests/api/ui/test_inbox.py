"""The page of the inbox: what machines say of themselves, likely duplicates, and decisions about many at once."""

from __future__ import annotations

import pytest

from ferroscope.config.options import DiscoverySettings
from ferroscope.core.states import Event
from ferroscope_client.core.states import Provision
from tests.api.browsing import IDENTITIES, Browser, Elements, text_of
from tests.api.callers import service_for
from tests.api.service import Service, callback_body
from tests.support import examples

PASSWORD = "pw-of-the-bmc"


@pytest.fixture
def service(sqlite_url: str) -> Service:
    settings = DiscoverySettings(enabled=True, driver="fake-hardware")
    return service_for(sqlite_url, IDENTITIES, sections={"auto_discovery": settings})


def discover(service: Service, serial: str, *, mac: str = "", bmc: str = "", source: str = "192.0.2.66") -> str:
    """Let an unknown machine call, and process what it sends; return its node's UUID."""
    vendor = {"manufacturer": "ACME", "product_name": "Anvil 3", "serial_number": serial}
    body = callback_body(mac or examples.mac(), bmc_address=bmc or None, system_vendor=vendor)
    answer = service.client(None).post("/v1/continue_inspection", body, remote_addr=source)
    assert answer.status_code == 202, answer.text
    ident = str(answer.json["uuid"])
    service.consume()
    service.step(ident, Event.CONTINUE)
    service.save_plugin_data(ident, {})
    service.learn(ident, {"system_vendor": vendor})
    service.step(ident, Event.FINISH)
    return ident


def test_a_waiting_machine_is_shown_with_what_it_says_and_from_where(service: Service, root: Browser) -> None:
    assert "No machine waits" in text_of(root.get("/ui/inbox"))
    mac = examples.mac()
    ident = discover(service, "S-1", mac=mac, bmc="192.0.2.7")
    page = root.get("/ui/inbox")
    shown = text_of(page)
    for expected in ("ACME Anvil 3", "S-1", "192.0.2.7", "192.0.2.66", "fake-hardware", "Discovered"):
        assert expected in shown, expected
    assert f"/ui/machines/{ident}" in page.text
    assert "duplicate?" not in shown
    assert '<span class="count">1</span>' in page.text
    assert 'href="/ui/inbox"' in root.get("/ui").text


def test_likely_duplicates_are_named(service: Service, root: Browser) -> None:
    known = service.bare_metal.post(
        "/v1/nodes", {"driver": "fake-hardware", "name": "old-board"}, headers={"X-Auth-Token": "root"}
    ).json["uuid"]
    service.learn(known, {"system_vendor": {"serial_number": "S-1"}})
    mac = examples.mac()
    discover(service, "S-1", mac=mac, bmc="192.0.2.7")
    discover(service, "S-2", bmc="192.0.2.7")
    discover(service, 'x" or "1', bmc="192.0.2.9")
    body = callback_body(mac)
    service.client(None).post("/v1/continue_inspection", body, remote_addr="192.0.2.99")
    shown = text_of(root.get("/ui/inbox"))
    assert "same serial number as old-board" in shown
    assert shown.count("same BMC address as") == 2
    assert "192.0.2.99 claims the same MAC address" in shown


def test_machines_are_accepted_with_names_a_driver_and_credentials(service: Service, root: Browser) -> None:
    idents = [discover(service, serial, bmc=f"192.0.2.{number}") for number, serial in enumerate(("DY4/1", "DY4/2"))]
    asked = root.post("/ui/inbox", action="approve", node=idents)
    fields = {tag[1].get("name"): tag[1].get("value") for tag in Elements(asked.text).tags if tag[0] == "input"}
    assert fields[f"name-{idents[0]}"] == "dy4-1"
    assert all(service.node(ident).inbox for ident in idents)
    given = {name: value for name, value in fields.items() if name and value and name not in ("csrf", "node")}
    given |= {"driver": "sim", "username": "operator", "password": PASSWORD}
    done = root.post("/ui/inbox", node=idents, **given)
    assert "2 of 2 accepted" in done.text
    for number, ident in enumerate(idents):
        node = service.node(ident)
        assert (node.inbox, node.name, node.driver) == (False, f"dy4-{number + 1}", "sim")
        assert node.driver_info["bmc_address"] == f"192.0.2.{number}"
        assert node.driver_info["bmc_username"] == "operator"
        assert "bmc_password" in node.driver_info
    assert PASSWORD not in asked.text + done.text + root.get(f"/ui/machines/{idents[0]}?tab=raw").text
    managed = root.post("/ui/machines/act", action="manage", node=idents, confirm="yes")
    assert "2 of 2 machines managed" in managed.text


def test_a_reference_to_a_password_is_stored_as_it_is(service: Service, root: Browser) -> None:
    ident = discover(service, "S-1", bmc="192.0.2.1")
    reference = "secret://file/bmc/password"
    assert root.post("/ui/inbox", action="approve", node=ident, confirm="yes", password=reference).status_code == 200
    assert service.node(ident).driver_info["bmc_password"] == reference


def test_one_that_is_refused_does_not_stop_the_others(service: Service, root: Browser) -> None:
    one, two = discover(service, "S-1"), discover(service, "S-2")
    same = {f"name-{one}": "same", f"name-{two}": "same"}
    done = root.post("/ui/inbox", action="approve", node=[one, two], confirm="yes", **same)
    assert "1 of 2 accepted" in done.text
    assert "already in use" in text_of(done)
    assert [service.node(one).inbox, service.node(two).inbox] == [False, True]
    refused = root.post("/ui/inbox", action="approve", node=two, confirm="yes", driver="nonsense")
    assert "nonsense" in text_of(refused)
    assert service.node(two).inbox


def test_what_was_entered_for_machines_that_were_refused_is_asked_for_again(service: Service, root: Browser) -> None:
    one, two = discover(service, "S-1"), discover(service, "S-2")
    given = {f"name-{one}": "rack 1", f"address-{one}": "192.0.2.7", f"name-{two}": "two", "username": "root"}
    entered = given | {"driver": "fake-hardware", "password": PASSWORD}
    done = root.post("/ui/inbox", action="approve", node=[one, two], confirm="yes", **entered)
    fields = {str(tag[1].get("name")): tag[1].get("value") for tag in Elements(done.text).tags if tag[0] == "input"}
    assert (fields[f"name-{one}"], fields[f"address-{one}"], fields["username"]) == ("rack 1", "192.0.2.7", "root")
    assert f"name-{two}" not in fields
    assert "<option selected>fake-hardware" in done.text
    assert PASSWORD not in done.text
    again = root.post("/ui/inbox", action="approve", node=one, confirm="yes", **{f"name-{one}": "rack-1"})
    assert "1 of 1 accepted" in again.text


def test_rejected_machines_stay_away_and_deleted_ones_return(service: Service, root: Browser) -> None:
    macs = [examples.mac(), examples.mac()]
    rejected, deleted = (discover(service, f"S-{number}", mac=mac) for number, mac in enumerate(macs))
    assert "discovery ignores further calls" in root.post("/ui/inbox", action="reject", node=rejected).text
    assert "1 of 1 rejected" in root.post("/ui/inbox", action="reject", node=rejected, confirm="yes").text
    assert "1 of 1 deleted" in root.post("/ui/inbox", action="delete", node=deleted, confirm="yes").text
    calls = [service.client(None).post("/v1/continue_inspection", callback_body(mac)).status_code for mac in macs]
    assert calls == [404, 202]
    assert macs[0] in root.get("/ui/inbox").text
    assert root.post("/ui/inbox", readmit=macs[0]).status_code == 303
    assert macs[0] not in root.get("/ui/inbox").text
    assert service.client(None).post("/v1/continue_inspection", callback_body(macs[0])).status_code == 202


def test_all_of_one_source_are_rejected_after_a_question(service: Service, root: Browser) -> None:
    for number in range(3):
        discover(service, f"S-{number}", source="192.0.2.66" if number else "192.0.2.8")
    assert "Reject all from 192.0.2.66" in text_of(root.get("/ui/inbox"))
    assert "This deletes all" in root.post("/ui/inbox", source="192.0.2.66").text
    assert root.get("/ui/inbox").text.count("duplicate?") == 0
    assert "2 machines from 192.0.2.66 rejected" in text_of(root.post("/ui/inbox", source="192.0.2.66", confirm="yes"))
    assert "S-0" in root.get("/ui/inbox").text
    assert "S-1" not in root.get("/ui/inbox").text


def test_all_that_wait_are_accepted_at_once(service: Service, root: Browser) -> None:
    idents = [discover(service, f"S-{number}") for number in range(3)]
    assert "This accepts 3 machines" in text_of(root.post("/ui/inbox", action="approve", all="yes"))
    assert "3 of 3 accepted" in root.post("/ui/inbox", action="approve", all="yes", confirm="yes").text
    assert not any(service.node(ident).inbox for ident in idents)


def test_machines_that_do_not_wait_are_left_alone(service: Service, root: Browser) -> None:
    node = examples.node(name="in-use", provision_state=Provision.MANAGEABLE)
    service.store.write(lambda tx: tx.nodes.add(node))
    for action in ("approve", "reject", "delete"):
        assert root.post("/ui/inbox", action=action, node=node.uuid, confirm="yes").status_code == 404
    assert service.node(node.uuid).name == "in-use"
    assert root.post("/ui/inbox", action="nonsense", node=node.uuid).status_code == 400


def test_who_may_not_decide_sees_no_buttons_and_is_refused(service: Service) -> None:
    ident = discover(service, "S-1")
    reader = Browser(service).log_in("reader")
    page = reader.get("/ui/inbox")
    assert "S-1" in page.text
    assert not [tag for tag in Elements(page.text).tags if tag[0] == "button" and tag[1].get("value")]
    before = service.node(ident)
    for action in ("approve", "reject", "delete"):
        for confirm in ("", "yes"):
            assert reader.post("/ui/inbox", action=action, node=ident, confirm=confirm).status_code == 403
    assert reader.post("/ui/inbox", source="192.0.2.66").status_code == 403
    assert reader.post("/ui/inbox", source="192.0.2.66", confirm="yes").status_code == 403
    assert reader.post("/ui/inbox", readmit=examples.mac()).status_code == 403
    assert service.node(ident) == before
    project = Browser(service).log_in("a-member")
    assert "S-1" not in project.get("/ui/inbox").text
    assert project.post("/ui/inbox", action="approve", node=ident, confirm="yes").status_code == 404


def test_what_a_machine_says_is_only_text(service: Service, root: Browser) -> None:
    discover(service, "<script>alert(1)</script>\u202e")
    page = root.get("/ui/inbox")
    assert "<script>alert" not in page.text
    assert "\u202e" not in page.text


@pytest.mark.usefixtures("nothing_is_kept")
def test_macs_that_several_machines_have_are_shown_to_operators(service: Service, root: Browser) -> None:
    assert "several machines" not in text_of(root.get("/ui/inbox"))
    mac = "52:54:00:00:00:01"
    called = ("sn-one", "sn-two")
    for serial in called:
        ident = discover(service, examples.uuid())
        vendor = {"manufacturer": "ACME", "serial_number": serial.upper()}
        service.learn(ident, {"interfaces": [{"name": "usb0", "mac_address": mac}], "system_vendor": vendor})
    shown = text_of(root.get("/ui/inbox"))
    assert f"ignored_macs = known,{mac}" in shown
    # Where the service names them by UUIDs, people read names.
    for path in ("/ui/service", "/ui/inbox"):
        shown = text_of(root.get(path))
        assert all(name in shown for name in called), path
    assert "several machines" not in text_of(Browser(service).log_in("a-admin").get("/ui/inbox"))


def test_a_machine_that_waits_has_one_name_on_all_pages_and_leads_to_the_inbox(service: Service, root: Browser) -> None:
    ident = discover(service, "S-1")
    lldp = {"interfaces": [{"name": "eth0", "mac_address": examples.mac(), "lldp": []}]}
    vendor = {"system_vendor": {"serial_number": "S-1"}}
    found = {"parsed_lldp": {"eth0": {"switch_system_name": "leaf-1", "switch_port_id": "Ethernet1"}}}
    service.learn(ident, lldp | vendor, found)
    for path in ("/ui/inbox", "/ui/machines", "/ui/wiring", f"/ui/machines/{ident}?tab=log"):
        page = text_of(root.get(path))
        assert ("s-1" in page, ident[:8] in page) == (True, False), path
    assert "waiting for approval in the inbox" in page
