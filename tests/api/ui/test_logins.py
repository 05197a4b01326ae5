"""Logins and sessions of browsers, and what is shared between those who see the same."""

from __future__ import annotations

import re
from pathlib import Path

import bcrypt
import pytest

from ferroscope.api.auth.identity import local
from ferroscope.contrib.ui import session
from ferroscope.contrib.ui.render import Rendered
from tests.api.browsing import IDENTITIES, SAME, Browser, add
from tests.api.callers import service_for
from tests.api.service import Service


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


def test_a_role_that_is_taken_away_while_a_page_is_open_takes_its_buttons(sqlite_url: str) -> None:
    roles = {"ada": local("ada", "token", ["admin"])}
    service = service_for(sqlite_url, roles)
    uuid = add(service, "m-a")
    browser = Browser(service).log_in("ada")
    for path in ("/ui/machines", f"/ui/machines/{uuid}", "/ui/inbox"):
        roles["ada"] = local("ada", "token", ["admin"])
        opened = browser.get(path)
        assert opened.status_code == 200
        roles["ada"] = local("ada", "token", ["reader"])
        look = browser.get(path, headers={"If-None-Match": opened.headers["ETag"]})
        assert (look.status_code, 'name="action"' in look.text) == (200, False)
    answer = browser.post("/ui/machines/act", action="delete", node=uuid, confirm="yes")
    assert answer.status_code == 403
    assert service.node(uuid)


def test_rendered_pages_are_kept_for_a_moment_and_few_of_them() -> None:
    rendered = Rendered()

    def look(key: str, moment: float) -> str:
        return rendered.get(key, moment, f"{key} at {moment}".encode).decode()

    assert [look("a", moment) for moment in (0.0, 1.9, 2.0)] == ["a at 0.0", "a at 0.0", "a at 2.0"]
    for number in range(100):
        look(str(number), 3.0)
    assert look("a", 3.0) == "a at 2.0"
    assert len(rendered._pages) <= 16
    assert (look("b", 9.0), look("b", 10.0)) == ("b at 9.0", "b at 9.0")  # what is old makes room


def test_what_was_entered_when_a_session_ended_is_sent_after_the_next_login(service: Service) -> None:
    uuid = add(service, "here")
    browser, password = Browser(service).log_in("root"), "secret-of-the-bmc"
    service.store.write(lambda tx: tx.web_sessions.remove_ended(tx.now + 8 * 3600 + 1, 100))
    late = browser.post(f"/ui/machines/{uuid}/notes", text="the fan rattles", also=password)
    assert late.status_code == 401
    assert "Your input is kept" in late.text
    assert not any(one in late.text for one in ("rattles", password))
    sealed = kept(late.text)
    wrong = browser.post("/ui/login", token="nobody", kept=sealed)
    assert (wrong.status_code, kept(wrong.text)) == (401, sealed)
    ready = browser.post("/ui/login", token="root", kept=sealed)
    assert ready.status_code == 200
    assert f'action="/ui/machines/{uuid}/notes"' in ready.text
    assert not any(one in ready.text for one in ("rattles", password))
    assert "rattles" not in browser.get(f"/ui/machines/{uuid}").text
    token = re.search(r'name="csrf" value="([0-9a-f]{64})"', ready.text)
    assert token is not None
    other = browser.post("/ui/machines/act", csrf=token[1], kept=kept(ready.text))
    assert (other.status_code, "another page" in other.text) == (400, True)
    assert browser.post(f"/ui/machines/{uuid}/notes", csrf=token[1], kept=kept(ready.text)).status_code == 303
    assert browser.get(f"/ui/machines/{uuid}").text.count("the fan rattles</bdi>") == 1
    # Neither another browser nor the session before opens it.
    stranger = Browser(service).log_in("root")
    assert stranger.post(f"/ui/machines/{uuid}/notes", kept=kept(ready.text)).status_code == 400


def test_a_form_of_another_window_in_which_somebody_else_has_logged_in_is_asked_about(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    uuid = add(service, "here")
    browser = Browser(service).log_in("root")
    before = browser.token
    browser.post("/ui/logout")
    browser.log_in("root")  # another session, in another window
    late = browser.post(f"/ui/machines/{uuid}/notes", csrf=before, text="the fan rattles")
    assert (late.status_code, "sent as <strong>root</strong>" in late.text) == (409, True)
    assert "rattles" not in late.text + browser.get(f"/ui/machines/{uuid}").text
    assert browser.post(f"/ui/machines/{uuid}/notes", kept=kept(late.text)).status_code == 303
    assert "the fan rattles" in browser.get(f"/ui/machines/{uuid}").text
    assert browser.post(f"/ui/machines/{uuid}/notes", csrf=before, text="x" * 100_000).status_code == 403
    # What proves nothing of where it comes from is refused.
    monkeypatch.delitem(SAME, "Origin")
    monkeypatch.delitem(SAME, "Sec-Fetch-Site")
    assert browser.post("/ui/machines/act", csrf=before).status_code == 403


def kept(page: str) -> str:
    found = re.search(r'name="kept" value="([^"]+)"', page)
    assert found is not None
    return found[1]


def test_what_is_too_long_to_be_kept_is_not_lost_without_a_word(service: Service) -> None:
    browser = Browser(service).log_in("root")
    service.store.write(lambda tx: tx.web_sessions.remove_ended(tx.now + 8 * 3600 + 1, 100))
    late = browser.post("/ui/enroll", text="x" * 100_000)
    assert (late.status_code, "too long to be kept" in late.text) == (401, True)
    assert 'name="kept"' not in late.text


def test_a_user_has_so_many_sessions_and_a_new_login_ends_the_oldest(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "MAX_SESSIONS", 3)
    other = Browser(service).log_in("root")
    browsers = [Browser(service).log_in("reader") for _ in range(5)]
    assert [browser.get("/ui").status_code for browser in browsers] == [303, 303, 200, 200, 200]
    assert other.get("/ui").status_code == 200
    with service.backend.engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM web_sessions").scalar() == 4


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
    browser = Browser(service)
    browser.token = browser.csrf()
    assert browser.post("/ui/login", user="alice", password="wrong").status_code == 401
    evil = browser.post("/ui/login?next=//evil.example/", user="alice", password="secret")
    assert evil.headers["Location"] == "/ui"
    assert "alice" in browser.get("/ui").text
