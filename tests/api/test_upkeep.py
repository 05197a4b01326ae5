"""Notes on machines, and maintenance that ends by itself: in the API, on the page and in the command line."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from ferroscope.api.baremetal.notes import MAX_NOTES
from ferroscope_client.errors import Exit
from tests.api.browsing import IDENTITIES, Browser, add, text_of
from tests.api.callers import As, service_for
from tests.api.commands import Commands
from tests.api.service import Service


@pytest.fixture
def known(sqlite_url: str) -> Service:
    return service_for(sqlite_url, IDENTITIES)


def at(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def test_notes_have_an_author_and_a_number(known: Service) -> None:
    uuid = add(known, "one")
    call = As(known.bare_metal, "root")
    for text in ("DIMM A3 is on its way", "  arrived  "):
        assert call("POST", f"/v1/nodes/{uuid}/notes", {"text": text}).status_code == 201
    notes = call("GET", f"/v1/nodes/{uuid}").json["notes"]
    assert [(one["number"], one["text"], one["by"]) for one in notes] == [
        (1, "DIMM A3 is on its way", "root"),
        (2, "arrived", "root"),
    ]
    assert call("DELETE", f"/v1/nodes/{uuid}/notes/1").status_code == 204
    assert call("DELETE", f"/v1/nodes/{uuid}/notes/1").status_code == 404
    call("POST", f"/v1/nodes/{uuid}/notes", {"text": "again"})
    assert [one["number"] for one in call("GET", f"/v1/nodes/{uuid}").json["notes"]] == [2, 3]
    for number in (3, 2):  # also those of the newest, and of the last one, are not used again
        assert call("DELETE", f"/v1/nodes/{uuid}/notes/{number}").status_code == 204
    assert [one["number"] for one in call("POST", f"/v1/nodes/{uuid}/notes", {"text": "more"}).json["notes"]] == [4]


def test_notes_are_bounded_and_not_for_readers(known: Service) -> None:
    uuid = add(known, "one")
    assert As(known.bare_metal, "reader")("POST", f"/v1/nodes/{uuid}/notes", {"text": "x"}).status_code == 403
    call = As(known.bare_metal, "root")
    for text in ("", "   ", "x" * 2001):
        assert call("POST", f"/v1/nodes/{uuid}/notes", {"text": text}).status_code == 400
    known.alter(
        uuid, attributes={"notes": [{"number": n, "text": "x", "by": "x", "at": at(1)} for n in range(MAX_NOTES)]}
    )
    assert call("POST", f"/v1/nodes/{uuid}/notes", {"text": "x"}).status_code == 409


def test_a_note_is_written_and_deleted_on_the_page(known: Service) -> None:
    uuid = add(known, "one")
    browser = Browser(known).log_in("root")
    browser.post(f"/ui/machines/{uuid}/notes", text="<b>the left PSU</b> hums")
    page = browser.get(f"/ui/machines/{uuid}")
    assert "&lt;b&gt;the left PSU&lt;/b&gt; hums" in page.text
    assert "1 note" in text_of(page)
    assert "the left PSU" in Browser(known).log_in("reader").get(f"/ui/machines/{uuid}").text
    browser.post(f"/ui/machines/{uuid}/notes", remove="1")
    assert "the left PSU" not in browser.get(f"/ui/machines/{uuid}").text


def test_a_maintenance_has_an_end_that_is_shown_and_goes_with_it(known: Service) -> None:
    uuid = add(known, "one")
    call = As(known.bare_metal, "root")
    now = known.store.read(lambda tx: tx.now)
    for wrong in ("tomorrow", at(now - 10), "2020-01-01", "9999-12-31T23:59:59-23:00"):
        assert call("PUT", f"/v1/nodes/{uuid}/maintenance", {"until": wrong}).status_code == 400, wrong
    assert not known.node(uuid).maintenance
    assert call("PUT", f"/v1/nodes/{uuid}/maintenance", {"reason": "fan", "until": at(now + 3600)}).status_code == 202
    shown = call("GET", f"/v1/nodes/{uuid}").json
    assert (shown["maintenance"], shown["maintenance_until"]) == (True, at(int(now + 3600)))
    assert f"until {at(now + 3600)[:10]}" in text_of(Browser(known).log_in("root").get(f"/ui/machines/{uuid}"))
    patch = [{"op": "replace", "path": "/maintenance", "value": False}]
    assert call("PATCH", f"/v1/nodes/{uuid}", patch).json["maintenance_until"] is None
    call("PUT", f"/v1/nodes/{uuid}/maintenance", {"until": at(now + 3600)})
    call("DELETE", f"/v1/nodes/{uuid}/maintenance")
    assert known.node(uuid).attributes == {}


def test_the_page_puts_machines_into_maintenance_for_some_hours(known: Service) -> None:
    uuid = add(known, "one")
    browser = Browser(known).log_in("root")
    assert "after 4 hours" in text_of(browser.post("/ui/machines/act", action="maintenance", node=uuid))
    browser.post("/ui/machines/act", action="maintenance", node=uuid, confirm="yes", reason="fan", hours="4")
    until = datetime.fromisoformat(known.node(uuid).attributes["maintenance_until"]).timestamp()
    assert 3 * 3600 < until - known.store.read(lambda tx: tx.now) <= 4 * 3600
    assert browser.post("/ui/machines/act", action="maintenance", node=uuid, confirm="yes", hours="5").text.count(
        "Invalid"
    )


def test_the_command_line_has_both(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    ferroscope = Commands(service, monkeypatch)
    uuid = service.enrol(name="one")
    assert ferroscope("node", "set", "one", "--maintenance", "--until", "8h", "--reason", "fan").exit_code == Exit.OK
    assert service.node(uuid).attributes["maintenance_reason"] == "fan"
    assert "maintenance_until" in service.node(uuid).attributes
    assert ferroscope("node", "set", "one", "--until", "8h").exit_code == Exit.USAGE
    assert ferroscope("node", "set", "one", "--maintenance", "--until", "soon").exit_code == Exit.USAGE
    assert ferroscope("node", "note", "one", "the", "left", "PSU").exit_code == Exit.OK
    assert "the left PSU" in ferroscope("node", "note", "one").stdout
    assert ferroscope("node", "note", "one", "--delete", "1").exit_code == Exit.OK
    assert "no notes" in ferroscope("node", "note", "one").stdout
