"""What is said to who does not see the page: each change once, in a sentence, and nothing that only counts seconds."""

from __future__ import annotations

from typing import Any

from ferroscope.core.delivery import Fail
from ferroscope.core.states import Event
from ferroscope_client.core.reasons import Reason
from tests.nightly.browser.conftest import finished_trial
from tests.support.browser import Chromium
from tests.support.fleet_stage import stage
from tests.support.processes import until

# Keeps in ``said`` what a screen reader says: the text of each live region that changes, or comes.
OBSERVE = """
(() => {
  window.said = [];
  const live = "[role=status], [role=alert], [role=log], [aria-live]:not([aria-live=off])";
  const around = (node) => (node.nodeType === Node.ELEMENT_NODE ? node : node.parentElement)?.closest(live);
  new MutationObserver((records) => {
    for (const { target, addedNodes } of records) {
      for (const region of [around(target), ...[...addedNodes].map((node) => node.querySelector?.(live))]) {
        if (region && said.at(-1) !== region.textContent) said.push(region.textContent);
      }
    }
  }).observe(document.body, { subtree: true, childList: true, characterData: true });
})()
"""
AGES = "[...document.querySelectorAll('main time[data-age]')].map((one) => one.textContent).join()"
FOCUSED = "`${document.activeElement.tagName} ${document.activeElement.textContent}`"


def said(browser: Chromium) -> Any:
    return browser.evaluate("said")


def let_it_tick(browser: Chromium) -> None:
    """Wait until the page has counted twice."""
    for _ in range(2):
        before = browser.evaluate(AGES)
        assert until(lambda before=before: browser.evaluate(AGES) != before)  # type: ignore[misc]


def test_what_becomes_of_a_machine_is_said_once_and_the_result_of_an_action_has_the_focus(
    browser: Chromium, sqlite_url: str
) -> None:
    with stage(sqlite_url) as (base, service):
        uuid = service.enrol(name="web1")
        browser.go(f"{base}/ui/machines/{uuid}")
        browser.click("button[value=inspect]")
        assert browser.evaluate(FOCUSED) == "H1 Inspect: web1"
        browser.click("main form button.primary")
        assert browser.evaluate(FOCUSED) == "P Inspection requested: web1."
        assert browser.evaluate("location.search") == ""
        browser.evaluate(OBSERVE)
        let_it_tick(browser)
        assert said(browser) == []
        service.consume()
        service.step(uuid, Event.WAIT)
        assert until(lambda: said(browser) == ["web1 changed from inspecting to inspect wait."])
        let_it_tick(browser)
        assert browser.evaluate(FOCUSED) == "P Inspection requested: web1."
        service.step(uuid, Event.FAIL, Fail(Reason.TIMEOUT, "no callback"))
        assert until(lambda: said(browser)[1:] == ["web1 changed from inspect wait to inspect failed."])

        browser.click("button[value=try]")
        assert browser.evaluate(FOCUSED) == "P Trial of the BMC requested: web1."
        browser.evaluate(OBSERVE)
        let_it_tick(browser)
        assert said(browser) == []
        finished_trial(service, uuid)
        assert until(lambda: said(browser) == ["The BMC answered: the BMC responds: power off."])
        let_it_tick(browser)
        assert len(said(browser)) == 1
        assert browser.complaints == []


def test_a_theme_is_kept_and_forced_colors_leave_borders(browser: Chromium, sqlite_url: str) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    with stage(sqlite_url) as (base, service):
        service.enrol(name="web1")
        browser.go(f"{base}/ui/machines")
        light = browser.evaluate(background)
        browser.evaluate("theme.value = 'dark', theme.dispatchEvent(new Event('change', {bubbles: true}))")
        dark = browser.evaluate(background)
        assert dark != light
        browser.go(f"{base}/ui/machines")
        assert (browser.evaluate(background), browser.evaluate("theme.value")) == (dark, "dark")
        border = "getComputedStyle(document.querySelector('.state')).borderStyle"
        assert browser.evaluate(border) == "none"
        browser.command("Emulation.setEmulatedMedia", features=[{"name": "forced-colors", "value": "active"}])
        assert browser.evaluate(border) == "solid"
