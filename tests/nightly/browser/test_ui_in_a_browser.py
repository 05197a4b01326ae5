"""The web page in a real browser: no console error, no violation of its policy, accessible in both color schemes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import axe_core_python
import bcrypt
import pytest

from ferroscope.config.options import KeystoneSettings
from ferroscope.contrib.ui import enroll
from ferroscope.core.states import Provision
from tests.support.browser import Chromium
from tests.support.fleet_stage import fill, stage
from tests.support.processes import free_port, until

AXE = Path(axe_core_python.__file__).with_name("axe.min.js").read_text(encoding="utf-8")
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Chromium]:
    started = Chromium(tmp_path / "profile")
    yield started
    started.close()


def violations(browser: Chromium) -> list[str]:
    """Return what axe finds, with the elements."""
    browser.evaluate(AXE)
    options = json.dumps({"runOnly": {"type": "tag", "values": RULES}})
    found: Any = browser.evaluate(f"axe.run(document, {options}).then(result => result.violations)")
    return [
        f"{one['id']}: {node['html'][:200]} {node.get('failureSummary', '')}" for one in found for node in one["nodes"]
    ]


def test_every_page_is_without_errors_and_accessible(browser: Chromium, sqlite_url: str, tmp_path: Path) -> None:
    users = tmp_path / "htpasswd"
    hashed = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
    users.write_text(f"alice:{hashed}:admin\n")
    with stage(sqlite_url) as (_, service):
        known = fill(service)
        service.store.write(lambda tx: tx.nodes.update(hostile(tx.nodes.get(known["rack3-u01"], lock=True))))
    with stage(sqlite_url, auth_strategy="http_basic", http_basic_auth_user_file=str(users)) as (base, service):
        machine = f"/ui/machines/{known['rack1-u02']}"
        pages = ["/ui", "/ui/machines", "/ui/machines?c=ports&c=error&c=uuid", "/ui/machines?reason=timeout",
                 *(f"{machine}?tab={tab}" for tab in ("hardware", "timeline", "history", "rules", "log", "raw")),
                 "/ui/inbox", "/ui/enroll", "/ui/rules", "/ui/rules/new",
                 "/ui/wiring", "/ui/service", "/ui/nothing"]  # fmt: skip
        browser.shape(1280, 900)
        browser.go(f"{base}/ui/machines")
        assert browser.evaluate("location.pathname") == "/ui/login"
        assert violations(browser) == []
        browser.evaluate("document.getElementById('user').value = 'alice'")
        browser.evaluate("document.getElementById('password').value = 'secret'")
        browser.click("form button.primary")
        assert browser.evaluate("location.pathname") == "/ui/machines"
        found: list[str] = []
        for number, path in enumerate(pages):
            narrow = number % 2
            browser.shape(360 if narrow else 1280, 800, dark=bool(narrow))
            browser.go(base + path)
            found += [f"{path}: {one}" for one in violations(browser)]
            for width, height in ((360, 740), (3840, 2160)):
                browser.shape(width, height)
                if browser.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"):
                    found.append(f"{path} is too wide at {width} pixels")
                found += [f"{path}: {one} is cut off at {width} pixels" for one in cut_off(browser)]
        assert found == []
        assert [one for one in browser.complaints if "404" not in one] == []

        browser.shape(1280, 900)
        browser.go(f"{base}/ui/machines")
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
        browser.shape(1280, 900)
        browser.go(f"{base}/ui")
        assert (violations(browser), fit(browser)) == ([], True)
        browser.evaluate("document.getElementById('user').value = 'alice'")
        browser.evaluate("document.getElementById('password').value = 'secret-of-alice'")
        browser.click("form button.primary")
        assert "Keystone is unavailable" in browser.text()
        assert "secret-of-alice" not in browser.evaluate("document.documentElement.outerHTML")
        assert [one for one in browser.complaints if " 503 " not in one] == []


def cut_off(browser: Chromium) -> list[str]:
    """Return the headings of the cards whose content is wider than they are."""
    wide = "[...document.querySelectorAll('.card')].filter(one => one.scrollWidth > one.clientWidth)"
    return list(browser.evaluate(f"{wide}.map(one => one.innerText.slice(0, 40))"))


def fit(browser: Chromium) -> bool:
    """Return whether the page is not wider than a telephone."""
    browser.shape(360, 740)
    too_wide = browser.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")
    browser.shape(1280, 900)
    return not too_wide


def test_machines_are_accepted_from_the_inbox(browser: Chromium, sqlite_url: str) -> None:
    with stage(sqlite_url) as (base, service):
        fill(service)
        browser.shape(1280, 900)
        browser.go(f"{base}/ui")
        browser.click("a.tile[href='/ui/inbox']")
        assert "same serial number as" in browser.text()
        browser.evaluate("document.getElementById('check-all').click()")
        assert browser.evaluate("document.getElementById('selected').textContent") == "3 selected:"
        browser.click("button[value=approve]")
        assert (violations(browser), fit(browser)) == ([], True)
        names = "[...document.querySelectorAll('input[name^=name-]')]"
        browser.evaluate(f"{names}.forEach((box, number) => {{ box.value = `rack9-u${{number}}`; }})")
        browser.evaluate("document.getElementById('password').value = 'secret://file/bmc/password'")
        browser.click("main form button.primary")
        assert "3 of 3 accepted" in browser.text()
        assert (violations(browser), fit(browser)) == ([], True)
        assert [service.node(f"rack9-u{number}").inbox for number in range(3)] == [False] * 3
        browser.click("main form button.primary")
        assert "This makes 3 machines manageable" in browser.text()
        assert browser.complaints == []


def test_a_file_is_enrolled_row_by_row(
    browser: Chromium, sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sheet = tmp_path / "rack.csv"
    rows = [f"r{i},fake-hardware,192.0.2.{i},pw-of-the-bmc,52:54:00:00:00:{i:02x}" for i in range(30)]
    sheet.write_text("name,driver,bmc_address,bmc_password,macs\n" + "\n".join([*rows, "bad,,192.0.2.99,,"]))
    with stage(sqlite_url) as (base, service):
        browser.shape(1280, 900)
        browser.go(f"{base}/ui/enroll")
        browser.choose_file("#file", sheet)
        browser.click("main form button.primary")
        assert "line 32: bmc_address need a driver" in browser.text()
        assert (violations(browser), fit(browser)) == ([], True)
        assert [one for one in browser.complaints if " 400 " not in one] == []
        browser.complaints.clear()
        sheet.write_text("name,driver,bmc_address,bmc_password,macs\n" + "\n".join(rows))
        browser.choose_file("#file", sheet)
        browser.click("main form button.primary")
        assert "30 would be created" in browser.text()
        assert "pw-of-the-bmc" not in browser.evaluate("document.documentElement.outerHTML")
        assert (violations(browser), fit(browser)) == ([], True)
        monkeypatch.setattr(enroll, "_SECONDS", 0.05)  # so that the script has to go on several times
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


def test_a_rule_is_written_tried_and_saved(browser: Chromium, sqlite_url: str) -> None:
    with stage(sqlite_url) as (base, service):
        fill(service)
        browser.shape(1280, 900, dark=True)
        browser.go(f"{base}/ui/rules")
        browser.click("main p a.button")
        browser.evaluate("document.getElementById('conditions').value = '- {op: nonsense, args: []}'")
        browser.click("button[value=save]")
        assert "conditions[0]" in browser.evaluate("document.getElementById('conditions-errors').textContent")
        assert (violations(browser), fit(browser)) == ([], True)
        assert [one for one in browser.complaints if " 400 " not in one] == []
        browser.complaints.clear()
        browser.evaluate("document.getElementById('conditions').value = ''")
        browser.evaluate("document.getElementById('description').value = 'mine'")
        browser.click("button[value=try]")
        assert "applied" in browser.text()
        assert (violations(browser), fit(browser)) == ([], True)
        browser.click("button[value=save]")
        assert "The rule is saved" in browser.text()
        assert (violations(browser), fit(browser)) == ([], True)
        browser.click("button[value=delete]")
        browser.click("main section button.primary")
        assert browser.evaluate("location.pathname") == "/ui/rules"
        assert "mine" not in browser.text()
        assert browser.complaints == []


def completed(browser: Chromium, typed: str) -> list[str]:
    """Return what the search box offers for what has been typed."""
    browser.evaluate(f"document.getElementById('q').value = {json.dumps(typed)}")
    browser.evaluate("document.getElementById('q').dispatchEvent(new Event('input', {bubbles: true}))")
    return list(browser.evaluate("[...document.getElementById('q').list.options].map(one => one.value)"))


def hostile(node: Any) -> Any:
    """Return the node as a machine might have described itself."""
    node.hardware = {"vendor": "<script>alert(1)</script>", "product": "x" * 5000, "serial": '"><svg onload=alert(2)>'}
    node.last_error = "<img src=x onerror=alert(3)>" * 100
    return node
