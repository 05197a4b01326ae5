"""The pictures of the web page in docs/images: how they are taken, always alike.

Clocks stand still, identifiers follow from names, and the fonts are DejaVu; everything else is the real service and the
real browser.
"""

from __future__ import annotations

import itertools
import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from sqlalchemy import event
from sqlalchemy.engine import Engine

from ferroscope.runtime.system import SystemClock
from tests import ROOT
from tests.support import databases
from tests.support.browser import Chromium
from tests.support.fleet_stage import fill, stage

FOLDER: Final = ROOT / "docs/images"
# Name, path, width, height, dark.
PICTURES: Final = (
    ("fleet", "/ui", 1280, 860, False),
    ("fleet-dark", "/ui", 1280, 860, True),
    ("fleet-phone", "/ui", 360, 740, False),
    ("machines", "/ui/machines", 1440, 860, False),
    ("machine", "/ui/machines/{machine}", 1280, 1100, False),
    ("machine-failed", "/ui/machines/{failed}", 1280, 860, False),
    ("machine-health", "/ui/machines/{ill}?tab=health", 1280, 1000, False),
    ("machine-timeline", "/ui/machines/{machine}?tab=timeline", 1280, 860, True),
    ("machine-history", "/ui/machines/{machine}?tab=history", 1280, 700, False),
    ("inbox", "/ui/inbox", 1280, 700, False),
    ("enroll", "/ui/enroll", 1280, 860, False),
    ("rules", "/ui/rules/new", 1280, 900, False),
    ("wiring", "/ui/wiring", 1280, 860, False),
    ("service", "/ui/service", 1280, 860, False),
)
# 2026-01-30, 10:00 UTC.
_MOMENT: Final = 1_769_767_200.0
# Seconds that pass between two looks at the database's clock, so that what happens has an order.
_STEP: Final = 0.001
_JULIAN: Final = 2440587.5
# Nothing refreshes a page, and ages are as the service has written them.
_STILL: Final = f"Date.now = () => {_MOMENT * 1000}; window.setTimeout = window.setInterval = () => 0;"
_FONTS: Final = """<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig><dir>/usr/share/fonts/truetype/dejavu</dir><cachedir>{cache}</cachedir>
<alias binding="same"><family>system-ui</family><prefer><family>DejaVu Sans</family></prefer></alias>
<alias binding="same"><family>sans-serif</family><prefer><family>DejaVu Sans</family></prefer></alias>
<alias binding="same"><family>sans</family><prefer><family>DejaVu Sans</family></prefer></alias>
<alias binding="same"><family>monospace</family><prefer><family>DejaVu Sans Mono</family></prefer></alias></fontconfig>
"""


@contextmanager
def standing_clocks() -> Iterator[None]:
    """Have the service and SQLite say a time that all but stands, on each connection that is opened meanwhile."""
    looks = itertools.count()

    def amend(connection: Any, _record: Any) -> None:
        if isinstance(connection, sqlite3.Connection):
            connection.create_function("julianday", 1, lambda _: _JULIAN + (_MOMENT + _STEP * next(looks)) / 86400)

    event.listen(Engine, "connect", amend)
    try:
        with patch.object(SystemClock, "time", lambda _self: _MOMENT):
            yield
    finally:
        event.remove(Engine, "connect", amend)


def identifier(name: str) -> str:
    """Return a UUID that follows from the name."""
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, name))


@contextmanager
def still_browser(place: Path) -> Iterator[Chromium]:
    """Give a browser without a clock, whose fonts are the same everywhere."""
    fonts = place / "fonts.conf"
    fonts.write_text(_FONTS.format(cache=place / "fonts"))
    browser = Chromium(place / "profile", fonts=fonts)
    try:
        browser.command("Page.addScriptToEvaluateOnNewDocument", source=_STILL)
        yield browser
    finally:
        browser.close()


def taken(place: Path, browser: Chromium) -> Iterator[tuple[str, bytes]]:
    """Give each picture, as it is now, with its name."""
    with standing_clocks(), stage(databases.sqlite(place)) as (base, service):
        known = fill(service, identifier)
        for name, path, width, height, dark in PICTURES:
            browser.shape(width, height, dark=dark)
            browser.go(
                base + path.format(machine=known["rack1-u02"], ill=known["rack2-u04"], failed=known["rack3-u04"])
            )
            yield name, browser.picture()
