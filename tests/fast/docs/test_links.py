"""Every link within the repository leads somewhere."""

from __future__ import annotations

import os

import pytest

from tests import ROOT
from tests.fast.docs.pages import Page, page, pages

PAGES = pages()
FRAGMENTS = [page(f"changes/{path.name}") for path in sorted((ROOT / "changes").glob("*.*.md"))]


@pytest.mark.parametrize("source", PAGES, ids=lambda source: source.name)
def test_links_lead_somewhere(source: Page) -> None:
    broken = [link for link in source.links if not _resolves(source, link)]
    assert not broken, f"{source.name} links to what is not there"


@pytest.mark.parametrize("source", FRAGMENTS, ids=lambda source: source.name)
def test_links_of_news_fragments_are_those_of_the_changelog_that_they_go_to(source: Page) -> None:
    changelog = Page("CHANGELOG.md", source.text)
    assert not [link for link in source.links if not _resolves(changelog, link)]


@pytest.mark.parametrize("source", PAGES, ids=lambda source: source.name)
def test_every_page_can_be_reached(source: Page) -> None:
    """From the README or the index, or it is one that hosting sites show by themselves."""
    if source.name in {"README.md", "CONTRIBUTING.md", "SECURITY.md"}:
        return
    assert source.name in _targets({"README.md", "docs/index.md", "CONTRIBUTING.md"}), f"nobody finds {source.name}"


def test_a_link_without_its_file_or_its_heading_is_found() -> None:
    source = Page("docs/index.md", "")
    assert _resolves(source, "adr/001-requests-in-sql.md#decision")
    assert not _resolves(source, "adr/001-requests-in-sql.md#no-such-heading")
    assert not _resolves(source, "adr/no-such-file.md")
    assert not _resolves(source, "../../outside.md")


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
