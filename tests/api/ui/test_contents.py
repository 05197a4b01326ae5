"""What the pages show: the fleet, lists of machines, one machine and the wiring, and where their links lead."""

from __future__ import annotations

import base64
import gzip
import html
import re
from typing import Any
from urllib.parse import quote

import msgspec
import pytest

from ferroscope.config.options import RegistrySettings
from ferroscope.contrib.ui import fleet, render
from ferroscope_client.core.finding import Finding
from ferroscope_client.core.reasons import Reason
from ferroscope_client.core.states import Provision, State
from tests.api.browsing import IDENTITIES, Browser, Elements, add, call_back, expect, failed
from tests.api.callers import service_for
from tests.api.service import Service
from tests.support import examples
from tests.support.processes import until


def test_the_fleet_has_sentences_tiles_and_reasons_that_lead_to_machines(service: Service) -> None:
    assert "No worker is alive" in Browser(service).log_in("root").get("/ui").text
    failed(service, "bad-1", Reason.BMC_UNREACHABLE)
    failed(service, "bad-2", Reason.BMC_UNREACHABLE)
    failed(service, "bad-3", Reason.TIMEOUT)
    add(service, "busy")
    add(service, "kept", maintenance=True)
    browser = Browser(service).log_in("root")
    browser.post("/ui/machines/act", action="inspect", all="yes", q="name == busy", confirm="yes")
    assert until(lambda: "starting" in browser.get("/ui").text)
    page = browser.get("/ui")
    text = " ".join(Elements(page.text).text.split())
    assert "2 machines have the error bmc-unreachable: bad-1 and 1 more" in text
    assert "1 machine has the error timeout: bad-3" in text
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


def links_of(page: str) -> dict[str, str]:
    """Return where the button of each problem leads, by the problem."""
    found = re.findall(r'<strong>([^<]*)</strong>.*?<a class="button" href="([^"]*)"', page, re.DOTALL)
    return {html.unescape(text): html.unescape(link) for text, link in found}


def test_each_problem_leads_to_exactly_its_machines(sqlite_url: str) -> None:
    registry = RegistrySettings(url="http://127.0.0.1:9")
    service = service_for(sqlite_url, IDENTITIES, sections={"registry": registry})
    mute = f"uuid in ({add(service, 'mute')})"
    silent = Finding("bmc-silent", "note", "BMCs that do not respond: 192.0.2.9", "look", mute)
    worker = examples.member("worker-2", role="worker", detail={"problems": [msgspec.to_builtins(silent)]})
    service.store.write(lambda tx: tx.members.beat(worker, 600.0))
    for name, health in (("rack1-ok", "ok"), ("rack1-ill", "critical"), ("rack1-drive", "warning")):
        parts = [{"component": "drive", "name": "Disk 1", "health": "critical"}] if health == "warning" else []
        report = {"state": health, "parts": parts, "complete": True}
        service.learn(add(service, name), {"memory": {"physical_mb": 1024}}, {"out_of_band": {"health": report}})
    add(service, "gone", orphaned_at=1.0)
    add(service, "new", inbox=True, auto_discovered=True)
    failed(service, "slow", Reason.TIMEOUT)
    expect(service, "health.state == ok")
    browser = Browser(service).log_in("root")
    assert until(lambda: len(links_of(browser.get("/ui").text)) == 7)
    page = browser.get("/ui").text
    assert {text: names_of(browser.get(link).text) for text, link in links_of(page).items()} == {
        "1 machine has the error timeout: slow": ["slow"],
        "BMCs that do not respond: 192.0.2.9": ["mute"],
        "Some nodes no longer exist in the registry": ["gone"],
        "1 machine reports a drive that is failing": ["rack1-drive"],
        "1 machine reports critical health": ["rack1-ill"],
        "1 machine waits for approval": ["new"],
        "The hardware of 2 machines is not as expected": ["rack1-drive", "rack1-ill"],
    }
    deviating = browser.get(links_of(page)["The hardware of 2 machines is not as expected"]).text
    assert "health.state: warning, critical" in deviating
    ill = browser.get("/ui/machines/rack1-ill").text
    assert "health.state == ok" in Elements(ill).text
    assert names_of(browser.get("/ui/machines?inbox=yes&q=n*+or+has+uuid").text) == ["new"]


def test_deviations_are_seen_by_those_who_may_see_inventories(service: Service) -> None:
    service.learn(add(service, "leased", owner="b", attributes={"lessee": "a"}), {"memory": {"physical_mb": 1024}}, {})
    expect(service, "memory >= 900TB")
    for who, seen in (("root", True), ("a-reader", False)):
        browser = Browser(service).log_in(who)
        found = [browser.get(path).text for path in ("/ui/machines/leased", "/ui/machines?c=deviations")]
        found.append(browser.get("/ui/machines?format=csv").text)
        assert ["900TB" in page for page in found] == [seen] * 3, who
        assert names_of(browser.get("/ui/machines?q=deviating+%3D%3D+yes").text) == (["leased"] if seen else [])


