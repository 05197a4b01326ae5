"""Makes the pictures of the web page in docs/images: ``python -m tools.screenshots``. It needs Chromium."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.nightly.dcim.test_first_hour import FAILING, PAGE
from tests.support.browser import Chromium
from tests.support.follower import PASSWORD, USER, Follower, steps
from tests.support.pictures import FOLDER, still_browser, taken

# Of the tutorial on the first hour: name, path, height.
HOUR = (("hour-fleet", "/ui", 900), ("hour-history", "/ui/machines/sim-lost-dimm-1?tab=history", 620))


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    # The browser may still write there when it has ended.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name, still_browser(Path(name)) as browser:
        for picture, data in taken(Path(name), browser):
            (folder / f"{picture}.png").write_bytes(data)
            print(folder / f"{picture}.png")
        first_hour(browser, Path(name), folder)


def first_hour(browser: Chromium, place: Path, folder: Path) -> None:
    """Follow the tutorial without its Nautobot, and take the pictures that it shows, when it shows them."""
    hour = Follower(place, failing=FAILING)
    fleet, history = HOUR
    try:
        for command in steps(PAGE):
            if "NAUTOBOT" in command:
                browser.shape(1280, fleet[2])
                log_in(browser, hour)
                picture(browser, hour.url + fleet[1], folder / f"{fleet[0]}.png")
            elif "nautobot" not in command:
                hour.follow(command)
        browser.shape(1280, history[2])
        picture(browser, hour.url + history[1], folder / f"{history[0]}.png")
    finally:
        hour.end()


def log_in(browser: Chromium, hour: Follower) -> None:
    browser.go(f"{hour.url}/ui/login")
    for field, value in (("user", USER), ("password", PASSWORD)):
        browser.evaluate(f"document.getElementById('{field}').value = '{value}'")
    browser.click("form button.primary")


def picture(browser: Chromium, url: str, file: Path) -> None:
    browser.go(url)
    file.write_bytes(browser.picture())
    print(file)


if __name__ == "__main__":
    main()
