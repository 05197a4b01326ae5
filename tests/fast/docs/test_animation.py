"""The animation of the demo in README.md is a picture of a real run, and ends with what the demo shows."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from tests import ROOT
from tools import animation

PICTURE = ROOT / "docs/images/demo.svg"
LINES = [(0.5, "[ 0.5 s] one"), (1.0, "two <3"), (2.0, "Done in 2 s"), (2.1, "To continue")]


def test_lines_come_in_order_and_the_end_stays() -> None:
    shown = animation.shown(LINES)
    assert [text for _, text in shown] == ["$ make demo", "[ 0.5 s] one", "two <3", "Done in 2 s"]
    times = [at for at, _ in shown]
    assert times == sorted(times)
    assert times[-1] == 16.0
    root = ElementTree.fromstring(animation.svg(shown, "about"))
    texts = [one.text for one in root.iter("{http://www.w3.org/2000/svg}text")]
    assert texts == [text for _, text in shown]


def test_the_picture_in_the_readme_is_one_of_them() -> None:
    assert f"({PICTURE.relative_to(ROOT)})" in (ROOT / "README.md").read_text(encoding="utf-8")
    text = PICTURE.read_text(encoding="utf-8")
    root = ElementTree.fromstring(text)
    said = "\n".join(one.text or "" for one in root.iter("{http://www.w3.org/2000/svg}text"))
    assert "No machine was booted twice" in said
    assert "SIGKILL to worker" in said
    assert re.search(r"of \d{4}-\d\d-\d\d, on \d+ processors", text)
    assert f'dur="{animation.SECONDS:g}s"' in text
