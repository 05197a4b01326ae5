"""What many viewers of a page share while it looks for news of itself, and what is each one's own."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

import pytest
from sqlalchemy import make_url

from ferroscope.api.auth.identity import local
from ferroscope.contrib.ui import machines
from ferroscope.contrib.ui.machine_list import MachineSelection
from ferroscope.contrib.ui.page import Visit
from ferroscope.runtime.system import SystemClock
from tests.api.browsing import IDENTITIES, Browser, add
from tests.api.callers import service_for
from tests.api.service import Service
from tests.support.wire import Wire

OLD = {"If-None-Match": '"an-earlier-one"'}
READERS = IDENTITIES | {
    "other": local("rita <i>", "token", ["reader"]),
    "admin": local("ada", "token", ["admin"]),
    "a-other": local("ari", "token", ["reader"], project="a"),
}


@pytest.fixture
def service(sqlite_url: str) -> Service:
    return service_for(sqlite_url, READERS)


def machines_of(page: str) -> list[str]:
    return re.findall(r"<bdi>(m-[a-z0-9]+)</bdi>", page)


def test_a_list_is_made_once_for_all_who_may_see_the_same(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    real = machines._list

    def counted(visit: Visit, wanted: MachineSelection) -> object:
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


class LaterClock(SystemClock):
    """A clock of which the test says by how many seconds it goes ahead."""

    later = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.later


class Overhearing:
    """A service whose conversation with its database is overheard."""

    def __init__(self, url: str) -> None:
        self._wire = Wire("postgresql", make_url(url).port or 0)
        self._clock = LaterClock()
        there = make_url(url).set(port=self._wire.port).render_as_string(hide_password=False)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("ferroscope.runtime.wiring.SystemClock", lambda: self._clock)
            self.service = service_for(there, READERS)

    def wait(self) -> None:
        """Let the time be over for which anything is shared."""
        self._clock.later += 120.0

    def asked(self, browser: Browser, page: str) -> Counter[str]:
        """Return what the database is asked for one look of a page for news of itself, beside who looks."""
        before = self._wire.overheard()
        assert browser.get(page, headers=OLD).status_code == 200
        found = (self._wire.overheard() - before).statements
        return Counter({kind: number for kind, number in found.items() if kind.startswith("SELECT ")}) - OF_SESSION

    def close(self) -> None:
        self.service.close()
        self._wire.close()


# Each unit of work asks for the time, too.
OF_SESSION = Counter({"SELECT web_sessions": 1, "SELECT (nothing)": 99})


@pytest.fixture
def overhearing(postgresql_url: str) -> Iterator[Overhearing]:
    found = Overhearing(postgresql_url)
    yield found
    found.close()


@pytest.mark.parametrize("page", ["/ui", "/ui/machines", "/ui/inbox", "/ui/service"])
def test_the_second_viewer_asks_the_database_for_nothing_but_what_is_its_own(
    overhearing: Overhearing, page: str
) -> None:
    service = overhearing.service
    for number in range(3):
        add(service, f"m-{number}", owner="a")
    own = Counter({"SELECT saved_searches": 1} if page == "/ui/machines" else {})
    for users in (("root", "admin"), ("a-reader", "a-other"))[: 1 if page == "/ui/service" else 2]:
        first, second = (Browser(service).log_in(user) for user in users)
        overhearing.wait()
        assert overhearing.asked(first, page) > own
        assert overhearing.asked(second, page) == own
