"""Every query that the pages show is understood."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from ferroscope.hardware.query import QueryError, parse
from tests import ROOT
from tests.support import misses

_PAGES: Final = ("how-to/find-machines.md", "reference/search.md", "reference/cli.md")
_ROW: Final = re.compile(r"^\|.*\|$", re.MULTILINE)
_CODE: Final = re.compile(r"`([^`]+)`")
_COMMAND: Final = re.compile(r"^\$ ferroscope search (?:'([^']*)'|([^'\n]+))$", re.MULTILINE)


def _queries() -> Iterator[tuple[str, str]]:
    for page in _PAGES:
        text = (ROOT / "docs" / page).read_text(encoding="utf-8")
        for match in _COMMAND.finditer(text):
            yield page, match[1] or match[2]
        if page == "reference/cli.md":
            continue
        head = text.partition("## Fields")[0]
        for row in _ROW.findall(head):
            if any(mark in row for mark in ("==", ">=", "has ", "~", "!=", "in (", "bare word")):
                yield from ((page, code) for code in _CODE.findall(row) if " " in code or "bare word" in row)


def test_a_query_of_the_documentation_is_understood() -> None:
    queries = sorted(set(_queries()))
    assert len(queries) > 15
    misses.none(f"docs/{page}: {query}: {wrong}" for page, query in queries if (wrong := _error(query)))


def _error(query: str) -> str | None:
    try:
        parse(query)
    except QueryError as exc:
        return str(exc)
    return None
