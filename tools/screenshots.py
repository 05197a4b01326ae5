"""Makes the pictures of the web page in docs/images: ``python -m tools.screenshots``. It needs Chromium."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.support import databases
from tests.support.browser import Chromium
from tests.support.fleet_stage import fill, stage

FOLDER = Path(__file__).parents[1] / "docs/images"
# Name, path, width, height, dark.
PICTURES = (
    ("fleet", "/ui", 1280, 860, False),
    ("fleet-dark", "/ui", 1280, 860, True),
    ("fleet-phone", "/ui", 360, 740, False),
    ("machines", "/ui/machines", 1440, 860, False),
    ("machine", "/ui/machines/{machine}", 1280, 1100, False),
    ("machine-timeline", "/ui/machines/{machine}?tab=timeline", 1280, 860, True),
    ("machine-history", "/ui/machines/{machine}?tab=history", 1280, 700, False),
    ("inbox", "/ui/inbox", 1280, 700, False),
    ("enrol", "/ui/enrol", 1280, 860, False),
    ("rules", "/ui/rules/new", 1280, 900, False),
    ("wiring", "/ui/wiring", 1280, 860, False),
    ("service", "/ui/service", 1280, 860, False),
)


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place, stage(databases.sqlite(Path(place))) as (base, service):
        known = fill(service)
        browser = Chromium(Path(place, "profile"))
        try:
            for name, path, width, height, dark in PICTURES:
                browser.shape(width, height, dark=dark)
                browser.go(base + path.format(machine=known["rack1-u02"]))
                (folder / f"{name}.png").write_bytes(browser.picture())
                print(folder / f"{name}.png")
        finally:
            browser.close()


if __name__ == "__main__":
    main()
