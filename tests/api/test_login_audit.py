"""Who logs in, out, or fails to has an audit event, on the page and in both APIs, and a flood fills nothing."""

from __future__ import annotations

import base64
from collections.abc import Callable
from functools import partial
from pathlib import Path

import bcrypt
import pytest

from ferroscope.api.auth import issued as tokens
from ferroscope.api.http import audit as http_audit
from ferroscope.api.http.audit import Audit
from ferroscope.config.options import AuditSettings
from ferroscope.contrib.ui import session
from ferroscope.core.audit import AuditEvent, shown_claim
from tests.api.browsing import Browser
from tests.api.service import Service
from tests.support.manual_clock import ManualClock
from tests.support.processes import until

ATTACKER, HOME = "198.51.100.66", "192.0.2.7"


@pytest.fixture
def make(sqlite_url: str, tmp_path: Path) -> Callable[..., Service]:
    """Return a function that makes a service with the users alice and bob, whose password is their name."""
    file = tmp_path / "users"
    lines = [f"{name}:{bcrypt.hashpw(name.encode(), bcrypt.gensalt(4)).decode()}:admin\n" for name in ("alice", "bob")]
    file.write_text("".join(lines))
    return partial(Service, sqlite_url, auth_strategy="http_basic", http_basic_auth_user_file=str(file))


