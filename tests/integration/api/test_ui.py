"""The web page: logins, what each caller sees and may do, forms of other sites, hostile data, ETags."""

from __future__ import annotations

import base64
import csv
import gzip
import html
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import bcrypt
import msgspec
import pytest

from ferroscope.core.delivery import Fail
from ferroscope.core.model import Node
from ferroscope.core.reasons import Reason
from ferroscope.core.states import Event, Provision, State
from ferroscope.ui import fleet
from ferroscope.ui.render import Rendered
from tests.integration.api.browsing import IDENTITIES, Browser, Elements
from tests.integration.api.callers import service_for
from tests.integration.api.service import Service, callback_body
from tests.support import examples
from tests.support.processes import until

PAGES = ("/ui", "/ui/machines", "/ui/inbox", "/ui/wiring")


@pytest.fixture
def service(sqlite_url: str) -> Iterator[Service]:
    served = service_for(sqlite_url, IDENTITIES)
    yield served
    served.close()


def add(service: Service, name: str, **fields: Any) -> str:
    node = examples.node(name=name, **{"provision_state": Provision.MANAGEABLE, **fields})
    service.store.write(lambda tx: tx.nodes.add(node))
    return node.uuid


def failed(service: Service, name: str, reason: Reason, **fields: Any) -> str:
    """Enroll a node whose inspection has failed."""
    uuid = add(service, name, **fields)
    browser = Browser(service).log_in("root")
    assert browser.post("/ui/machines/act", action="inspect", node=uuid, confirm="yes").status_code == 200
    service.consume()
    service.step(uuid, Event.FAIL, Fail(reason, "it failed"))
    return uuid


def test_nothing_is_shown_before_a_login(service: Service) -> None:
    uuid = add(service, "secret-machine")
    browser = Browser(service)
    for path in (
        *PAGES,
        f"/ui/machines/{uuid}",
        "/ui/machines?format=csv",
        "/ui/nothing",
        "/ui/machines?q=secret-machine",
    ):
        for method in ("GET", "HEAD"):
            answer = browser.send(method, path)
            assert answer.status_code == 303, path
            assert answer.headers["Location"].startswith("/ui/login?next=%2Fui"), path
            assert "secret" not in answer.text
            assert "ETag" not in answer.headers
    refused = browser.post("/ui/machines/act", csrf=browser.csrf(), action="inspect", node=uuid, confirm="yes")
    assert refused.status_code == 303
    assert service.node(uuid).inspection is None
    login = browser.get("/ui/login")
    assert (login.status_code, "secret-machine" in login.text) == (200, False)


def test_a_session_lasts_until_logout_and_never_outlives_its_credentials(service: Service) -> None:
    browser = Browser(service)
    browser.token = browser.csrf()
    before = browser.cookie
    wrong = browser.post("/ui/login", token="nobody")
    assert (wrong.status_code, 'role="alert"' in wrong.text) == (401, True)
    browser.log_in("reader")
    assert browser.cookie != before  # nobody who planted the first one shares the session
    assert "reader" in browser.get("/ui").text
    stored = service.store.read(lambda tx: tx.web_sessions.remove_ended(1e15, 0))
    assert stored == 0
    copied = Browser(service)
    copied.cookie, copied.token = browser.cookie, browser.token
    assert copied.get("/ui").status_code == 200
    assert browser.post("/ui/logout").status_code == 303
    assert copied.get("/ui").status_code == 303

    again = Browser(service).log_in("a-reader")
    known = IDENTITIES.pop("a-reader")
    try:
        assert again.get("/ui").status_code == 303
    finally:
        IDENTITIES["a-reader"] = known
    assert again.get("/ui").status_code == 303  # the session has ended for good


def test_viewers_share_a_page_but_not_the_token_of_its_forms(service: Service) -> None:
    first, second = (Browser(service).log_in("root") for _ in range(2))
    pages = [browser.get("/ui") for browser in (first, second)]
    assert first.token != second.token
    assert [page.text.count(browser.token) > 0 for page in pages for browser in (first, second)] == [
        True, False, False, True,
    ]  # fmt: skip
    assert pages[0].text.replace(first.token, second.token) == pages[1].text
    assert pages[0].headers["ETag"] != pages[1].headers["ETag"]


def test_rendered_pages_are_kept_for_a_moment_and_few_of_them() -> None:
    rendered, made = Rendered(), []

    def look(key: str, moment: float) -> str:
        return rendered.get(key, moment, lambda: made.append(key) or f"{key} at {moment}")  # type: ignore[func-returns-value]

    assert [look("a", moment) for moment in (0.0, 1.9, 2.0)] == ["a at 0.0", "a at 0.0", "a at 2.0"]
    for number in range(100):
        look(str(number), 3.0)
    assert look("a", 3.0) == "a at 2.0"
    assert len(rendered._pages) <= 16
    assert (look("b", 9.0), look("b", 10.0)) == ("b at 9.0", "b at 9.0")  # what is old makes room


