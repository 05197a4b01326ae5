"""``ferroscope docs``: the pages of the documentation, which every package contains."""

from __future__ import annotations

import difflib
import re
import sys
from pathlib import Path
from typing import Final

import click

import ferroscope
from ferroscope_client.cli.output import Output, output_option, table
from ferroscope_client.cli.text import may_draw
from ferroscope_client.errors import Exit, Failure

_KINDS: Final = ("tutorial", "how-to", "explanation", "reference")
_MAX_SUGGESTIONS: Final = 3


def directory() -> Path | None:
    """Return the directory of the pages: that of the environment, of the distribution, or of the checkout."""
    candidates = (
        Path(sys.prefix) / "share/doc/ferroscope",
        Path("/usr/share/doc/ferroscope"),
        Path(ferroscope.__file__).parents[2] / "docs",
    )
    return next((candidate for candidate in candidates if (candidate / _KINDS[1]).is_dir()), None)


def pages(place: Path) -> dict[str, Path]:
    """Return the pages by name."""
    return {file.stem: file for kind in _KINDS for file in sorted((place / kind).glob("*.md"))}


def section(text: str, anchor: str) -> str:
    """Return the section of a page whose heading has this anchor, in the form of links on the web; "" if none has."""
    kept: list[str] = []
    depth, in_code = 0, False
    for line in text.splitlines():
        in_code ^= line.startswith("```")
        marks, _, title = line.partition(" ")
        if not in_code and marks and not marks.strip("#"):
            if kept and len(marks) <= depth:
                break
            if not kept and _anchor(title) == anchor.lower():
                depth = len(marks)
        if depth:
            kept.append(line)
    return "\n".join(kept).rstrip() + "\n" if kept else ""


def _anchor(title: str) -> str:
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


@click.command(
    epilog="Without NAME, all pages are listed. NAME#SECTION shows one section. On a terminal, PAGER shows the page."
)
@click.argument("name", required=False)
@output_option
def docs(name: str | None, fmt: str) -> None:
    """Show a page of the documentation, such as serve-https; without NAME list all pages."""
    place = directory()
    if place is None:
        raise Failure("this installation does not include the pages", advice="see the directory docs of the source")
    by_name = pages(place)
    if name is None:
        rows = [(page_name, file.parent.name, _title(file)) for page_name, file in by_name.items()]
        listed = [{"name": page_name, "kind": kind, "title": title} for page_name, kind, title in rows]
        Output(fmt).show(listed, lambda screen: screen.print(table(("NAME", "KIND", "TITLE"), rows)))
        return
    page, _, anchor = name.partition("#")
    stem = page.removesuffix(".md").rpartition("/")[2]
    if stem not in by_name:
        raise Failure(f"page {page!r} not found", exit_code=Exit.NOT_FOUND, advice=_advice(stem, by_name))
    text = by_name[stem].read_text(encoding="utf-8")
    if anchor and not (text := section(text, anchor)):
        advice = f"see: ferroscope docs {stem}"
        raise Failure(f"the page {stem} has no section {anchor!r}", exit_code=Exit.NOT_FOUND, advice=advice)
    if may_draw(sys.stdout):
        click.echo_via_pager(text)
    else:
        click.echo(text, nl=False)


def _advice(stem: str, names: dict[str, Path]) -> str:
    near = [page_name for page_name in names if stem and stem in page_name] or difflib.get_close_matches(
        stem, names, n=_MAX_SUGGESTIONS
    )
    return f"did you mean {' or '.join(near[:_MAX_SUGGESTIONS])}?" if near else "list all: ferroscope docs"


def _title(file: Path) -> str:
    with file.open(encoding="utf-8") as lines:
        return next((line.removeprefix("# ").strip() for line in lines if line.startswith("# ")), file.stem)
