"""Every page on a phone, a laptop and a large screen, dark and light; what a laptop shows; and the way to a cause."""

from __future__ import annotations

import itertools
from typing import Any

from ferroscope_client.core.states import Provision
from tests.nightly.browser.conftest import SIZES, finished_trial, set_value, too_wide, violations
from tests.support.browser import Chromium
from tests.support.fleet_stage import fill, stage
from tests.support.processes import until

PAGES = (
    "/ui", "/ui/machines", "/ui/machines?state=inspect+failed", "/ui/machines?q=rack1&sort=memory&dir=desc",
    "/ui/machines?c=ports&c=error&c=uuid", "/ui/machines?reason=timeout",
    "/ui/machines/{well}", "/ui/machines/{well}?tab=timeline", "/ui/machines/{failed}", "/ui/machines/{waits}",
    *(f"/ui/machines/{{well}}?tab={tab}" for tab in ("history", "rules", "audit", "log", "raw")),
    "/ui/inbox", "/ui/enroll", "/ui/rules", "/ui/rules/new", "/ui/wiring", "/ui/service", "/ui/nothing",
)  # fmt: skip


def hostile(node: Any) -> Any:
    """Return the node as a machine might have described itself."""
    node.hardware = {"vendor": "<script>alert(1)</script>", "product": "x" * 5000, "serial": '"><svg onload=alert(2)>'}
    node.last_error = "<img src=x onerror=alert(3)>" * 100
    return node


def cut_off(browser: Chromium) -> list[str]:
    """Return the headings of the cards whose content is wider than they are."""
    wide = "[...document.querySelectorAll('.card')].filter(one => one.scrollWidth > one.clientWidth)"
    return [f"cut off: {one}" for one in browser.evaluate(f"{wide}.map(one => one.innerText.slice(0, 40))")]


def test_every_page_is_accessible_and_fits_in_each_size_and_color(browser: Chromium, sqlite_url: str) -> None:
    with stage(sqlite_url) as (base, service):
        known = fill(service)
        service.store.write(lambda tx: tx.nodes.update(hostile(tx.nodes.get(known["rack3-u01"], lock=True))))
        names = {"well": known["rack1-u02"], "failed": known["rack3-u04"], "waits": known["rack4-u01"]}
        wrong = []
        for page in PAGES:
            path = page.format(**names)
            for dark in (False, True):
                browser.shape(*SIZES[0], dark=dark)
                browser.go(base + path)  # again: colors that change while one looks are between the two
                for width, height in SIZES:
                    browser.shape(width, height, dark=dark)
                    found = violations(browser) + cut_off(browser)
                    if too_wide(browser):
                        found.append("wider than the screen")
                    wrong += [f"{page} at {width}{' dark' if dark else ''}: {one}" for one in found]
        assert wrong == []
        assert [one for one in browser.complaints if "404" not in one] == []


def test_problems_are_whole_where_they_are_the_subject_also_on_a_phone(browser: Chromium, sqlite_url: str) -> None:
    texts = "[...document.querySelectorAll('.problems strong, .problems p')]"
    cut = f"{texts}.filter(one => one.scrollHeight > one.clientHeight).map(one => one.textContent)"
    with stage(sqlite_url) as (base, service):
        fill(service)
        browser.shape(240, 740)
        for page, whole in (("/ui", False), ("/ui/service", True), ("/ui/wiring", True)):
            browser.go(base + page)
            assert browser.evaluate(f"{texts}.length") > 0, page
            assert (browser.evaluate(cut) == []) is whole, page