def basic(user: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


def events(service: Service) -> list[AuditEvent]:
    """Return all events, the oldest first."""
    return list(service.store.read(lambda tx: tx.audit.list(limit=1000)))[::-1]


def short(service: Service) -> list[tuple[str, str, str, int, str]]:
    return [(one.call, one.user, one.method, one.status, one.source) for one in events(service)]


def log_in(browser: Browser, user: str, password: str) -> int:
    browser.token = browser.csrf()
    return int(browser.post("/ui/login", user=user, password=password).status_code)


def test_logins_and_logouts_of_the_page_have_events(make: Callable[..., Service]) -> None:
    service = make()
    browser = Browser(service, HOME)
    assert log_in(browser, "alice", "wrong") == 401
    assert log_in(browser, "mallory\x00\n\x1b[31m" + "x" * 500, "wrong") == 401
    assert log_in(browser, "alice", "alice") == 303
    browser.token = browser.csrf("/ui")
    assert browser.post("/ui/logout").status_code == 303
    assert browser.post("/ui/logout", csrf=browser.csrf()).status_code == 303  # nobody is logged in any more
    odd = r"mallory\x00\n\x1b[31m" + "x" * 43 + "..."
    assert short(service) == [
        ("login", "alice", "none", 401, HOME),
        ("login", odd, "none", 401, HOME),
        ("login", "alice", "http_basic", 303, HOME),
        ("logout", "alice", "http_basic", 303, HOME),
    ]
    assert len({one.request_id for one in events(service)}) == 4


def test_tokens_at_the_page_are_named_by_their_id(make: Callable[..., Service]) -> None:
    service = make()
    browser = Browser(service, HOME)
    for token in ("fst_0123456789ab_" + "s" * 43, "fst_nonsense"):
        browser.token = browser.csrf()
        assert browser.post("/ui/login", token=token).status_code == 401
    assert browser.get("/ui", headers=basic("alice", "wrong")).status_code == 303
    assert [one.user for one in events(service)] == ["token 0123456789ab", "unknown", "alice"]
    assert "sss" not in str(events(service))


def test_both_apis_record_who_was_tried_and_who_logs_in_with_a_password(make: Callable[..., Service]) -> None:
    service = make()
    bare_metal, introspection = service.bare_metal, service.introspection
    assert bare_metal.get("/v1/nodes", headers=basic("root", "x"), remote_addr=HOME).status_code == 401
    for _ in range(3):  # the second time, the password is remembered
        assert bare_metal.get("/v1/nodes", headers=basic("bob", "bob"), remote_addr=HOME).status_code == 200
    wrong = {"X-Auth-Token": "fst_0123456789ab_" + "s" * 43}
    assert introspection.get("/v1/introspection", headers=wrong, remote_addr=HOME).status_code == 401
    assert introspection.get("/v1/introspection", headers=basic("alice", "alice"), remote_addr=HOME).status_code == 200
    assert short(service) == [
        ("GET /v1/nodes", "root", "none", 401, HOME),
        ("login", "bob", "http_basic", 200, HOME),
        ("GET /v1/introspection", "token 0123456789ab", "none", 401, HOME),
        ("login", "alice", "http_basic", 200, HOME),
    ]


def test_a_session_that_ends_with_its_password_or_is_the_oldest_has_an_event(
    make: Callable[..., Service], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "MAX_SESSIONS", 1)
    service = make()
    first, second = Browser(service, HOME), Browser(service, HOME)
    assert [log_in(one, "alice", "alice") for one in (first, second)] == [303, 303]
    file = tmp_path / "users"
    file.write_text("".join(line for line in file.read_text().splitlines(keepends=True) if line.startswith("bob")))
    assert until(lambda: second.get("/ui").status_code == 303)
    assert first.get("/ui").status_code == 303
    calls = [(one.call, one.target, one.status, one.user) for one in events(service)]
    assert calls[0] == ("login", "web page", 303, "alice")
    assert sorted(calls[1:3]) == [("login", "web page", 303, "alice"), ("logout", "oldest session", 200, "alice")]
    assert calls[3:] == [("logout", "web page", 401, "alice")]


def test_a_flood_is_counted_and_never_fills_the_database(make: Callable[..., Service]) -> None:
    service, clock = make(), ManualClock()
    audit = Audit(AuditSettings(), service.store, clock, process="api")
    event = AuditEvent(request_id="r", user="mallory", method="none", call="login", source=ATTACKER, status=401)
    day = 24 * 60
    for minute in range(day):
        for _ in range(3):
            audit.write_refusal(event)
        if minute % 2:
            clock.now += 120.0
            audit.write_counts()
    found = service.store.read(lambda tx: list(tx.audit.list(limit=100_000)))
    counted = [one for one in found if one.call == "refused"]
    assert len(found) - len(counted) <= http_audit._BURST_EVENTS_BY_SOURCE + day
    assert len(counted) <= day
    assert sum(int(one.target.split()[0]) for one in counted) + len(found) - len(counted) == 3 * day
    assert {(one.source, one.status, one.user) for one in counted} == {(ATTACKER, 429, "unknown")}


def test_many_sources_are_told_apart_up_to_a_number(make: Callable[..., Service]) -> None:
    service, clock = make(), ManualClock()
    audit = Audit(AuditSettings(), service.store, clock, process="api")
    for number in range(500):
        audit.count(f"198.51.{number >> 8}.{number & 255}")
    audit.write_counts()
    assert events(service) == []
    clock.now += 61.0
    audit.write_counts()
    audit.write_counts()
    found = events(service)
    assert len(found) == http_audit._MAX_COUNTED_SOURCES + 1
    assert sum(int(one.target.split()[0]) for one in found) == 500


def test_logins_that_are_refused_by_a_limit_are_only_counted(
    make: Callable[..., Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_audit, "_COUNT_SECONDS", 0.0)
    service = make(failure_rate=0.0001)

    def get(password: str) -> int:
        headers = basic("alice", password)
        return int(service.bare_metal.get("/v1/nodes", headers=headers, remote_addr=ATTACKER).status_code)

    assert [get(f"guess{number}") for number in range(25)] == [401] * 20 + [429] * 5
    assert service.bare_metal.get("/healthcheck").status_code == 200
    found = short(service)
    assert found[:20] == [("GET /v1/nodes", "alice", "none", 401, ATTACKER)] * 20
    counted = [one for one in events(service) if one.call == "refused"]
    assert sum(int(one.target.split()[0]) for one in counted) == 5
    assert len(found) == 20 + len(counted)


def test_anonymous_calls_hide_neither_tried_names_nor_what_users_are_refused(make: Callable[..., Service]) -> None:
    service = make()
    get = service.bare_metal.get
    for number in range(200):
        assert get("/v1/nodes", remote_addr=ATTACKER).status_code == 401
        assert get("/v1/nodes", remote_addr=f"198.51.100.{number}").status_code == 401
    for name in ("root", "admin"):
        assert get("/v1/nodes", headers=basic(name, "x"), remote_addr=ATTACKER).status_code == 401
    browser = Browser(service, ATTACKER)
    assert log_in(browser, "alice", "wrong") == 401
    audit = Audit(AuditSettings(), service.store, ManualClock(), process="api")
    for _ in range(200):  # and tried names do not hide what users are refused
        audit.write_refusal(AuditEvent(request_id="r", user="root", method="none", source=ATTACKER, status=401))
    audit.write_refusal(AuditEvent(request_id="r", user="bob", method="http_basic", source=ATTACKER, status=403))
    named = [one.user for one in events(service) if one.user != "unknown"]
    assert named[:3] == ["root", "admin", "alice"]
    assert named[-1] == "bob"
    assert len(named) == 3 + http_audit._BURST_EVENTS_BY_SOURCE + 1


def test_a_user_who_logs_in_all_the_time_fills_nothing_and_hides_nobody(make: Callable[..., Service]) -> None:
    service, clock = make(), ManualClock()
    audit = Audit(AuditSettings(), service.store, clock, process="api")
    for user in ("bob", "alice"):
        for _ in range(100):
            audit.logged_in(AuditEvent(request_id="r", user=user, method="http_basic", call="login", source=HOME))
    users = [one.user for one in events(service)]
    assert users.count("bob") == users.count("alice") == http_audit._BURST_EVENTS_BY_SOURCE


def test_commands_that_create_and_revoke_tokens_have_events(make: Callable[..., Service]) -> None:
    service = make()
    issued = tokens.create(service.store, "monitoring", ["reader"], audited=True)
    tokens.revoke(service.store, "monitoring", audited=True)
    created, revoked = events(service)
    target = f"monitoring (ID {issued.token.id})"
    assert (created.call, created.method, created.target, created.status) == ("token create", "host", target, 201)
    assert (revoked.call, revoked.method, revoked.target, revoked.status) == ("token revoke", "host", target, 200)
    assert "@" in created.user
    assert issued.text.partition(f"{issued.token.id}_")[2] not in str(events(service))


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("", "unknown"),
        ("\u202eecila", r"\u202eecila"),
        ("\udc80", r"\udc80"),
        ("x" * 65, "x" * 64 + "..."),
    ],
)
def test_a_name_that_was_tried_is_cut_and_escaped(name: str, shown: str) -> None:
    assert shown_claim(name) == shown
