"""What one does in a real browser: no console error, no violation of its policy, and each step is accessible."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ferroscope.config.options import KeystoneSettings
from ferroscope.contrib.ui import enroll
from ferroscope_client.core.states import Provision
from tests.nightly.browser.conftest import log_in, set_value, too_wide, violations
from tests.support.browser import Chromium
from tests.support.fleet_stage import fill, stage
from tests.support.processes import free_port, until


def test_machines_are_searched_and_acted_on_between_login_and_logout(
    browser: Chromium, sqlite_url: str, users: dict[str, str]
) -> None:
    with stage(sqlite_url) as (_, service):
        known = fill(service)
    with stage(sqlite_url, **users) as (base, service):
        browser.go(f"{base}/ui/machines")
        assert browser.evaluate("location.pathname") == "/ui/login"
        assert violations(browser) == []
        assert log_in(browser) == "/ui/machines"
        assert completed(browser, "memory_gb >= 5 and nic.sw") == ["memory_gb >= 5 and nic.switch"]
        assert "serial" in completed(browser, "ser")
        assert completed(browser, "serial == ") == []
        browser.go(f"{base}/ui/machines?q=rack4")
        browser.evaluate("document.getElementById('check-all').click()")
        assert browser.evaluate("document.getElementById('selected').textContent") == "3 selected:"
        browser.click("button[value=abort]")
        assert violations(browser) == []
        browser.click("main form button.primary")
        assert "3 of 3 aborts requested" in browser.evaluate("document.querySelector('main').textContent")

        browser.go(f"{base}/ui")
        before = browser.evaluate("document.querySelector('main').textContent")
        service.alter(known["rack1-u03"], maintenance=True)
        assert until(lambda: browser.evaluate("document.querySelector('main').textContent") != before)
        browser.click(".who button")
        assert browser.evaluate("location.pathname") == "/ui/login"
        assert [one for one in browser.complaints if "404" not in one] == []


@pytest.mark.filterwarnings("ignore:'cgi' is deprecated:DeprecationWarning")  # WebOb, which keystonemiddleware uses
def test_the_login_with_keystone_says_when_keystone_does_not_answer(browser: Chromium, sqlite_url: str) -> None:
    nowhere = KeystoneSettings(auth_url=f"http://127.0.0.1:{free_port()}", username="ferroscope", password="x")
    sections = {"keystone_authtoken": nowhere}
    with stage(sqlite_url, sections=sections, auth_strategy="keystone") as (base, _):
        browser.go(f"{base}/ui")
        assert (violations(browser), fit(browser)) == ([], True)
        set_value(browser, "user", "alice")
        set_value(browser, "password", "secret-of-alice")
        browser.click("form button.primary")
        assert "Keystone is unavailable" in browser.text()
        assert "secret-of-alice" not in browser.evaluate("document.documentElement.outerHTML")
        assert [one for one in browser.complaints if " 503 " not in one] == []


def fit(browser: Chromium) -> bool:
    """Return whether the page is not wider than a telephone."""
    browser.shape(360, 740)
    fits = not too_wide(browser)
    browser.shape(1440, 900)
    return fits


def test_a_file_is_enrolled_row_by_row(
    browser: Chromium, sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sheet = tmp_path / "rack.csv"
    rows = [f"r{i},fake-hardware,192.0.2.{i},pw-of-the-bmc,52:54:00:00:00:{i:02x}" for i in range(30)]
    sheet.write_text("name,driver,bmc_address,bmc_password,macs\n" + "\n".join([*rows, "bad,,192.0.2.99,,"]))
    with stage(sqlite_url) as (base, service):
        browser.go(f"{base}/ui/enroll")
        browser.choose_file("#file", sheet)
        browser.click("main form button.primary")
        assert "30 would be created" in browser.text()
        assert "bmc_address need a driver" in browser.text()
        assert (violations(browser), fit(browser)) == ([], True)
        sheet.write_text("name,driver,bmc_address,bmc_password,macs\n" + "\n".join(rows))
        browser.go(f"{base}/ui/enroll")
        browser.choose_file("#file", sheet)
        browser.click("main form button.primary")
        assert "pw-of-the-bmc" not in browser.evaluate("document.documentElement.outerHTML")
        assert (violations(browser), fit(browser)) == ([], True)
        monkeypatch.setattr(enroll, "_STEP_SECONDS", 0.05)  # so that the script has to go on several times
        browser.click("main form button.primary")
        assert until(lambda: "30 BMCs are being tried" in browser.text())
        for number in range(30):  # as a worker does
            failed = {"provision_state": Provision.ENROLL, "last_error": "the BMC at 192.0.2.7 did not answer"}
            answers = {"provision_state": Provision.MANAGEABLE}
            service.alter(service.node(f"r{number}").uuid, **(failed if number == 7 else answers))
        assert until(lambda: "29 created, 1 not created" in browser.text())
        assert "1 BMC does not answer" in browser.text()
        assert (violations(browser), fit(browser)) == ([], True)
        assert service.node("r29").driver_info["bmc_address"] == "192.0.2.29"
        browser.click("main section[aria-labelledby=refused] button")
        assert "1 created" in browser.text()
        assert service.node("r7").driver_info["bmc_address"] == "192.0.2.7"
        assert "pw-of-the-bmc" not in browser.evaluate("document.documentElement.outerHTML")
        assert browser.complaints == []


def completed(browser: Chromium, typed: str) -> list[str]:
    """Return what the search box offers for what has been typed."""
    browser.evaluate(f"document.getElementById('q').value = {json.dumps(typed)}")
    browser.evaluate("document.getElementById('q').dispatchEvent(new Event('input', {bubbles: true}))")
    return list(browser.evaluate("[...document.getElementById('q').list.options].map(one => one.value)"))