def test_a_laptop_shows_25_machines_and_a_phone_the_first_one_at_once(browser: Chromium, sqlite_url: str) -> None:
    with stage(sqlite_url) as (base, service):
        fill(service)
        browser.shape(1440, 900)
        browser.go(f"{base}/ui/machines")
        rows = "[...document.querySelectorAll('main tbody tr')].map(row => row.getBoundingClientRect())"
        heights = set(browser.evaluate(f"{rows}.map(one => one.height)"))
        assert all(32 <= one <= 36 for one in heights), heights
        assert browser.evaluate(f"{rows}.filter(one => one.bottom <= innerHeight + 1).length") >= 25
        assert browser.evaluate("document.querySelector('.scroll').scrollWidth <= innerWidth")
        browser.shape(360, 740)
        assert browser.evaluate("document.querySelector('header').getBoundingClientRect().height") <= 48
        assert browser.evaluate(f"{rows}[0].top") <= 300
        assert browser.evaluate("document.querySelector('.scroll').scrollWidth <= innerWidth")
        for number in range(browser.evaluate("document.querySelectorAll('.chooser').length")):
            browser.evaluate(f"document.querySelectorAll('.chooser').forEach((one, at) => one.open = at === {number})")
            menu = f"document.querySelectorAll('.chooser > :not(summary)')[{number}].getBoundingClientRect()"
            assert browser.evaluate(f"{menu}.left >= 0 && {menu}.right <= innerWidth && {menu}.bottom <= innerHeight")
        browser.evaluate("document.querySelectorAll('.chooser').forEach(one => one.open = false)")
        browser.evaluate("scrollTo(0, 2000)")
        assert browser.evaluate("document.querySelector('header').getBoundingClientRect().top") == 0


def test_the_chart_can_be_read_in_each_size(browser: Chromium, sqlite_url: str) -> None:
    """Its text does not shrink with it, and no label covers another one or is cut."""
    with stage(sqlite_url) as (base, service):
        fill(service)
        for width, height in SIZES:
            browser.shape(width, height)
            browser.go(f"{base}/ui")
            boxes: Any = browser.evaluate(
                "[...document.querySelectorAll('.chart text')].filter(one => one.checkVisibility())"
                ".map(one => one.getBoundingClientRect()).map(one => [one.left, one.right, one.top, one.height])"
            )
            assert all(tall >= 11 and left >= 0 and right <= width for left, right, _, tall in boxes), boxes
            days = sorted(boxes, key=lambda one: one[2])[-3:]
            assert len({top for _, _, top, _ in days}) == 1
            days = sorted(one for one in boxes if one[2] == days[0][2])
            assert len(days) >= 3
            assert all(one[1] < other[0] for one, other in itertools.pairwise(days))


def test_lists_are_walked_through_with_keys(browser: Chromium, sqlite_url: str) -> None:
    def focused() -> str:
        return str(browser.evaluate("document.activeElement.textContent"))

    def press(key: str) -> None:
        browser.evaluate(
            f"document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {{key: '{key}', bubbles: true}}))"
        )

    with stage(sqlite_url) as (base, service):
        fill(service)
        browser.go(f"{base}/ui/machines?q=rack3")
        assert browser.evaluate("document.getElementById('bar').hidden") is True
        for key in "jjjk":
            press(key)
        assert focused() == "rack3-u02"
        press("x")
        assert browser.evaluate("document.getElementById('selected').textContent") == "1 selected:"
        assert browser.evaluate("document.getElementById('bar').hidden") is False
        press("?")
        assert browser.evaluate("document.getElementById('keys').open") is True
        browser.evaluate("document.getElementById('keys').close()")
        press("/")
        assert browser.evaluate("document.activeElement.id") == "q"
        press("j")  # typed, as in a search
        assert browser.evaluate("document.activeElement.id") == "q"
        browser.go(f"{base}/ui/service")
        press("/")
        assert browser.evaluate("document.activeElement.id") == "find"
        assert browser.complaints == []


def test_from_the_first_page_to_cause_and_remedy_in_two_clicks(browser: Chromium, sqlite_url: str) -> None:
    with stage(sqlite_url) as (base, service):
        known = fill(service)
        uuid = known["rack3-u06"]
        browser.go(f"{base}/ui")
        browser.click("a.button[href='/ui/machines?reason=ramdisk-error']")
        assert "Lshw: no such device" in browser.text()
        browser.click(f"a[href='/ui/machines/{uuid}']")
        assert "Lshw: no such device" in browser.text()
        assert "What to try" in browser.text()
        browser.evaluate("document.querySelector('.remedy details').open = true")
        set_value(browser, "bmc_address", "192.0.2.200")
        browser.click(".remedy .fields button.primary")
        assert "The BMC is being tried" in browser.text()
        finished_trial(service, uuid)
        assert until(lambda: "the BMC responds: power off" in browser.text())  # the page looks by itself
        assert service.node(uuid).driver_info["bmc_address"] == "192.0.2.200"
        browser.click(".toolbar button[value=inspect]")
        browser.click("main form button.primary")
        assert browser.evaluate("location.pathname") == f"/ui/machines/{uuid}"
        assert service.node(uuid).provision_state is Provision.INSPECTING
        assert browser.complaints == []
