"""``ferroscope docs``: the pages that messages name are there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import ferroscope
from ferroscope.cli.docs import directory, pages
from ferroscope.cli.exits import Exit
from tests.fast.cli.running import run
from tests.support import misses

SOURCE = Path(ferroscope.__file__).parent
PATH = re.compile(r"docs/[\w-]+/[\w-]+\.md")
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


def test_no_text_names_a_file_of_the_source() -> None:
    misses.none(f"{file}: {text}" for file in SOURCE.rglob("*.py") for text in _texts(file) if PATH.search(text))


def _texts(file: Path) -> Iterator[str]:
    """Yield the strings of a module that are no docstrings."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    alone = {id(one.value) for one in ast.walk(tree) if isinstance(one, ast.Expr)}
    for one in ast.walk(tree):
        if isinstance(one, ast.Constant) and isinstance(one.value, str) and id(one) not in alone:
            yield one.value


def test_pages_have_names_of_their_own() -> None:
    place = directory()
    assert place is not None
    files = [one for kind in ("tutorial", "how-to", "explanation", "reference") for one in (place / kind).glob("*.md")]
    assert len(files) == len(pages(place))
