"""The pictures of the web page in docs/images: how they are taken, always alike, and how two of them are compared.

Clocks stand still, identifiers follow from names, and the fonts are DejaVu; everything else is the real service and the
real browser.
"""

from __future__ import annotations

import base64
import itertools
import json
import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import msgspec
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


class Difference(msgspec.Struct, frozen=True):
    """How many blocks of two pictures differ, and from where to where; of another size, all of it does."""

    blocks: int
    left: int = 0
    top: int = 0
    right: int = 0
    bottom: int = 0


# Another version of the browser smooths letters in another way: blocks of 4 x 4 pixels are compared by their mean
# color. The sum of the three channels has 765 steps. A digit that has changed differs in several blocks.
_COMPARE: Final = """
(async (before, after, most) => {
  const size = 4, pixels = [];
  let width, height;
  for (const data of [before, after]) {
    const image = await createImageBitmap(await (await fetch("data:image/png;base64," + data)).blob());
    if (width === undefined) [width, height] = [image.width, image.height];
    if (image.width !== width || image.height !== height) return {blocks: width * height};
    const canvas = new OffscreenCanvas(width, height).getContext("2d");
    canvas.drawImage(image, 0, 0);
    pixels.push(canvas.getImageData(0, 0, width, height).data);
  }
  const found = {blocks: 0, left: width, top: height, right: 0, bottom: 0};
  for (let top = 0; top < height; top += size) for (let left = 0; left < width; left += size) {
    const sums = [0, 0, 0];
    let count = 0;
    for (let y = top; y < Math.min(top + size, height); y += 1) {
      for (let x = left; x < Math.min(left + size, width); x += 1) {
        const at = 4 * (y * width + x);
        for (let one = 0; one < 3; one += 1) sums[one] += pixels[1][at + one] - pixels[0][at + one];
        count += 1;
      }
    }
    if (sums.reduce((all, one) => all + Math.abs(one) / count, 0) <= most) continue;
    found.blocks += 1;
    found.left = Math.min(found.left, left);
    found.top = Math.min(found.top, top);
    found.right = Math.max(found.right, left + size);
    found.bottom = Math.max(found.bottom, top + size);
  }
  return found.blocks ? found : {blocks: 0};
})"""
_MOST: Final = 24


def difference(browser: Chromium, before: bytes, after: bytes) -> Difference:
    """Return where two PNG files differ, as the browser decodes them; it has to be at a page of no policy."""
    given = ", ".join(json.dumps(base64.b64encode(one).decode()) for one in (before, after))
    return msgspec.convert(browser.evaluate(f"{_COMPARE}({given}, {_MOST})"), Difference)
