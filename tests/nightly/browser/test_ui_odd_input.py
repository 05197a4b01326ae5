"""What is unusual: what machines report, wrong clocks, sessions and connections that end, and going back."""

from __future__ import annotations

from typing import Any

import pytest

from ferroscope.contrib.ui import app, render
from ferroscope.core.delivery import Fail
from ferroscope.core.states import Event
from ferroscope.runtime.system import SystemClock
from ferroscope_client.core.reasons import Reason
from ferroscope_sim.inventory.body import document
from tests.api.browsing import add
from tests.api.service import Service
from tests.nightly.browser.conftest import SIZES, log_in, set_value, too_wide
from tests.support.browser import Chromium
from tests.support.databases import fresh
from tests.support.fleet_stage import inspected, stage
from tests.support.processes import until
from tests.support.servers import Server

# Markup, text that runs from right to left or says so, and characters of several code points.
ODD = (
    "<img src=x onerror=alert(1)>\"'&amp; \u202egnp.exe\u202c \U0001f525\U0001f468\u200d\U0001f469 "
    "\u0645\u0631\u062d\u0628\u0627 "
)


def back(browser: Chromium) -> None:
    """Go back, as the button of the browser does."""
    known = browser.command("Page.getNavigationHistory")
    before = known["entries"][known["currentIndex"] - 1]["id"]
    browser.command("Page.navigateToHistoryEntry", entryId=before)


def failed(service: Service, name: str, message: str) -> str:
    uuid = service.enrol(name=name)
    service.wait(uuid)
    service.step(uuid, Event.FAIL, Fail(Reason.RAMDISK_ERROR, message))
    return uuid


def monster() -> dict[str, Any]:
    """Return the body of a machine with many parts, and with names that nobody expects."""
    body = document(40)
    inventory: dict[str, Any] = body["inventory"]
    nic, disk = inventory["interfaces"][0], inventory["disks"][0]
    macs = [f"02:aa:00:00:{number // 256:02x}:{number % 256:02x}" for number in range(512)]
    inventory["interfaces"] = [nic | {"name": f"eth{at}", "mac_address": mac} for at, mac in enumerate(macs)]
    inventory["disks"] = [disk | {"name": f"/dev/sd{number}", "serial": f"{ODD}{number}"} for number in range(200)]
    inventory["system_vendor"] |= {"product_name": ODD * 20, "serial_number": (ODD * 10)[:255]}
    return body


def test_what_machines_say_fits_on_every_page_and_is_only_text(browser: Chromium, sqlite_url: str) -> None:
    with stage(sqlite_url) as (base, service):
        body = monster()
        many = service.enrol(name="many", labels={"rack": "x" * 63, "role": "y" * 63})
        service.wait(many, mac=body["inventory"]["interfaces"][0]["mac_address"])
        inspected(service, many, body)
        bad = failed(service, ("n" + "a1-" * 90)[:255], (ODD * 200)[:4096])
        paths = ("/ui", "/ui/machines", "/ui/machines?reason=ramdisk-error", f"/ui/machines/{bad}", "/ui/wiring",
                 f"/ui/machines/{many}", f"/ui/machines/{many}?tab=raw")  # fmt: skip
        wrong = []
        for path in paths:
            for width, height in SIZES:
                browser.shape(width, height)
                browser.go(base + path)
                wrong += [f"{path} at {width}"] if too_wide(browser) else []
        assert wrong == []
        assert browser.complaints == []  # an image that is asked for is one
        browser.go(f"{base}/ui/machines/{many}")
        assert "Network interfaces (512)" in browser.text()
        assert "Disks (200)" in browser.text()


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_a_long_cause_leaves_the_remedies_in_sight(browser: Chromium, sqlite_url: str, width: int, height: int) -> None:
    with stage(sqlite_url) as (base, service):
        bad = failed(service, "bad", ("no disk was found on this controller " * 120)[:4000] + "the end")
        browser.shape(width, height)
        browser.go(f"{base}/ui/machines/{bad}")
        button = "document.querySelector('.toolbar button[value=inspect]').getBoundingClientRect()"
        assert browser.evaluate(f"{button}.bottom <= innerHeight")
        browser.evaluate("document.querySelector('.cause + details').open = true")
        assert "the end" in browser.text()


