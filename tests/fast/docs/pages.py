"""The pages of the documentation, taken apart: text, code blocks, code spans, links, headings.

Just enough Markdown for our own pages: fenced blocks, backticks, inline links, ``#`` headings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Final

from tests import ROOT

_FENCE: Final = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_SPAN: Final = re.compile(r"`([^`\n]+)`")
_LINK: Final = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^()\s]+)\)")
_HEADING: Final = re.compile(r"^#+ +(.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced code block; ``language`` is empty where none is named."""

    language: str
    text: str


@dataclass(frozen=True)
class Page:
    """One Markdown file; ``name`` is its path in the repository."""

    name: str
    text: str

    @property
    def path(self) -> Path:
        return ROOT / self.name

    @cached_property
    def blocks(self) -> list[Block]:
        return [Block(match[2], match[3]) for match in _FENCE.finditer(self.text)]

    @cached_property
    def prose(self) -> str:
        """The text without its code blocks."""
        return _FENCE.sub("", self.text)

    @cached_property
    def spans(self) -> list[str]:
        return _SPAN.findall(self.prose)

    @cached_property
    def links(self) -> list[str]:
        return _LINK.findall(_SPAN.sub("", self.prose))

    @cached_property
    def anchors(self) -> set[str]:
        return {slug(heading) for heading in _HEADING.findall(self.prose)}

    def at(self, text: str) -> str:
        """Return the page and the first line that has ``text``, as editors and compilers write it."""
        place = self.text.find(text)
        return f"{self.name}:{self.text.count(chr(10), 0, place) + 1}" if place >= 0 else self.name


def slug(heading: str) -> str:
    """Return the anchor that a hosting site makes of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@cache
def pages() -> tuple[Page, ...]:
    """Return every page that people read."""
    found = [*ROOT.glob("*.md"), *(ROOT / "changes").glob("README.md"), *(ROOT / "docs").rglob("*.md")]
    return tuple(page(str(path.relative_to(ROOT))) for path in sorted(found))


@cache
def page(name: str) -> Page:
    return Page(name, (ROOT / name).read_text(encoding="utf-8"))


def typed(block: Block) -> Iterator[str]:
    """Yield the commands of a console block: what follows the prompt."""
    for line in block.text.splitlines():
        prompt, found, command = line.partition("$ ")
        if found and not prompt.strip():
            yield command
