"""Saved searches: each user's own, the same on the page, in the API and in the command line."""

from __future__ import annotations

import html
import re
from urllib.parse import quote

import pytest

from ferroscope.core.saved_search import MAX_SEARCHES
from ferroscope_client.core.reasons import Reason
from ferroscope_client.errors import Exit
from tests.api.browsing import IDENTITIES, Browser, add, failed, text_of
from tests.api.callers import As, service_for
from tests.api.commands import Commands
from tests.api.service import Service


@pytest.fixture
def known(sqlite_url: str) -> Service:
    return service_for(sqlite_url, IDENTITIES)


def test_a_search_is_saved_listed_replaced_and_deleted(known: Service) -> None:
    call = As(known.bare_metal, "reader")
    assert (
        call("PUT", "/v1/saved_searches/big%20ones", {"q": "memory_gb >= 512", "view": "sort=memory"}).status_code
        == 200
    )
    assert call("PUT", "/v1/saved_searches/big%20ones", {"q": "memory_gb >= 1024"}).json["q"] == "memory_gb >= 1024"
    assert call("PUT", "/v1/saved_searches/all", {}).status_code == 200
    found = call("GET", "/v1/saved_searches").json["saved_searches"]
    assert [(one["name"], one["q"], one["view"]) for one in found] == [
        ("all", "", ""),
        ("big ones", "memory_gb >= 1024", ""),
    ]
    assert call("DELETE", "/v1/saved_searches/all").status_code == 204
    assert call("DELETE", "/v1/saved_searches/all").status_code == 404


def test_nobody_sees_the_searches_of_others(known: Service) -> None:
    As(known.bare_metal, "root")("PUT", "/v1/saved_searches/mine", {"q": "vendor == dell"})
    other = As(known.bare_metal, "reader")
    assert other("GET", "/v1/saved_searches").json == {"saved_searches": []}
    assert other("DELETE", "/v1/saved_searches/mine").status_code == 404
    assert As(known.bare_metal, "")("GET", "/v1/saved_searches").status_code == 401


@pytest.mark.parametrize(("name", "q"), [("a" * 65, ""), ("%0A", ""), ("x", "memory ==")])
def test_what_cannot_be_run_or_named_is_refused(known: Service, name: str, q: str) -> None:
    call = As(known.bare_metal, "root")
    assert call("PUT", f"/v1/saved_searches/{name if '%' in name else quote(name)}", {"q": q}).status_code == 400
    assert call("GET", "/v1/saved_searches").json == {"saved_searches": []}


def test_a_user_saves_a_bounded_number(known: Service) -> None:
    call = As(known.bare_metal, "root")
    for number in range(MAX_SEARCHES):
        assert call("PUT", f"/v1/saved_searches/s{number}", {"q": ""}).status_code == 200
    assert call("PUT", "/v1/saved_searches/more", {"q": ""}).status_code == 409
    assert call("PUT", "/v1/saved_searches/s1", {"q": "vendor == dell"}).status_code == 200


def test_the_page_saves_what_it_shows_with_filters_order_and_columns(known: Service) -> None:
    failed(known, "late", Reason.TIMEOUT)
    add(known, "well")
    browser = Browser(known).log_in("root")
    shown = "/ui/machines?reason=timeout&q=driver+%3D%3D+fake-hardware&sort=created_at&dir=desc&c=uuid"
    page = browser.get(shown)
    command = html.unescape(re.search(r'data-copy="(ferroscope search [^"]*)"', page.text)[1])
    assert command == "ferroscope search '(driver == fake-hardware) and reason == timeout'"
    answer = browser.post(
        "/ui/machines/saved", name="late ones", reason="timeout", q="driver == fake-hardware", sort="created_at",
        dir="desc", c=["uuid"], back=shown,
    )  # fmt: skip
    assert (answer.status_code, answer.headers["Location"]) == (303, shown)
    link = html.unescape(re.search(r'<a href="([^"]*)"><bdi>late ones</bdi>', browser.get(shown).text)[1])
    again = browser.get(link)
    assert ("late" in text_of(again), ">well<" in again.text) == (True, False)
    assert 'aria-sort="descending"' in browser.get(link).text or "sort=created_at" in link
    assert "c=uuid" in link
    browser.post("/ui/machines/saved", remove="late ones", back="https://elsewhere.example/")
    assert "late ones" not in browser.get(shown).text


def test_the_command_line_runs_and_saves_them(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    ferroscope = Commands(service, monkeypatch)
    for name in ("a", "b"):
        service.enrol(name=name)
    assert ferroscope("search", "name == a", "--save", "first").exit_code == Exit.OK
    found = ferroscope("search", "--saved", "first", "-o", "json")
    assert ('"a"' in found.stdout, '"b"' in found.stdout) == (True, False)
    wrong = ferroscope("search", "--saved", "frist")
    assert (wrong.exit_code, "first" in wrong.stderr) == (Exit.NOT_FOUND, True)