# Days by which a clock is wrong.
@pytest.mark.parametrize("days", [3, -3])
@pytest.mark.parametrize("whose", ["browser", "server"])
def test_wrong_clocks_show_the_same_ages(
    browser: Chromium, sqlite_url: str, monkeypatch: pytest.MonkeyPatch, whose: str, days: int
) -> None:
    if whose == "server":  # that of the database is right
        real = SystemClock.time
        monkeypatch.setattr(SystemClock, "time", lambda _: real() + days * 86400)
    with stage(sqlite_url) as (base, service):
        bad = failed(service, "bad", "no disk")
        service.wait(service.enrol(name="busy"))
        off = days if whose == "browser" else 0
        wrong = f"{{const now = Date.now; Date.now = () => now() + {off} * 86400e3; window.turns = 0;"
        counted = (
            "const every = setInterval; window.setInterval = (work, time) => every(() => {work(); turns += 1}, time);}"
        )
        browser.command("Page.addScriptToEvaluateOnNewDocument", source=wrong + counted)
        browser.command("Emulation.setTimezoneOverride", timezoneId="Pacific/Kiritimati")
        for path in (f"/ui/machines/{bad}?tab=raw", "/ui/machines?reason=ramdisk-error", "/ui"):
            browser.go(base + path)
            assert until(lambda: browser.evaluate("turns > 0"))
            for again in (False, True):
                if again:
                    browser.evaluate("refresh(document.getElementById('main')).then(() => showAges())")
                ages = browser.evaluate("[...document.querySelectorAll('time[data-age]')].map(one => one.textContent)")
                assert ages
                assert not any(" d" in one or " h" in one for one in ages), ages


def test_a_window_follows_who_has_logged_in_in_another_one(
    browser: Chromium, sqlite_url: str, users: dict[str, str]
) -> None:
    def elsewhere(path: str, **fields: str) -> None:
        """Send a form as another window of this browser does."""
        given = "&".join(f"{name}={value}" for name, value in fields.items())
        token = "new DOMParser().parseFromString(text, 'text/html').querySelector('[name=csrf]').value"
        browser.evaluate(
            f"fetch('/ui/login').then(one => one.text()).then(text => fetch('{path}', {{method: 'POST', headers: "
            f"{{'Content-Type': 'application/x-www-form-urlencoded'}}, body: 'csrf=' + {token} + '&{given}'}}))"
            ".then(one => one.status)"
        )

    with stage(sqlite_url, **users) as (base, service):
        uuid = add(service, "one")
        browser.go(f"{base}/ui/machines/{uuid}")
        log_in(browser)
        browser.go(f"{base}/ui/machines/{uuid}")
        browser.evaluate("document.querySelector('.notes').open = true")
        set_value(browser, "note", "long in the making")
        elsewhere("/ui/logout")
        elsewhere("/ui/login", user="bob", password="secret")
        browser.click(".notes form.search button")
        assert "it would be sent as bob" in browser.text()
        browser.go(f"{base}/ui/machines/{uuid}")
        assert "long in the making" not in browser.text()
        elsewhere("/ui/logout")
        elsewhere("/ui/login", user="alice", password="secret")
        assert browser.evaluate("document.querySelector('.who span').textContent") == "bob"
        assert browser.evaluate("refresh(document.getElementById('main'))") is True
        assert browser.evaluate("document.querySelector('.who span').textContent") == "alice"


