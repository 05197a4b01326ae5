"""``ferroscope docs``: the pages that messages name are there."""

from __future__ import annotations

import re
from pathlib import Path

import ferroscope
from ferroscope.cli.docs import directory, pages
from ferroscope_client.errors import Exit
from tests.fast.cli.running import run
from tests.support import misses

SOURCE = Path(ferroscope.__file__).parent
NAMED = re.compile(r"ferroscope docs ([\w-]+)")


def test_a_page_is_shown_by_its_name_and_all_are_listed() -> None:
    assert run("docs", "serve-https").stdout.startswith("# ")
    assert "serve-https" in run("docs").stdout


def test_an_unknown_page_leads_to_the_ones_that_are_near() -> None:
    done = run("docs", "https")
    assert done.exit_code == Exit.NOT_FOUND
    assert "serve-https" in done.stderr


def test_each_page_that_a_message_names_exists() -> None:
    place = directory()
    assert place is not None
    known = pages(place)
    texts = {file: file.read_text(encoding="utf-8") for file in SOURCE.rglob("*.py")}
    misses.none(f"{file}: {name}" for file, text in texts.items() for name in NAMED.findall(text) if name not in known)
    assert sum(len(NAMED.findall(text)) for text in texts.values()) > 5
