"""The pages of the documentation, taken apart: text, code blocks, code spans, links, headings.

Just enough Markdown for our own pages: fenced blocks, backticks, inline links, ``#`` headings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from tests import ROOT

_FENCE: Final = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_SPAN: Final = re.compile(r"`([^`\n]+)`")
_LINK: Final = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^()\s]+)\)")
_HEADING: Final = re.compile(r"^#+ +(.+)$", re.MULTILINE)


class Block(msgspec.Struct, frozen=True):
    """A fenced code block; ``language`` is empty where none is named."""

    language: str
    text: str


class Page(msgspec.Struct, frozen=True):
    """One Markdown file; ``name`` is its path in the repository."""

    name: str
    text: str

    @property
    def path(self) -> Path:
        return ROOT / self.name

    @property
    def blocks(self) -> list[Block]:
        return [Block(match[2], match[3]) for match in _FENCE.finditer(self.text)]

    @property
    def prose(self) -> str:
        """The text without its code blocks."""
        return _FENCE.sub("", self.text)

    @property
    def spans(self) -> list[str]:
        return _SPAN.findall(self.prose)

    @property
    def links(self) -> list[str]:
        return _LINK.findall(_SPAN.sub("", self.prose))

    @property
    def anchors(self) -> set[str]:
        return {slug(heading) for heading in _HEADING.findall(self.prose)}


def slug(heading: str) -> str:
    """Return the anchor that a hosting site makes of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def pages() -> list[Page]:
    """Return every page that people read."""
    found = [*ROOT.glob("*.md"), *(ROOT / "changes").glob("README.md"), *(ROOT / "docs").rglob("*.md")]
    return [page(str(path.relative_to(ROOT))) for path in sorted(found)]


def page(name: str) -> Page:
    return Page(name, (ROOT / name).read_text(encoding="utf-8"))


def typed(block: Block) -> Iterator[str]:
    """Yield the commands of a console block: what follows the prompt."""
    for line in block.text.splitlines():
        prompt, found, command = line.partition("$ ")
        if found and not prompt.strip():
            yield command
