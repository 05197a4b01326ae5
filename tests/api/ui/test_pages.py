"""The web page: what each caller sees and may do, forms of other sites, hostile data, ETags."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ferroscope.api.auth.identity import local
from ferroscope.contrib.ui import machine
from ferroscope.core.model import Node
from ferroscope_client.core.reasons import Reason
from ferroscope_client.core.states import Provision
from tests.api.browsing import IDENTITIES, Browser, Elements, add, failed
from tests.api.callers import service_for
from tests.api.service import Service
from tests.support import examples
from tests.support.processes import until

PAGES = ("/ui", "/ui/machines", "/ui/inbox", "/ui/wiring")


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
    assert (refused.status_code, "Your session has ended" in refused.text) == (401, True)
    assert service.node(uuid).inspection is None
    login = browser.get("/ui/login")
    assert (login.status_code, "secret-machine" in login.text) == (200, False)


def test_a_reader_has_no_buttons_and_may_not_act(service: Service) -> None:
    uuid = failed(service, "broken", Reason.TIMEOUT)
    before = service.node(uuid)
    reader = Browser(service).log_in("reader")
    for path in PAGES:
        forms = [tag for tag in Elements(reader.get(path).text).tags if tag[0] == "form"]
        assert {form["action"] for _, form in forms if form.get("method") == "post"} <= {
            "/ui/logout",
            "/ui/machines/act",
            "/ui/machines/saved",  # of the reader's own searches
        }
        buttons = [tag for tag in Elements(reader.get(path).text).tags if tag[0] == "button" and tag[1].get("value")]
        assert [one for _, one in buttons if one["name"] != "keep"] == []  # of columns, by the browser
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


def test_who_may_not_see_why_an_inspection_failed_does_not_learn_it_from_lists(sqlite_url: str) -> None:
    lessee = local("lea", "token", ["member"], project="l")
    service = service_for(sqlite_url, IDENTITIES | {"lessee": lessee})
    failed(service, "m-leased", Reason.BMC_CREDENTIALS, owner="a", attributes={"lessee": "l"})
    shown = {}
    for user in ("a-member", "lessee"):
        browser = Browser(service).log_in(user)
        pages = [browser.get(path).text for path in ("/ui/machines?reason=bmc-credentials", "/ui")]
        shown[user] = ("<bdi>m-leased</bdi>" in pages[0], "reason=bmc-credentials" in pages[1])
    assert shown == {"a-member": (True, True), "lessee": (False, False)}
    assert "<bdi>m-leased</bdi>" in Browser(service).log_in("lessee").get("/ui/machines").text


def test_a_form_of_another_site_does_nothing(service: Service) -> None:
    uuid = add(service, "one")
    browser = Browser(service).log_in("root")
    act = {"action": "maintenance", "node": uuid, "confirm": "yes"}
    for headers in ({"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}, {"Origin": "null"}):
        assert browser.post("/ui/machines/act", headers=headers, **act).status_code == 403
    for token in ("", "0" * 63, "0" * 64, Browser(service).csrf()):
        assert browser.post("/ui/machines/act", csrf=token, **act).status_code in (403, 409)
    assert not service.node(uuid).maintenance
    assert browser.get(f"/ui/machines/act?action=maintenance&node={uuid}&confirm=yes").status_code == 405
    assert browser.post("/ui/logout", csrf="").status_code == 403
    assert browser.get("/ui").status_code == 200
    assert browser.post("/ui/machines/act", **act).status_code == 200
    assert service.node(uuid).maintenance


@pytest.mark.parametrize(
    ("options", "headers", "status"),
    [
        ({}, {"Origin": "http://evil.example"}, 403),
        ({}, {"Origin": "http://localhost:6386"}, 403),
        ({}, {"Origin": "http://localhost"}, 403),
        ({}, {"Origin": "http://localhost:6385.evil.example"}, 403),
        ({}, {"Origin": "nonsense:"}, 403),
        ({}, {"Origin": "http://[::1"}, 403),
        ({}, {"Origin": "http://localhost:6385"}, 401),
        # A proxy that has terminated HTTPS, and says nothing about it.
        ({}, {"Origin": "https://localhost", "Host": "localhost"}, 401),
        ({}, {"Origin": "https://LOCALHOST:443", "Host": "localhost:443"}, 401),
        # A proxy that changes the name: it is trusted, or the configuration says which name is ours.
        ({}, {"Origin": "https://api.example", "X-Forwarded-Host": "api.example"}, 403),
        (
            {"trusted_proxies": ("127.0.0.1",)},
            {"Origin": "https://api.example", "X-Forwarded-Host": "api.example"},
            401,
        ),
        ({"trusted_proxies": ("127.0.0.1",)}, {"Origin": "http://evil", "X-Forwarded-Host": "evil, api.example"}, 403),
        ({"trusted_proxies": ("10.0.0.1",)}, {"Origin": "https://api.example", "X-Forwarded-Host": "api.example"}, 403),
        ({"public_url": "http://api.example:8000/x"}, {"Origin": "http://api.example:8000"}, 401),
        ({"public_url": "https://api.example"}, {"Origin": "https://api.example"}, 401),
        # Over HTTPS, a page of the same name over plain HTTP is another one: anybody on the way can write it.
        ({"public_url": "https://api.example"}, {"Origin": "http://api.example", "Host": "api.example"}, 403),
    ],
)
def test_a_form_comes_from_the_host_to_which_it_is_sent(
    sqlite_url: str, options: dict[str, Any], headers: dict[str, str], status: int
) -> None:
    service = service_for(sqlite_url, IDENTITIES, **options)
    browser = Browser(service, "127.0.0.1")
    browser.token = browser.csrf()
    if options.get("public_url", "").startswith("https:"):
        assert browser.cookie.startswith("__Host-")
    for site in ({}, {"Sec-Fetch-Site": "same-origin"}):
        answer = browser.post("/ui/login", token="nobody", headers=headers | site)
        assert answer.status_code == status, answer.text


def test_without_authentication_forms_are_still_protected(sqlite_url: str) -> None:
    service = Service(sqlite_url)
    uuid = add(service, "one")
    browser = Browser(service)
    browser.token = browser.csrf("/ui/machines")
    assert (
        browser.post("/ui/machines/act", csrf="1" * 64, action="maintenance", node=uuid, confirm="yes").status_code
        == 409
    )
    assert not service.node(uuid).maintenance
    assert browser.post("/ui/machines/act", action="maintenance", node=uuid, confirm="yes").status_code == 200
    assert service.node(uuid).maintenance


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

    assert until(lambda: changed() == ["/ui", "/ui/machines"])  # viewers share what a process has read a moment ago


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


def test_machines_in_use_are_left_out_of_an_inspection(service: Service) -> None:
    add(service, "one", attributes={"instance_uuid": examples.mac()})
    add(service, "two")
    asked = Browser(service).log_in("root").post("/ui/machines/act", action="inspect", all="yes")
    text = " ".join(Elements(asked.text).text.split())
    assert "This power-cycles 1 machine; 1 left out" in text
    assert "one : in use" in text.replace("one:", "one :")


def test_machines_that_nobody_has_managed_are_inspected_where_that_is_asked_for(service: Service) -> None:
    new = add(service, "new", provision_state=Provision.ENROLL)
    add(service, "old")
    browser = Browser(service).log_in("root")

    def asked(**form: str) -> str:
        answer = browser.post("/ui/machines/act", action="inspect", **form)
        return " ".join(Elements(answer.text).text.split())

    assert "This power-cycles 1 machine; 1 left out" in asked(all="yes")
    assert "new : in enroll" in asked(all="yes").replace("new:", "new :")
    assert "This power-cycles 1 machine." in asked(all="yes", state="enroll")
    assert "This power-cycles 1 machine." in asked(node=new)


def test_retry_repeats_what_has_failed(service: Service) -> None:
    error = f"connection refused ({Reason.BMC_CONNECTION_REFUSED})"
    unverified = add(service, "unverified", provision_state=Provision.ENROLL, last_error=error)
    uninspected = add(service, "uninspected", provision_state=Provision.INSPECT_FAILED, last_error=error)
    browser = Browser(service).log_in("root")
    inputs = [tag for name, tag in Elements(browser.get("/ui").text).tags if name == "input"]
    form = {str(tag["name"]): str(tag["value"]) for tag in inputs if tag["name"] in ("action", "all", "reason", "back")}
    assert "This tries 2 machines again" in browser.post("/ui/machines/act", **form).text
    assert "2 of 2 machines tried again" in browser.post("/ui/machines/act", confirm="yes", **form).text
    assert [service.node(uuid).provision_state for uuid in (unverified, uninspected)] == ["verifying", "inspecting"]


def test_the_page_can_be_disabled(sqlite_url: str) -> None:
    service = Service(sqlite_url, enable_ui=False)
    for path in ("/ui", "/ui/login", "/ui/static/ferroscope.js"):
        assert service.bare_metal.get(path).status_code == 404


def test_where_a_form_goes_back_to_is_a_header_whatever_it_has(service: Service) -> None:
    uuid = add(service, "m-one")
    browser = Browser(service).log_in("root")
    for back, location in (
        ("/ui/machines\r\nSet-Cookie: x=y", "/ui/machines%0D%0ASet-Cookie:%20x=y"),
        ("/ui/machines?q=r\u00e4ck", "/ui/machines?q=r%C3%A4ck"),
        ("/ui/machines?q=\u65e5", "/ui/machines?q=%E6%97%A5"),
        ("/ui/machines?q=a%20b&c=state", "/ui/machines?q=a%20b&c=state"),
    ):
        answer = browser.post("/ui/machines/saved", name="x", back=back)
        assert (answer.status_code, answer.headers["Location"]) == (303, location)
    answer = browser.post(f"/ui/machines/{uuid}/notes", text="a note")
    assert answer.headers["Location"] == f"/ui/machines/{uuid}"


def test_a_form_is_bounded(service: Service) -> None:
    browser = Browser(service).log_in("root")
    assert browser.send("POST", "/ui/machines/act", "csrf=" + "x" * 200_000).status_code == 413
    assert browser.send("POST", "/ui/machines/act", "a=1&" * 3000).status_code == 400


def test_a_machine_shows_what_its_caller_may_see(service: Service) -> None:
    own = add(
        service, "own", owner="a", driver_info={"redfish_address": "https://192.0.2.9", "redfish_password": "geheim"}
    )
    other = add(service, "foreign", owner="b")
    leased = add(service, "leased", owner="b", attributes={"lessee": "a"}, last_error="secret error")
    reader = Browser(service).log_in("a-reader")
    for tab in machine.TABS:
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


def test_the_service_is_shown_to_those_who_may_see_its_status(service: Service) -> None:
    loops = {f"periodic/{number}": f"leads periodic/{number}" for number in range(20)}
    loops = {"worker": "<b>idle</b>"} | loops | {"relay": "cannot reach the broker"}
    worker = examples.member("worker-1", status="; ".join(loops.values()), detail={"loops": loops})
    service.store.write(lambda tx: tx.members.beat(worker, 60.0))
    service.store.write(lambda tx: tx.leases.acquire("periodic/timeouts", "worker-1", 60.0))
    page = Browser(service).log_in("reader").get("/ui/service")
    text = " ".join(Elements(page.text).text.split())
    assert "periodic/timeoutsworker@example:421" in text
    assert "<b>idle" in text
    assert "cannot reach the broker" in text  # all of it, however much that is
    project = Browser(service).log_in("a-reader")
    assert project.get("/ui/service").status_code == 403
    assert "/ui/service" not in project.get("/ui").text