def names_of(page: str) -> list[str]:
    """Return the names of the machines in a list, sorted."""
    return sorted(re.findall(r'<th scope="row"><a href="/ui/machines/[^"]*"><bdi>([^<]*)</bdi>', page))


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

    assert until(lambda: 'name="labels"' in browser.get("/ui/machines").text)
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


def test_a_machine_has_its_hardware_timeline_history_and_raw_data(service: Service) -> None:
    uuid = add(service, "one")
    mac = examples.mac()
    for serial in ("FIRST", "SECOND"):
        call_back(service, uuid, mac, serial=serial, disks=[{"name": "/dev/sda", "size": 480_000_000_000}])
        service.finish(uuid)
    browser = Browser(service).log_in("reader")
    page = browser.get(f"/ui/machines/{uuid}")
    assert page.status_code == 200
    for text in ("SECOND", "480 GB", mac, "16 GiB"):
        assert text in page.text, text
    assert f'data-copy="{uuid}"' in page.text
    assert 'data-copy="SECOND"' in page.text
    assert browser.get("/ui/machines/one").status_code == 200
    assert re.findall(r'tab=(\w+)"[^>]*>[^<]* <span class="count">(\d+)<', page.text) == [
        ("timeline", "2"),
        ("history", "2"),
    ]
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


def test_a_machine_shows_who_changed_it_by_which_process_and_where_it_is_in_the_api(service: Service) -> None:
    uuid = add(service, "one")
    root, member = (Browser(service).log_in(name) for name in ("root", "a-member"))
    root.post("/ui/machines/act", action="inspect", node=uuid, confirm="yes")
    service.alter(uuid, owner="a")
    assert "PUT /v1/nodes/{node}/states/provision" in root.get(f"/ui/machines/{uuid}?tab=audit").text
    assert "You may not see who changed" in member.get(f"/ui/machines/{uuid}?tab=audit").text
    assert f'href="/v1/nodes/{uuid}"' in root.get(f"/ui/machines/{uuid}?tab=hardware").text
    assert "api-test" in root.get(f"/ui/machines/{uuid}?tab=timeline").text


def test_every_table_has_a_name_and_nothing_that_counts_seconds_is_in_a_live_region() -> None:
    texts = [file.read_text(encoding="utf-8") for file in (render.FOLDER / "templates").glob("*.html")]
    tables = [tag for text in texts for tag in re.findall(r"<table[^>]*", text)]
    live = [line for text in texts for line in text.splitlines() if re.search(r'role="(status|alert)"|aria-live', line)]
    assert tables
    assert live
    assert [tag for tag in tables if "aria-label" not in tag] == []
    assert [line for line in live if re.search(r"m\.(ago|left)\(", line)] == []


def test_a_machine_shows_its_health_with_problems_first(service: Service) -> None:
    uuid, root = add(service, "one"), {"X-Auth-Token": "root"}
    call_back(service, uuid, examples.mac())
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
    assert "The last inspection did not read it" in kept
    assert "<b>Disk" not in page
    assert "<i>is" not in page
    service.learn(uuid, {}, plugin_data)
    codes = {one["code"] for one in service.bare_metal.get("/v1/status", headers=root).json["problems"]}
    assert codes >= {"health-critical", "drives-failing"}


def test_a_machine_shows_what_its_collectors_found(service: Service) -> None:
    uuid = add(service, "one")
    call_back(service, uuid, examples.mac())
    found = {"exit_code": 1, "data": {"/dev/sda": "failed", "<b>": 7}, "error": "/dev/sda has failed"}
    service.finish(uuid, {"collectors": {"smart": found}})
    page = Browser(service).log_in("reader").get(f"/ui/machines/{uuid}?tab=hardware").text
    text = Elements(page).text
    for words in ("Collectors (2)", "smart", "/dev/sda", "failed", "7", "/dev/sda has failed"):
        assert words in text
    assert "<b>" not in page


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


@pytest.mark.parametrize(
    ("ago", "shown"),
    [(25.0, r"[123]?\d s"), (65.0, "any moment"), (400.0, "late by")],
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
        assert re.match(shown, left), (who, left)


def test_rules_are_explained_on_a_machine(service: Service) -> None:
    root = {"X-Auth-Token": "root"}
    uuid = add(service, "one")
    browser = Browser(service).log_in("root")
    assert "no stored inspection data" in browser.get(f"/ui/machines/{uuid}?tab=rules").text
    log = gzip.compress(b"not an archive")
    call_back(service, uuid, examples.mac(), serial="S-1", logs=base64.b64encode(log).decode())
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
    assert "may not test rules" in Browser(service).log_in("reader").get(f"/ui/machines/{uuid}?tab=rules").text
    page = browser.get(f"/ui/machines/{uuid}?tab=log")
    assert "not an archive of texts" in page.text
    download = browser.get(f"/ui/machines/{uuid}?download=log")
    assert download.content == log
    assert download.headers["Content-Disposition"].startswith("attachment")
