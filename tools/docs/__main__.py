"""``python -m tools.docs``: write the generated reference pages, or check that they are what they would be."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import click

# page -> (file, module that renders it)
PAGES: Final[dict[str, tuple[str, str]]] = {
    "config": ("configuration.md", "tools.docs.configuration"),
    "states": ("states.md", "tools.docs.states"),
    "openapi": ("openapi.json", "tools.docs.api"),
    "simulator": ("simulator.md", "tools.docs.simulator"),
    "cli": ("cli.md", "tools.docs.commands"),
    "hooks": ("hooks.md", "tools.docs.hooks"),
    "search": ("search.md", "tools.docs.searching"),
    "metrics": ("metrics.md", "tools.docs.metrics"),
}


@click.command()
@click.argument("pages", metavar=f"[{'|'.join(PAGES)}]...", type=click.Choice(list(PAGES)), nargs=-1)
@click.option("--check", is_flag=True, help="Write nothing; exit code 1 where a page is not up to date.")
@click.option(
    "--directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("docs/reference"),
    show_default=True,
    help="Where the pages are.",
)
def docs(pages: Iterable[str], check: bool, directory: Path) -> None:
    """Generate the reference pages of the documentation; all of them, unless some are named."""
    outdated = []
    for name in pages or PAGES:
        path, text = directory / PAGES[name][0], render(name)
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        outdated.append(name)
        if not check:
            directory.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            click.echo(f"wrote {path}")
    if check and outdated:
        files = ", ".join(str(directory / PAGES[name][0]) for name in outdated)
        raise click.ClickException(f"not up to date: {files}\n  run: python -m tools.docs {' '.join(outdated)}")


def render(page: str) -> str:
    """Return the text of a page, with a final newline."""
    text = importlib.import_module(PAGES[page][1]).render()
    assert isinstance(text, str)  # the table above says so
    return text


if __name__ == "__main__":
    docs()
