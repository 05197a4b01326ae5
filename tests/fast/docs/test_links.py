"""Every link within the repository, and every path that a text names, leads somewhere."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Final

from tests import ROOT
from tests.fast.docs.pages import Page, page, pages
from tests.support import misses

# Paths on pages are relative to one of these.
_ROOTS: Final = (ROOT, ROOT / "src/ferroscope", ROOT / "client/src/ferroscope_client", ROOT / "tests")
_PLACES: Final = {"client", "src", "tests", "tools", "bench", "deploy", "docs", "examples", "changes", ".ci"}
_PATH: Final = re.compile(r"[\w.-]+(?:/[\w.@-]+)+/?")
_PATH_OF_INSPECTOR: Final = "ironic_inspector/"


def test_links_lead_somewhere() -> None:
    misses.none(miss for source in pages() for miss in _broken(source, source))


def test_links_of_news_fragments_are_those_of_the_changelog_that_they_go_to() -> None:
    fragments = [page(f"changes/{path.name}") for path in sorted((ROOT / "changes").glob("*.*.md"))]
    misses.none(miss for source in fragments for miss in _broken(source, Page("CHANGELOG.md", source.text)))


def test_every_page_can_be_reached() -> None:
    """From the README or the index, or it is one that hosting sites show by themselves."""
    shown = {"README.md", "CONTRIBUTING.md", "SECURITY.md"}
    reached = shown | _targets({"README.md", "docs/index.md", "CONTRIBUTING.md"})
    misses.none(f"{source.name}: no link leads to it" for source in pages() if source.name not in reached)


def test_paths_that_are_named_exist() -> None:
    misses.none(
        f"{source.at(span)}: the path {span} does not exist"
        for source in pages()
        for span in source.spans
        if _is_missing(span)
    )


def _is_missing(span: str) -> bool:
    """Return whether this is a path in the repository, or of a module, that does not exist."""
    if not _PATH.fullmatch(span) or span.startswith(_PATH_OF_INSPECTOR):
        return False
    if not span.endswith(".py") and span.partition("/")[0] not in _PLACES:
        return False
    return not any((root / span).exists() for root in _ROOTS)


def _broken(source: Page, read_as: Page) -> Iterator[str]:
    """Tell the links of a page that lead nowhere when it is read at the place of another."""
    for link in source.links:
        if not _resolves(read_as, link):
            yield f"{source.at(f'({link})')}: the link {link} leads nowhere"


def _resolves(source: Page, link: str) -> bool:
    if "://" in link:
        return True
    path, _, anchor = link.partition("#")
    name = _name(source, path) if path else source.name
    if name.startswith("..") or not (ROOT / name).exists():
        return False
    return not anchor or anchor in (page(name) if path else source).anchors


def _name(source: Page, path: str) -> str:
    return os.path.normpath(os.path.join(os.path.dirname(source.name), path))  # noqa: PTH118, PTH120  # text, not files


def _targets(sources: set[str]) -> set[str]:
    return {_name(page(name), link.partition("#")[0]) for name in sources for link in page(name).links}