def test_a_page_that_is_open_over_an_upgrade_gets_the_script_of_the_new_release(
    browser: Chromium, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with stage(sqlite_url) as (base, service):
        uuid = service.enrol(name="one", driver="fake-hardware")
        browser.go(f"{base}/ui/machines/{uuid}")
        browser.evaluate("window.old = true; document.getElementById('note').value = 'long in the making'")
        monkeypatch.setattr(app, "__version__", "99.0")
        real = render.static_file

        def newer(name: str) -> tuple[bytes, str] | None:
            return None if (found := real(name)) is None else (found[0] + b"\n", "0" * 24)

        monkeypatch.setattr(render, "static_file", newer)
        refresh = "refresh(document.getElementById('main')).then(() => true)"
        assert browser.evaluate(refresh) is True
        assert browser.evaluate("document.getElementById('note').value") == "long in the making"
        set_value(browser, "note", "")
        browser.evaluate(f"setTimeout(() => {refresh}) > 0")
        assert until(lambda: browser.evaluate("window.old ?? false") is False)
        assert until(lambda: "99.0" in browser.evaluate("document.querySelector('footer')?.innerText ?? ''"))
        assert browser.complaints == []


def test_going_back_after_an_action_leads_to_the_page_before_it(browser: Chromium, sqlite_url: str) -> None:
    with stage(sqlite_url) as (base, service):
        uuid = failed(service, "bad", "no disk")
        browser.go(f"{base}/ui/machines/{uuid}")
        browser.click(".toolbar button[value=maintenance]")
        browser.click("main form button.primary")
        assert "In maintenance" in browser.text()
        back(browser)
        assert until(lambda: browser.evaluate("location.pathname") == f"/ui/machines/{uuid}")
        assert until(lambda: "bad" in browser.text())  # and not the browser's question whether to send the form again


def test_what_is_half_entered_stays_while_there_is_news(browser: Chromium, sqlite_url: str) -> None:
    """The form of a machine whose BMC has to be corrected is open, and whoever types there may look elsewhere."""
    with stage(sqlite_url) as (base, service):
        uuid = service.enrol(name="wrong", driver="fake-hardware")
        service.wait(uuid)
        service.step(uuid, Event.FAIL, Fail(Reason.BMC_CREDENTIALS, "HTTP 401"))
        browser.go(f"{base}/ui/machines/{uuid}")
        for field, value in (("bmc_address", "192.0.2.99"), ("note", "the label is wrong")):
            browser.evaluate(f"document.getElementById('{field}').value = '{value}'")
        browser.evaluate("document.activeElement.blur()")
        service.bare_metal.put(f"/v1/nodes/{uuid}/maintenance", {"reason": "news"})
        assert browser.evaluate("refresh(document.getElementById('main'))") is True
        assert browser.evaluate("document.getElementById('bmc_address').value") == "192.0.2.99"
        assert "In maintenance" not in browser.text()
        for field in ("bmc_address", "note"):
            browser.evaluate(
                f"document.getElementById('{field}').value = document.getElementById('{field}').defaultValue"
            )
        assert browser.evaluate("refresh(document.getElementById('main'))") is True
        assert "In maintenance" in browser.text()
        assert browser.evaluate("document.querySelector('.remedy details').open") is True
        assert browser.complaints == []


def test_a_form_stays_while_the_service_is_away(browser: Chromium, sqlite_url: str) -> None:
    def away(offline: bool) -> None:
        limits = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
        browser.command("Network.emulateNetworkConditions", offline=offline, **limits)

    with stage(sqlite_url) as (base, _):
        browser.go(f"{base}/ui/rules/new")
        set_value(browser, "description", "long in the making")
        away(True)
        save = "#rule-form button[value=save]"
        browser.evaluate(f"document.querySelector('{save}').click()")
        assert until(lambda: "Not sent: the service does not answer" in browser.text())
        assert browser.evaluate("document.getElementById('description').value") == "long in the making"
        away(False)
        browser.click(save)
        assert "The rule is saved" in browser.text()
        assert "long in the making" in browser.evaluate("document.title")


def test_a_page_and_its_forms_survive_a_database_that_is_down(browser: Chromium, postgresql_server: Server) -> None:
    with fresh(postgresql_server) as url, stage(url) as (base, service):
        uuid = service.enrol(name="one", driver="fake-hardware")
        browser.go(f"{base}/ui/machines/{uuid}")
        browser.evaluate("document.querySelector('.notes').open = true")
        set_value(browser, "note", "long in the making")
        postgresql_server.stop()
        browser.evaluate("document.querySelector('.notes form.search button').click()")
        assert until(lambda: "Not sent: the service cannot reach its database" in browser.text())
        assert browser.evaluate("document.getElementById('note').value") == "long in the making"
        why = "refresh(document.getElementById('main')).catch(error => WHY[error.message])"
        assert "database" in browser.evaluate(why)
        browser.go(f"{base}/ui/machines")
        assert "Temporarily unavailable" in browser.text()
        postgresql_server.start()
        browser.go(f"{base}/ui/machines/{uuid}")
        browser.evaluate("document.querySelector('.notes').open = true")
        set_value(browser, "note", "long in the making")
        browser.click(".notes form.search button")
        assert "long in the making" in browser.text()
        assert [one for one in browser.complaints if " 503 " not in one] == []