def test_a_session_expires(service: Service) -> None:
    browser = Browser(service).log_in("reader")
    assert browser.get("/ui").status_code == 200
    removed = service.store.write(lambda tx: tx.web_sessions.remove_ended(tx.now + 8 * 3600 + 1, 100))
    assert removed == 1
    assert browser.get("/ui").status_code == 303


def test_the_database_does_not_have_the_credentials(service: Service) -> None:
    Browser(service).log_in("a-member")
    with service.backend.engine.connect() as connection:
        rows = connection.exec_driver_sql("SELECT * FROM web_sessions").fetchall()
    assert len(rows) == 1
    assert "a-member" not in str(rows)


def test_a_user_of_the_password_file_logs_in(sqlite_url: str, tmp_path: Path) -> None:
    file = tmp_path / "htpasswd"
    hashed = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
    file.write_text(f"alice:{hashed}:admin\n")
    service = Service(sqlite_url, auth_strategy="http_basic", http_basic_auth_user_file=str(file))
    try:
        browser = Browser(service)
        browser.token = browser.csrf()
        assert browser.post("/ui/login", user="alice", password="wrong").status_code == 401
        evil = browser.post("/ui/login?next=//evil.example/", user="alice", password="secret")
        assert evil.headers["Location"] == "/ui"
        assert "alice" in browser.get("/ui").text
    finally:
        service.close()


def test_a_reader_has_no_buttons_and_may_not_act(service: Service) -> None:
    uuid = failed(service, "broken", Reason.TIMEOUT)
    before = service.node(uuid)
    reader = Browser(service).log_in("reader")
    for path in PAGES:
        forms = [tag for tag in Elements(reader.get(path).text).tags if tag[0] == "form"]
        assert {form["action"] for _, form in forms if form.get("method") == "post"} <= {
            "/ui/logout",
            "/ui/machines/act",
        }
        buttons = [tag for tag in Elements(reader.get(path).text).tags if tag[0] == "button" and tag[1].get("value")]
        assert buttons == []
        assert "Retry" not in reader.get(path).text
    for action in ("inspect", "abort", "manage", "maintenance", "clear"):
        for confirm in ("", "yes"):
            answer = reader.post("/ui/machines/act", action=action, node=uuid, confirm=confirm)
            assert answer.status_code == 403, action
    assert service.node(uuid) == before
    assert "Select machines" in Browser(service).log_in("root").get("/ui/machines").text


def test_the_machines_of_another_project_are_invisible(service: Service) -> None:
    own = add(service, "own-machine", owner="a")
    other = failed(service, "foreign-machine", Reason.BMC_UNREACHABLE, owner="b")
    for name in ("a-member", "a-reader"):
        browser = Browser(service).log_in(name)
        for path in (
            *PAGES,
            "/ui/machines?format=csv",
            "/ui/machines?q=machine",
            "/ui/machines?reason=bmc-unreachable",
        ):
            answer = browser.get(path)
            assert answer.status_code == 200, path
            assert "foreign" not in answer.text
            assert other not in answer.text
        assert "own-machine" in browser.get("/ui/machines").text
        assert "1 machine<" in browser.get("/ui").text
        answer = browser.post("/ui/machines/act", action="maintenance", node=other, confirm="yes")
        assert answer.status_code == 404
    member = Browser(service).log_in("a-member")
    assert member.post("/ui/machines/act", action="maintenance", node=[own, other], confirm="yes").status_code == 200
    assert (service.node(own).maintenance, service.node(other).maintenance) == (True, False)


