"""The web page without a mouse, and without scripts: everything can be reached and done."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ferroscope_client.core.states import Provision
from tests.nightly.browser.conftest import set_value
from tests.support.browser import Chromium
from tests.support.fleet_stage import fill, stage

# What can be focused, is visible, and is not in a closed menu.
REACHABLE = """
[...document.querySelectorAll("a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex='0']")]
  .filter(one => !one.disabled && one.checkVisibility({visibilityProperty: true}))
"""
LOOK = """
(() => {
  const one = document.activeElement, style = getComputedStyle(one);
  if (one === document.body) return null;
  const again = one.hasAttribute("data-visited");
  one.setAttribute("data-visited", "");
  const visible = one.matches(":focus-visible") && style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
  return {again, visible, html: one.outerHTML.slice(0, 160)};
})()
"""


def tabbed(browser: Chromium) -> list[str]:
    """Go through the page with the tab key; return what is not reached, and where the focus cannot be seen."""
    wrong = []
    while True:
        browser.press("Tab")
        found: Any = browser.evaluate(LOOK)
        if found is None or found["again"]:
            break
        if not found["visible"]:
            wrong.append(f"focus not visible: {found['html']}")
    missed = browser.evaluate(f"{REACHABLE}.filter(one => !one.hasAttribute('data-visited')).map(one => one.outerHTML)")
    return wrong + [f"not reached: {one[:160]}" for one in missed]


def tab_to(browser: Chromium, selector: str) -> None:
    """Press the tab key until this element has the focus."""
    for _ in range(400):
        if browser.evaluate(f"document.activeElement.matches({json.dumps(selector)})"):
            return
        browser.press("Tab")
    raise AssertionError(f"{selector} is not reached")


def test_every_control_of_every_page_is_reached_with_the_tab_key(browser: Chromium, sqlite_url: str) -> None:
    with stage(sqlite_url) as (base, service):
        machine = f"/ui/machines/{fill(service)['rack1-u02']}"
        tabs = [f"{machine}?tab={tab}" for tab in ("hardware", "history", "rules", "audit", "raw")]
        found = []
        for path in ("/ui", "/ui/machines", *tabs, "/ui/inbox", "/ui/enroll", "/ui/rules", "/ui/rules/new",
                     "/ui/wiring", "/ui/service"):  # fmt: skip
            browser.go(base + path)
            found += [f"{path}: {one}" for one in tabbed(browser)]
        assert found == []
        assert browser.complaints == []


def test_machines_are_acted_on_with_the_keyboard_alone(browser: Chromium, sqlite_url: str) -> None:
    with stage(sqlite_url) as (base, service):
        known = fill(service)
        browser.go(f"{base}/ui")
        browser.press("Tab")
        assert "Skip to content" in browser.evaluate("document.activeElement.textContent")
        tab_to(browser, "nav a[href='/ui/machines']")
        browser.press("Enter", leads=True)
        tab_to(browser, ".chooser summary")
        browser.press(" ")
        assert browser.evaluate("document.querySelector('.chooser').open") is True
        browser.press("Enter")
        assert browser.evaluate("document.querySelector('.chooser').open") is False
        tab_to(browser, f"input[name=node][value='{known['rack1-u03']}']")
        browser.press(" ")
        assert browser.evaluate("document.getElementById('selected').textContent") == "1 selected:"
        browser.go(f"{base}/ui/machines/{known['rack1-u03']}")
        tab_to(browser, "main button[value=maintenance]")
        browser.press("Enter", leads=True)
        tab_to(browser, "main form button.primary")
        browser.press(" ", leads=True)
        assert service.node(known["rack1-u03"]).maintenance
        browser.go(f"{base}/ui/enroll")
        tab_to(browser, "#format")
        browser.press("ArrowDown")
        assert browser.evaluate("document.getElementById('format').value") == "csv"
        assert browser.complaints == []


@pytest.fixture
def plain(browser: Chromium) -> Chromium:
    """Give a browser that runs no scripts."""
    browser.command("Emulation.setScriptExecutionDisabled", value=True)
    return browser


def test_every_page_and_form_works_without_scripts(plain: Chromium, sqlite_url: str) -> None:
    with stage(sqlite_url) as (base, service):
        known = fill(service)
        machine = f"/ui/machines/{known['rack1-u02']}"
        for path in ("/ui", "/ui/machines", *(f"{machine}?tab={tab}" for tab in ("hardware", "timeline", "raw")),
                     "/ui/inbox", "/ui/enroll", "/ui/rules", "/ui/wiring", "/ui/service"):  # fmt: skip
            plain.go(base + path)
            assert plain.evaluate("document.querySelector('h1').textContent") != "", path
            assert len(plain.text()) > 100, path

        plain.go(f"{base}/ui/machines")
        assert plain.evaluate("document.getElementById('check-all').hidden") is True  # no script has run
        set_value(plain, "q", "rack4")
        plain.click("form.search button.primary")
        plain.evaluate("document.querySelectorAll('input[name=node]').forEach(one => { one.checked = true; })")
        plain.click("button[value=abort]")
        plain.click("main form button.primary")
        assert "3 of 3 aborts requested" in plain.text()

        plain.go(f"{base}/ui/enroll")
        set_value(plain, "text", "name,driver\nnew-1,fake-hardware\n")
        plain.click("main form button.primary")
        plain.click("main form button.primary")
        assert "1 BMC is being tried" in plain.text()
        service.alter(service.node("new-1").uuid, provision_state=Provision.MANAGEABLE)
        plain.click("main form button.primary")  # what the script would press
        assert "1 created" in plain.text()

        plain.go(f"{base}/ui/rules/new")
        set_value(plain, "description", "without scripts")
        plain.click("button[value=save]")
        assert "The rule is saved" in plain.text()
        plain.go(f"{base}/ui/wiring")
        set_value(plain, "switch", "leaf2")
        plain.click("form.search button.primary")
        assert "leaf1" not in plain.text()
        assert plain.complaints == []
