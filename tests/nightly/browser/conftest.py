"""A browser for each test, what axe finds on its page, and how one logs in."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import axe_core_python
import bcrypt
import pytest

from ferroscope.core.model import Entry
from tests.api.service import Service
from tests.support.browser import Chromium

AXE = Path(axe_core_python.__file__).with_name("axe.min.js").read_text(encoding="utf-8")
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]
SIZES = ((360, 740), (1440, 900), (2560, 1440))


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Chromium]:
    started = Chromium(tmp_path / "profile")
    started.command("Emulation.setFocusEmulationEnabled", enabled=True)
    started.shape(1440, 900)
    yield started
    started.close()


@pytest.fixture
def users(tmp_path: Path) -> dict[str, str]:
    """Give the options of a service whose administrators are alice and bob."""
    hashed, file = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode(), tmp_path / "htpasswd"
    file.write_text(f"alice:{hashed}:admin\nbob:{hashed}:admin\n")
    return {"auth_strategy": "http_basic", "http_basic_auth_user_file": str(file)}


def set_value(browser: Chromium, element: str, value: str) -> None:
    browser.evaluate(f"document.getElementById({json.dumps(element)}).value = {json.dumps(value)}")


def log_in(browser: Chromium) -> str:
    """Fill in the login, and send it; return where that leads."""
    for name, value in (("user", "alice"), ("password", "secret")):
        set_value(browser, name, value)
    browser.evaluate("document.getElementById('password').form.setAttribute('data-filled', '')")
    browser.click("form[data-filled] button")
    return str(browser.evaluate("location.pathname"))


def violations(browser: Chromium) -> list[str]:
    """Return what axe finds, with the elements."""
    if not browser.evaluate("'axe' in window"):
        browser.evaluate(AXE)
    options = json.dumps({"runOnly": {"type": "tag", "values": RULES}})
    found: Any = browser.evaluate(f"axe.run(document, {options}).then(result => result.violations)")
    return [
        f"{one['id']}: {node['html'][:200]} {node.get('failureSummary', '')}" for one in found for node in one["nodes"]
    ]


def too_wide(browser: Chromium) -> bool:
    return bool(browser.evaluate("document.documentElement.scrollWidth > innerWidth"))


def finished_trial(service: Service, uuid: str) -> None:
    """Answer the trial of a BMC, as a worker does."""
    service.consume()
    answer = Entry(node=uuid, inspection=None, step="verified", message="the BMC responds: power off")
    service.store.write(lambda tx: tx.journal.append([answer]))
