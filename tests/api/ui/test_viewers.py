"""What many viewers of a page share while it looks for news of itself, and what is each one's own."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from ferroscope.api.auth.identity import local
from ferroscope.contrib.ui import machines
from ferroscope.contrib.ui.machine_list import Wanted
from ferroscope.contrib.ui.page import Visit
from tests.api.browsing import IDENTITIES, Browser, add
from tests.api.callers import service_for
from tests.api.service import Service

OLD = {"If-None-Match": '"an-earlier-one"'}
READERS = IDENTITIES | {"other": local("rita <i>", "token", ["reader"])}


@pytest.fixture
def service(sqlite_url: str) -> Iterator[Service]:
    served = service_for(sqlite_url, READERS)
    yield served
    served.close()


def machines_of(page: str) -> list[str]:
    return re.findall(r"<bdi>(m-[a-z0-9]+)</bdi>", page)


def test_a_list_is_made_once_for_all_who_may_see_the_same(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    real = machines._list

    def counted(visit: Visit, wanted: Wanted) -> object:
        made.append(visit.identity.user)
        return real(visit, wanted)

    monkeypatch.setattr(machines, "_list", counted)
    add(service, "m-ours", owner="a")
    add(service, "m-theirs", owner="b")
    reader, other, ours = (Browser(service).log_in(user) for user in ("reader", "other", "a-reader"))
    pages = [browser.get("/ui/machines", headers=OLD) for browser in (reader, other, ours, ours)]
    assert made == ["reader", "arno"]
    assert [machines_of(page.text) for page in pages[1:3]] == [["m-ours", "m-theirs"], ["m-ours"]]
    for browser, page, name in ((reader, pages[0], "reader"), (other, pages[1], "rita &lt;i&gt;")):
        assert f"<span>{name}</span>" in page.text
        assert f'name="csrf" value="{browser.token}"' in page.text
        assert f'data-tag="{page.headers["ETag"][1:-1]}"' in page.text
    assert pages[0].headers["ETag"] != pages[1].headers["ETag"]
    assert "m-theirs" not in other.get("/ui/machines?q=m-ours", headers=OLD).text


def test_who_opens_the_list_sees_it_as_it_is(service: Service) -> None:
    add(service, "m-a")
    browser = Browser(service).log_in("reader")
    assert machines_of(browser.get("/ui/machines", headers=OLD).text) == ["m-a"]
    add(service, "m-b")
    assert machines_of(browser.get("/ui/machines").text) == ["m-a", "m-b"]


def test_saved_searches_are_their_owners(service: Service) -> None:
    add(service, "m-a")
    reader, other = (Browser(service).log_in(user) for user in ("reader", "other"))
    reader.post("/ui/machines/saved", name="my <b>", q="m-a")
    pages = [browser.get("/ui/machines", headers=OLD) for browser in (reader, other)]
    assert ["my &lt;b&gt;" in page.text for page in pages] == [True, False]
    known = {"If-None-Match": pages[0].headers["ETag"]}
    assert reader.get("/ui/machines", headers=known).status_code == 304
    reader.post("/ui/machines/saved", remove="my <b>")
    assert "my &lt;b&gt;" not in reader.get("/ui/machines", headers=known).text


def test_a_project_of_an_odd_name_gets_no_labels_of_others(sqlite_url: str) -> None:
    service = service_for(sqlite_url, READERS | {"none": local("nora", "token", ["reader"], project="None")})
    add(service, "m-theirs", owner="b", labels={"secret-rack": "r9"})
    add(service, "m-ours", owner="None", labels={"ours": "1"})
    assert "secret-rack" in Browser(service).log_in("reader").get("/ui/machines").text
    page = Browser(service).log_in("none").get("/ui/machines").text
    assert "ours" in page
    assert "secret-rack" not in page
    service.close()
