"""The web page in a real browser: no console error, no violation of its policy, accessible in both color schemes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import axe_core_python
import bcrypt
import pytest

from tests.support.browser import Chromium
from tests.support.fleet_stage import fill, stage
from tests.support.processes import until

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
                 *(f"{machine}?tab={tab}" for tab in ("hardware", "timeline", "history", "raw")),
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
        assert found == []
        assert [one for one in browser.complaints if "404" not in one] == []

        browser.shape(1280, 900)
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
        until(lambda: browser.evaluate("document.querySelector('main').textContent") != before, seconds=60)
        browser.click(".who button")
        assert browser.evaluate("location.pathname") == "/ui/login"
        assert [one for one in browser.complaints if "404" not in one] == []


def hostile(node: Any) -> Any:
    """Return the node as a machine might have described itself."""
    node.hardware = {"vendor": "<script>alert(1)</script>", "product": "x" * 5000, "serial": '"><svg onload=alert(2)>'}
    node.last_error = "<img src=x onerror=alert(3)>" * 100
    return node
