"""Sphinx's configuration for ``python3 -m tools site``: docs/ as a web site with a search of its own."""

from __future__ import annotations

import re
from pathlib import Path

from pygments.lexers.special import TextLexer

_ROOT = Path(__file__).parents[2]
_DOCS = _ROOT / "docs"
_LINK = re.compile(r"\[([^][]*)\]\((?!\w+:)([^()#\s][^()\s]*)\)")
_PARTS = {
    "tutorial": "Tutorials",
    "how-to": "How-to guides",
    "reference": "Reference",
    "explanation": "Explanation",
    "adr": "Design decisions",
}

project = "Ferroscope"
author = "the Ferroscope developers"
release = re.search('__version__ = "(.+)"', (_ROOT / "client/src/ferroscope_client/__init__.py").read_text())[1]

extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
myst_heading_anchors = 5
nitpicky = True

html_theme = "furo"
html_title = f"Ferroscope {release}"
html_copy_source = False
html_show_sphinx = False


def _adapt(_app, name: str, source: list[str]) -> None:
    """Add the tree of all pages to the first one, and let links out of docs/ lead to copies of the files."""
    page = _DOCS / f"{name}.md"

    def adapted(link: re.Match[str]) -> str:
        text, target = link.groups()
        file = (page.parent / target.partition("#")[0]).resolve()
        if file.is_relative_to(_DOCS):
            return link[0]
        return text if file.is_dir() else f"[{text}](path:{target.partition('#')[0]})"

    source[0] = _LINK.sub(adapted, source[0])
    if name == "index":
        for directory, caption in _PARTS.items():
            source[0] += f"\n```{{toctree}}\n:hidden:\n:glob:\n:caption: {caption}\n\n{directory}/*\n```\n"


def setup(app) -> None:
    app.connect("source-read", _adapt)
    for name in ("csv", "mermaid"):  # Pygments has no lexer for them
        app.add_lexer(name, TextLexer)