def test_a_form_of_another_site_does_nothing(service: Service) -> None:
    uuid = add(service, "one")
    browser = Browser(service).log_in("root")
    act = {"action": "maintenance", "node": uuid, "confirm": "yes"}
    for headers in ({"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}, {"Origin": "null"}):
        assert browser.post("/ui/machines/act", headers=headers, **act).status_code == 403
    for token in ("", "0" * 64, Browser(service).csrf()):
        assert browser.post("/ui/machines/act", csrf=token, **act).status_code == 403
    assert not service.node(uuid).maintenance
    assert browser.get(f"/ui/machines/act?action=maintenance&node={uuid}&confirm=yes").status_code == 405
    assert browser.post("/ui/logout", csrf="").status_code == 403
    assert browser.get("/ui").status_code == 200
    assert browser.post("/ui/machines/act", **act).status_code == 200
    assert service.node(uuid).maintenance


def test_without_authentication_forms_are_still_protected(sqlite_url: str) -> None:
    service = Service(sqlite_url)
    try:
        uuid = add(service, "one")
        browser = Browser(service)
        browser.token = browser.csrf("/ui/machines")
        assert (
            browser.post("/ui/machines/act", csrf="1" * 64, action="maintenance", node=uuid, confirm="yes").status_code
            == 403
        )
        assert not service.node(uuid).maintenance
        assert browser.post("/ui/machines/act", action="maintenance", node=uuid, confirm="yes").status_code == 200
        assert service.node(uuid).maintenance
    finally:
        service.close()


def test_the_fleet_has_sentences_tiles_and_reasons_that_lead_to_machines(service: Service) -> None:
    assert "No worker is alive" in Browser(service).log_in("root").get("/ui").text
    failed(service, "bad-1", Reason.BMC_UNREACHABLE)
    failed(service, "bad-2", Reason.BMC_UNREACHABLE)
    failed(service, "bad-3", Reason.TIMEOUT)
    add(service, "busy")
    add(service, "kept", maintenance=True)
    browser = Browser(service).log_in("root")
    browser.post("/ui/machines/act", action="inspect", all="yes", q="name == busy", confirm="yes")
    until(lambda: "starting" in browser.get("/ui").text)
    page = browser.get("/ui")
    text = " ".join(Elements(page.text).text.split())
    assert "2 machines failed: BMC unreachable" in text
    assert "1 machine failed: timeout" in text
    assert "busystarting" in text.replace(" ", "")
    links = [html.unescape(str(tag[1].get("href"))) for tag in Elements(page.text).tags if tag[0] == "a"]
    reason = next(link for link in links if "reason=bmc-unreachable" in link)
    listed = browser.get(reason).text
    assert ("bad-1" in listed, "bad-2" in listed, "bad-3" in listed, "busy" in listed) == (True, True, False, False)
    state = next(link for link in links if "state=inspect+failed" in link)
    assert browser.get(state).text.count(">bad-") == 3
    assert "kept" in browser.get("/ui/machines?maintenance=yes").text
    asked = browser.post("/ui/machines/act", action="inspect", all="yes", reason="bmc-unreachable")
    assert "This power-cycles 2 machines" in asked.text


def test_an_action_says_what_it_would_do_and_is_audited(service: Service) -> None:
    one, two, kept = add(service, "one"), add(service, "two"), add(service, "kept", maintenance=True)
    browser = Browser(service).log_in("root")
    asked = browser.post("/ui/machines/act", action="inspect", node=[one, two, kept])
    assert "This power-cycles 2 machines; 1 left out" in " ".join(Elements(asked.text).text.split())
    assert service.node(one).inspection is None
    done = browser.post("/ui/machines/act", action="inspect", node=[one, two], confirm="yes")
    assert "2 of 2 inspections requested" in done.text
    assert service.node(one).provision_state == "inspecting"
    browser.post("/ui/machines/act", action="maintenance", node=[kept], reason="bad <b>DIMM</b>", confirm="yes")
    assert service.node(kept).attributes["maintenance_reason"] == "bad <b>DIMM</b>"
    assert "bad &lt;b&gt;DIMM" in browser.get("/ui/machines").text
    browser.post("/ui/machines/act", action="clear", node=[kept], confirm="yes")
    assert not service.node(kept).maintenance
    events = service.bare_metal.get("/v1/audit", headers={"X-Auth-Token": "root"}).json["events"]
    calls = {(event["user"], event["call"]) for event in events}
    assert ("root", "PUT /v1/nodes/{node}/states/provision") in calls
    assert ("root", "PUT /v1/nodes/{node}/maintenance") in calls


HOSTILE = '<script>alert(1)</script>"><img src=x onerror=alert(2)>\u202egnp.exe\u2066'


def test_what_machines_send_is_text_and_never_markup(service: Service) -> None:
    uuid = add(service, "victim")
    hardware = {"vendor": HOSTILE, "product": "x" * 2_000_000, "serial": HOSTILE, "cpu": "\x00\x1b[31m", "nics": 1}

    def spoil(tx: Any) -> None:
        node: Node = tx.nodes.get(uuid, lock=True)
        tx.nodes.update(
            msgspec.structs.replace(
                node, hardware=hardware, last_error=HOSTILE * 1000, provision_state=Provision.INSPECT_FAILED
            )
        )

    service.store.write(spoil)
    browser = Browser(service).log_in("root")
    for path in (*PAGES, "/ui/machines?q=%3Cscript%3Ealert(1)%3C/script%3E", "/ui/machines?c=error&c=model&c=serial"):
        answer = browser.get(path)
        assert answer.status_code == 200
        assert len(answer.text) < 60_000
        for tag, attributes in Elements(answer.text).tags:
            assert tag != "img"
            assert tag != "script" or str(attributes["src"]).startswith("/ui/static/")
            assert not any(name.startswith("on") or name == "style" for name in attributes)
        assert "\u202e" not in answer.text
        assert "\u2066" not in answer.text
        assert "\x1b" not in answer.text
    exported = browser.get("/ui/machines?format=csv")
    assert exported.headers["Content-Disposition"].startswith("attachment")
    assert exported.headers["Content-Type"].startswith("text/csv")


def test_a_cell_of_an_export_is_never_a_formula(service: Service) -> None:
    add(service, "sum", hardware={"serial": "=HYPERLINK(1)"})
    assert "'=HYPERLINK(1)" in Browser(service).log_in("reader").get("/ui/machines?format=csv").text


def test_a_page_that_has_not_changed_is_not_sent_again(service: Service) -> None:
    add(service, "one")
    browser = Browser(service).log_in("reader")
    tags = {}
    for path in PAGES:
        tags[path] = tag = browser.get(path).headers["ETag"]
        assert browser.get(path, headers={"If-None-Match": tag}).status_code == 304
        head = browser.send("HEAD", path)
        assert (head.status_code, head.headers["ETag"]) == (200, tag)
    add(service, "two")

    def changed() -> list[str]:
        return [path for path in PAGES if browser.get(path, headers={"If-None-Match": tags[path]}).status_code == 200]

    until(lambda: changed() == ["/ui", "/ui/machines"])  # viewers share what a process has read a moment ago


def test_every_answer_forbids_inline_code_and_embedding(service: Service) -> None:
    browser = Browser(service).log_in("root")
    for path in (*PAGES, "/ui/login", "/ui/nothing", "/ui/static/ferroscope.js", "/ui/static/nothing"):
        headers = browser.get(path).headers
        policy = headers["Content-Security-Policy"]
        assert "unsafe" not in policy
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
    assert browser.get("/ui/nothing").status_code == 404
    assert browser.get("/ui/static/..%2fapp.py").status_code == 404


def test_static_files_have_etags_and_are_cached_by_their_digest(service: Service) -> None:
    browser = Browser(service).log_in("root")
    page = Elements(browser.get("/ui").text)
    found = [str(tag[1].get("src") or tag[1].get("href")) for tag in page.tags if tag[0] in ("script", "link")]
    assert len(found) == 3
    for path in found:
        answer = browser.get(path)
        assert (answer.status_code, "immutable" in answer.headers["Cache-Control"]) == (200, True)
        known = browser.get(path, headers={"If-None-Match": answer.headers["ETag"]})
        assert known.status_code == 304
        assert browser.get(path.partition("?")[0]).headers["Cache-Control"] == "no-cache"


def test_searches_filters_columns_and_pages(service: Service) -> None:
    for number in range(103):
        add(service, f"m-{number:03}", driver="sim" if number % 2 else "fake-hardware")
    browser = Browser(service).log_in("reader")
    first = browser.get("/ui/machines?sort=name&c=driver")
    assert first.text.count(">m-") == 100
    following = next(str(tag[1]["href"]) for tag in Elements(first.text).tags if tag[1].get("rel") == "next")
    assert re.findall(r">(m-\d+)", browser.get(html.unescape(following)).text) == ["m-100", "m-101", "m-102"]
    assert re.findall(r">(m-\d+)", browser.get("/ui/machines?dir=desc").text)[0] == "m-102"
    assert browser.get("/ui/machines?q=driver%20==%20sim&state=manageable").text.count(">m-") == 51
    wrong = browser.get("/ui/machines?q=driver%20==")
    assert (wrong.status_code, 'role="alert"' in wrong.text) == (200, True)
    assert browser.get("/ui/machines?format=csv").text.count("\n") == 104


def test_labels_are_shown_and_lead_to_the_machines_that_have_them(service: Service) -> None:
    browser = Browser(service).log_in("reader")
    add(service, "plain")
    assert ">Labels</th>" not in browser.get("/ui/machines").text
    for name, labels in (("one", {"example.org/rack": "r1", "spare": ""}), ("two", {"example.org/rack": "r1"})):
        add(service, name, labels=labels, driver="sim")
    page = Elements(browser.get("/ui/machines?q=driver%20==%20sim%20or%20one").text)
    assert "example.org/rack=r1" in page.text
    found = []
    for path in (tag[1]["href"] for tag in page.tags if tag[0] == "a" and tag[1].get("class") == "tag"):
        shown = browser.get(html.unescape(str(path))).text
        assert 'role="alert"' not in shown
        found.append([name for name in ("one", "two", "plain") if f">{name}<" in shown])
    assert sorted(found) == [["one"], ["one", "two"], ["one", "two"]]
    assert "example.org/rack=r1,spare" in browser.get("/ui/machines?format=csv").text
    links = [tag for tag in Elements(browser.get("/ui/machines/one").text).tags if tag[1].get("class") == "tag"]
    assert len(links) == 2


def names_of(page: str) -> list[str]:
    return [name for name in ("one", "two", "plain") if f">{name}<" in page]


def test_machines_are_chosen_by_labels_from_a_menu_of_all(service: Service) -> None:
    browser = Browser(service).log_in("root")
    add(service, "plain")
    assert 'name="labels"' not in browser.get("/ui/machines").text
    for name, labels in (("one", {"example.org/rack": "r1", "spare": ""}), ("two", {"example.org/rack": "r1"})):
        add(service, name, labels=labels, driver="sim", owner="a" if name == "two" else "b")

    def offered(page: str) -> list[str]:
        inside = page[page.index('<datalist id="known-labels">') :]
        options = [tag for tag in Elements(inside[: inside.index("</datalist>")]).tags if tag[0] == "option"]
        return [str(tag[1]["value"]) for tag in options]

    assert until(lambda: 'name="labels"' in browser.get("/ui/machines").text, seconds=30)
    assert offered(browser.get("/ui/machines").text) == ["example.org/rack=r1", "spare"]
    assert offered(Browser(service).log_in("a-reader").get("/ui/machines").text) == ["example.org/rack=r1"]
    for selector, expected in {
        "example.org/rack=r1": ["one", "two"],
        "example.org/rack=r1,!spare": ["two"],
        "example.org/rack notin (r1)": ["plain"],
        "example.org/rack in (r1,r2),spare": ["one"],
        "spare=": ["one"],
    }.items():
        found = quote(selector)
        assert names_of(browser.get(f"/ui/machines?labels={found}").text) == expected
        searched = browser.get(f"/ui/machines?labels={found}&q=driver%20!=%20other").text
        assert names_of(searched) == expected
        assert f'value="{selector}"' in html.unescape(searched)
    for path in ("/ui/machines?labels=%21%21", "/ui/machines?labels=%21%21&q=one"):
        assert 'role="alert"' in browser.get(path).text


def test_labels_of_many_machines_are_changed_at_once(service: Service) -> None:
    browser = Browser(service).log_in("root")
    one, two = add(service, "one", labels={"role": "db"}), add(service, "two")
    asked = browser.post("/ui/machines/act", action="label", all="yes", q="one or two")
    assert "This labels 2 machines" in asked.text
    changes = "example.org/rack=r1, spare role-"
    done = browser.post("/ui/machines/act", action="label", confirm="yes", node=[one, two], labels=changes)
    assert "2 of 2 machines labelled" in done.text
    assert [service.node(uuid).labels for uuid in (one, two)] == [{"example.org/rack": "r1", "spare": ""}] * 2
    for wrong in ("", "a=b=c", "-"):
        again = browser.post("/ui/machines/act", action="label", confirm="yes", node=[one], labels=wrong)
        assert again.status_code == 400
    denied = Browser(service).log_in("reader").post("/ui/machines/act", action="label", node=[one])
    assert denied.status_code == 403


def test_machines_in_use_are_left_out_of_an_inspection(service: Service) -> None:
    add(service, "one", attributes={"instance_uuid": examples.mac()})
    add(service, "two")
    asked = Browser(service).log_in("root").post("/ui/machines/act", action="inspect", all="yes")
    text = " ".join(Elements(asked.text).text.split())
    assert "This power-cycles 1 machine; 1 left out" in text
    assert "one : in use" in text.replace("one:", "one :")


def test_the_page_can_be_disabled(sqlite_url: str) -> None:
    service = Service(sqlite_url, enable_ui=False)
    try:
        for path in ("/ui", "/ui/login", "/ui/static/ferroscope.js"):
            assert service.bare_metal.get(path).status_code == 404
    finally:
        service.close()


def test_a_form_is_bounded(service: Service) -> None:
    browser = Browser(service).log_in("root")
    assert browser.send("POST", "/ui/machines/act", "csrf=" + "x" * 200_000).status_code == 413
    assert browser.send("POST", "/ui/machines/act", "a=1&" * 3000).status_code == 400


LLDP = {"interfaces": [{"name": "eth0", "mac_address": "52:54:00:00:00:01", "lldp": []}]}


def wired(service: Service, uuid: str, port: str) -> None:
    """Store what LLDP has told about the node's NIC."""
    found = {"parsed_lldp": {"eth0": {"switch_system_name": "Leaf-1", "switch_port_id": port}}}
    service.learn(uuid, LLDP, found)


def test_a_machine_has_its_hardware_timeline_history_and_raw_data(service: Service) -> None:
    uuid = add(service, "one")
    root = {"X-Auth-Token": "root"}
    mac = examples.mac()
    service.bare_metal.post("/v1/ports", {"node_uuid": uuid, "address": mac}, headers=root)
    for serial in ("FIRST", "SECOND"):
        target = {"target": "inspect"}
        service.bare_metal.put(f"/v1/nodes/{uuid}/states/provision", target, headers=root)
        service.consume()
        service.step(uuid, Event.WAIT)
        body = callback_body(mac, serial=serial, disks=[{"name": "/dev/sda", "size": 480_000_000_000}])
        assert service.bare_metal.post("/v1/continue_inspection", body, version="1.1").status_code == 202
        service.finish(uuid)
    browser = Browser(service).log_in("reader")
    page = browser.get(f"/ui/machines/{uuid}")
    assert page.status_code == 200
    for text in ("SECOND", "480 GB", mac, "16 GiB"):
        assert text in page.text, text
    assert browser.get("/ui/machines/one").status_code == 200
    timeline = Elements(browser.get(f"/ui/machines/{uuid}?tab=timeline").text).text
    assert timeline.count("callback received") == 2
    history = browser.get(f"/ui/machines/{uuid}?tab=history").text
    assert "FIRST -&gt; SECOND" in history
    assert browser.get(f"/ui/machines/{uuid}?tab=history&before=7").status_code == 200
    assert browser.get(f"/ui/machines/{uuid}?tab=history&other=nobody").status_code == 200
    raw = browser.get(f"/ui/machines/{uuid}?tab=raw").text
    assert "SECOND" in raw
    download = browser.get(f"/ui/machines/{uuid}?download=inventory")
    assert download.json["inventory"]["system_vendor"]["serial_number"] == "SECOND"
    assert download.headers["Content-Disposition"].startswith("attachment")


def test_a_machine_shows_its_health_with_problems_first(service: Service) -> None:
    uuid, root = add(service, "one"), {"X-Auth-Token": "root"}
    mac = examples.mac()
    service.bare_metal.post("/v1/ports", {"node_uuid": uuid, "address": mac}, headers=root)
    service.bare_metal.put(f"/v1/nodes/{uuid}/states/provision", {"target": "inspect"}, headers=root)
    service.consume()
    service.step(uuid, Event.WAIT)
    assert service.bare_metal.post("/v1/continue_inspection", callback_body(mac), version="1.1").status_code == 202
    parts = [
        {"component": "drive", "name": name, "health": state}
        for name, state in (("Disk 1", "ok"), ("<b>Disk 2", "critical"))
    ]
    sensors = [{"kind": "temperature", "name": "Inlet", "reading": 23.5, "unit": "°C", "health": "ok"}]
    log = [{"created": "2026-01-31T00:00:00Z", "severity": "critical", "message": "Drive 2 <i>is removed</i>"}]
    report = {"state": "critical", "parts": parts, "sensors": sensors, "log": log, "complete": False}
    plugin_data: dict[str, Any] = {"out_of_band": {"source": "redfish", "health": report}}
    browser = Browser(service).log_in("reader")
    service.finish(uuid)
    assert "has reported no health" in browser.get(f"/ui/machines/{uuid}?tab=health").text
    service.save_plugin_data(uuid, plugin_data)
    page = browser.get(f"/ui/machines/{uuid}?tab=health").text
    text = " ".join(Elements(page).text.split())
    assert text.index("Disk 2") < text.index("Disk 1") < text.index("Drive 2") < text.index("23.5 °C")
    assert "did not answer in time" in text
    assert "Read from the BMC" not in text
    plugin_data["out_of_band"] |= {"read_at": "2026-01-31T00:00:00.000000Z", "kept": True}
    service.save_plugin_data(uuid, plugin_data)
    kept = browser.get(f"/ui/machines/{uuid}?tab=health").text
    assert 'datetime="2026-01-31T00:00:00.000000Z"' in kept
    assert "The last inspection did not ask it" in kept
    assert "<b>Disk" not in page
    assert "<i>is" not in page
    service.learn(uuid, {}, plugin_data)
    browser = Browser(service).log_in("root")
    assert until(lambda: "1 machine reports a drive that is failing" in browser.get("/ui").text)
    fleet = browser.get("/ui").text
    assert "1 machine reports critical health" in fleet
    links = [html.unescape(str(tag[1].get("href"))) for tag in Elements(fleet).tags if tag[0] == "a"]
    searches = [one for one in links if "?q=health" in one]
    assert len(searches) == 2
    for link in searches:
        assert f"/ui/machines/{uuid}" in browser.get(link).text
    codes = {one["code"] for one in service.bare_metal.get("/v1/status", headers=root).json["problems"]}
    assert codes >= {"health-critical", "drives-failing"}


def test_a_machine_shows_what_its_caller_may_see(service: Service) -> None:
    own = add(
        service, "own", owner="a", driver_info={"redfish_address": "https://192.0.2.9", "redfish_password": "geheim"}
    )
    other = add(service, "foreign", owner="b")
    leased = add(service, "leased", owner="b", attributes={"lessee": "a"}, last_error="secret error")
    reader = Browser(service).log_in("a-reader")
    for tab in ("hardware", "health", "timeline", "history", "rules", "log", "raw"):
        assert reader.get(f"/ui/machines/{other}?tab={tab}").status_code == 404
        assert reader.get(f"/ui/machines/foreign?tab={tab}").status_code == 404
        page = reader.get(f"/ui/machines/{own}?tab={tab}").text
        assert "geheim" not in page
        assert 'name="action"' not in page
        assert "secret error" not in reader.get(f"/ui/machines/{leased}?tab={tab}").text
    assert reader.get(f"/ui/machines/{leased}?download=inventory").status_code == 403
    assert reader.get(f"/ui/machines/{own}?tab=history&other=foreign").text.count("could not be found") == 1
    assert "192.0.2.9" in reader.get(f"/ui/machines/{own}").text
    assert 'value="inspect"' in Browser(service).log_in("a-member").get(f"/ui/machines/{own}").text


def test_the_wiring_names_ports_and_contradictions(service: Service) -> None:
    for name, port in (("one", "Ethernet10"), ("two", "Ethernet2"), ("three", "Ethernet2")):
        wired(service, add(service, name, owner="a" if name == "one" else "b"), port)
    browser = Browser(service).log_in("root")
    text = Elements(browser.get("/ui/wiring").text).text
    assert text.index("ethernet2") < text.index("ethernet10")
    assert "Several machines claim to be at leaf-1 ethernet2" in text
    assert browser.get("/ui/wiring?format=csv").text.splitlines()[0] == "switch,port,machine,nic,mac,contradiction"
    assert browser.get("/ui/wiring?format=csv").text.count("leaf-1") == 3
    assert "No machine has reported" in browser.get("/ui/wiring?switch=spine").text
    assert "Ethernet10".lower() in browser.get("/ui/machines?c=ports").text
    own = Browser(service).log_in("a-reader").get("/ui/wiring").text
    assert ("one" in own, "ethernet2<" in own, "Several" in own) == (True, False, False)


def expect(service: Service, *conditions: str) -> None:
    """Expect this of all machines, and check those that are stored."""
    root = {"X-Auth-Token": "root"}
    body = {"expectations": [{"name": "rack 1", "expect": list(conditions)}]}
    assert service.bare_metal.put("/v1/expectations", body, headers=root).status_code == 200
    assert service.bare_metal.post("/v1/expectations/check", headers=root).status_code == 200


def test_the_wiring_names_machines_that_are_not_where_they_are_expected(service: Service) -> None:
    uuids = [add(service, name, owner=owner) for name, owner in (("one", "a"), ("two", "b"), ("three", "b"))]
    for uuid, port in zip(uuids, ("Ethernet1", "Ethernet9"), strict=False):
        wired(service, uuid, port)
    service.learn(uuids[2], LLDP, {})
    browser = Browser(service).log_in("root")
    assert "Contradictions" not in browser.get("/ui/wiring").text
    expect(service, "nic[switch == leaf-1 and port == Ethernet1]", "memory >= 900TB")
    page = Elements(browser.get("/ui/wiring").text)
    assert page.text.count("is not where it is expected") == 2
    assert "found: nic.switch: leaf-1; nic.port: ethernet9" in page.text.lower()
    assert "900TB" not in page.text
    found = browser.get("/ui/wiring?format=csv").text
    rows = {row["machine"]: row for row in csv.DictReader(io.StringIO(found))}
    assert rows["one"]["contradiction"] == ""
    assert "(rack 1); found nic.switch: leaf-1; nic.port: ethernet9" in rows["two"]["contradiction"]
    assert rows["three"]["switch"] == ""
    assert "expected nic[" in rows["three"]["contradiction"]
    assert "Contradictions" not in browser.get("/ui/wiring?switch=spine").text
    assert "Contradictions" not in Browser(service).log_in("a-reader").get("/ui/wiring").text


def test_the_service_is_shown_to_those_who_may_see_its_status(service: Service) -> None:
    service.store.write(lambda tx: tx.members.beat(examples.member("worker-1", status="<b>idle</b>"), 60.0))
    service.store.write(lambda tx: tx.leases.acquire("periodic/timeouts", "worker-1", 60.0))
    page = Browser(service).log_in("reader").get("/ui/service")
    text = " ".join(Elements(page.text).text.split())
    assert "periodic/timeoutsworker@example:421" in text
    assert "<b>idle" in text
    project = Browser(service).log_in("a-reader")
    assert project.get("/ui/service").status_code == 403
    assert "/ui/service" not in project.get("/ui").text


def test_the_fleet_has_a_chart_of_the_last_week_and_a_table_with_the_same(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "_CHART_SECONDS", 0.1)
    assert "<svg class" not in Browser(service).log_in("reader").get("/ui").text
    node = examples.node(name="charted")
    ended = [(State.FINISHED, 10.0), (State.FINISHED, 20.0), (State.ERROR, 30.0), (State.FINISHED, 8 * 86400.0)]

    def work(tx: Any) -> None:
        tx.nodes.add(node)
        for state, ago in ended:
            tx.inspections.add(examples.inspection(node, state=state, finished_at=tx.now - ago))

    service.store.write(work)
    browser = Browser(service).log_in("reader")
    assert until(lambda: "2 finished" in Elements(browser.get("/ui").text).text)
    page = Elements(browser.get("/ui").text)
    assert "1 failed" in page.text
    heights = dict.fromkeys(("good", "bad"), 0.0)
    for tag, attributes in page.tags:
        if tag == "rect" and attributes.get("class") in heights:
            heights[str(attributes["class"])] += float(attributes["height"] or 0)
    assert heights["good"] == pytest.approx(2 * heights["bad"], abs=0.2)
    assert "<svg class" not in Browser(service).log_in("a-reader").get("/ui").text


def test_progress_is_shown_beside_what_is_usual_for_its_phase(service: Service) -> None:
    node = service.node(add(service, "one", state=State.WAITING, provision_state=Provision.INSPECT_WAIT))
    ended = [
        examples.inspection(node, state=State.FINISHED, started_at=0.0, waiting_since=5.0, processing_since=at,
                            finished_at=at + 2.0)
        for at in (65.0, 66.0, 67.0, 125.0, 245.0)
    ]  # fmt: skip
    service.store.write(lambda tx: [tx.inspections.add(one) for one in ended])
    shown = Elements(Browser(service).log_in("reader").get("/ui").text).text
    assert "An inspection usually takes 1 min 9 s" in shown
    assert "1 min 2 s" in shown  # waiting


@pytest.mark.parametrize(
    ("ago", "shown"),
    [(0.0, "1 min"), (30.0, "3"), (65.0, "any moment"), (400.0, "late by")],
)
def test_the_time_left_follows_from_the_phase_and_those_after_it(service: Service, ago: float, shown: str) -> None:
    now = service.store.read(lambda tx: tx.now)
    node = examples.node(
        name="one", owner="a", state=State.WAITING, provision_state=Provision.INSPECT_WAIT,
        provision_updated_at=now - ago, inspection_started_at=now - ago - 5.0,
    )  # fmt: skip
    done = [examples.node(name=f"done-{number}", owner="a", state=State.FINISHED) for number in range(5)]
    ended = [
        examples.inspection(one, state=State.FINISHED, started_at=0.0, waiting_since=5.0, processing_since=at,
                            finished_at=at + 2.0)
        for one, at in zip(done, (65.0, 65.0, 65.0, 65.0, 245.0), strict=True)
    ]  # fmt: skip
    for one, inspection in zip(done, ended, strict=True):
        one.inspection = inspection.uuid
    service.store.write(lambda tx: [tx.nodes.add(node), *map(tx.nodes.add, done), *map(tx.inspections.add, ended)])
    for who in ("reader", "a-reader"):  # the fleet, and the machines of a project
        (left,) = re.findall(r"data-late=[^>]*>([^<]*)<", Browser(service).log_in(who).get("/ui").text)
        assert left.startswith(shown), (who, left)


def test_rules_are_explained_on_a_machine(service: Service) -> None:
    root = {"X-Auth-Token": "root"}
    uuid, mac = add(service, "one"), examples.mac()
    browser = Browser(service).log_in("root")
    assert "no stored inspection data" in browser.get(f"/ui/machines/{uuid}?tab=rules").text
    service.bare_metal.post("/v1/ports", {"node_uuid": uuid, "address": mac}, headers=root)
    service.bare_metal.put(f"/v1/nodes/{uuid}/states/provision", {"target": "inspect"}, headers=root)
    service.consume()
    service.step(uuid, Event.WAIT)
    log = gzip.compress(b"not an archive")
    body = callback_body(mac, serial="S-1") | {"logs": base64.b64encode(log).decode()}
    assert service.bare_metal.post("/v1/continue_inspection", body, version="1.1").status_code == 202
    service.finish(uuid)
    rule = {
        "description": "named by its serial number",
        "conditions": [{"op": "eq", "args": ["{inventory[system_vendor][serial_number]}", "S-1"]}],
        "actions": [{"op": "set-attribute", "args": {"path": "/extra/serial", "value": "known"}}],
    }
    assert service.bare_metal.post("/v1/inspection_rules", rule, headers=root).status_code == 201
    before = service.node(uuid)
    shown = " ".join(Elements(browser.get(f"/ui/machines/{uuid}?tab=rules").text).text.split())
    assert "named by its serial number : applied" in shown.replace("number:", "number :")
    assert "eq: true" in shown
    assert '/extra/serial: →becomes "known"' in shown
    assert service.node(uuid) == before
    assert "may not try rules" in Browser(service).log_in("reader").get(f"/ui/machines/{uuid}?tab=rules").text
    page = browser.get(f"/ui/machines/{uuid}?tab=log")
    assert "not an archive of texts" in page.text
    download = browser.get(f"/ui/machines/{uuid}?download=log")
    assert download.content == log
    assert download.headers["Content-Disposition"].startswith("attachment")
