"""The pages look like the pictures in the documentation: ``python3 -m tools screenshots`` renews them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.browser import Chromium
from tests.support.pictures import FOLDER, PICTURES, difference, still_browser, taken
from tools.screenshots import HOUR


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Chromium]:
    with still_browser(tmp_path) as started:
        yield started


def test_every_page_looks_like_its_picture(browser: Chromium, tmp_path: Path) -> None:
    shown = dict(taken(tmp_path, browser))
    assert list(shown) == [name for name, *_ in PICTURES]
    # Those of the first hour are of real runs, in which times differ.
    assert {path.stem for path in FOLDER.glob("*.png")} == {*shown, *(name for name, _, _ in HOUR)}
    browser.go("about:blank")
    wrong = []
    for name, picture in shown.items():
        found = difference(browser, (FOLDER / f"{name}.png").read_bytes(), picture)
        if found.blocks:
            (tmp_path / f"{name}.png").write_bytes(picture)
            wrong.append(f"{name}.png: {found}; it is now {tmp_path / name}.png")
    assert wrong == [], "look at them, and renew them with: python3 -m tools screenshots"


PAGE = "data:text/html,<body style='font: 16px DejaVu Sans; background: {back}; margin: {margin}px'>{text}</body>"
LIKE = {"back": "white", "margin": 8, "text": "In progress: 4 of 37 machines"}


@pytest.mark.parametrize(
    ("change", "differs"),
    [
        ({}, False),
        ({"text": "In progress: 4 of 37 machines&lrm;"}, False),
        ({"back": "rgb(252,252,252)"}, False),
        ({"back": "rgb(244,244,244)"}, True),
        ({"text": "In progress: 4 of 38 machines"}, True),
        ({"text": "In progress: 4 of 37 machines."}, True),
        ({"text": "In progress: 4 of 37 machine"}, True),
        ({"margin": 9}, True),
    ],
)
def test_a_change_that_somebody_sees_is_a_difference(
    browser: Chromium, change: dict[str, object], *, differs: bool
) -> None:
    pictures = []
    for look in (LIKE, LIKE | change):
        browser.shape(400, 60)
        browser.go(PAGE.format(**look).replace("%", "%25").replace(" ", "%20"))
        pictures.append(browser.picture())
    browser.go("about:blank")
    assert (difference(browser, *pictures).blocks > 0) is differs


def test_a_picture_of_another_size_differs(browser: Chromium) -> None:
    pictures = []
    for width in (200, 204):
        browser.shape(width, 60)
        browser.go("about:blank")
        pictures.append(browser.picture())
    assert difference(browser, *pictures).blocks > 0
