"""``python -m tools.docs``: write the generated reference pages, or check that they are up to date."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import click

# page -> (file, module:function that renders it)
PAGES: Final[dict[str, tuple[str, str]]] = {
    "config": ("configuration.md", "tools.docs.declarations:configuration"),
    "states": ("states.md", "tools.docs.states:render"),
    "simulator": ("simulator.md", "tools.docs.simulator:render"),
    "cli": ("cli.md", "tools.docs.commands:render"),
    "hooks": ("hooks.md", "tools.docs.declarations:hooks"),
    "search": ("search.md", "tools.docs.searching:render"),
    "limits": ("limits.md", "tools.docs.limits:render"),
    "policies": ("policies.md", "tools.docs.policies:render"),
    "field-policies": ("policies-of-fields.md", "tools.docs.field_policies:render"),
    "events": ("events.md", "tools.docs.events:render"),
    "reasons": ("reasons.md", "tools.docs.declarations:reasons"),
    "metrics": ("metrics.md", "tools.docs.declarations:metrics"),
    "tested-bmcs": ("tested-bmcs.md", "tools.docs.vendors:render"),
    "specifications": ("specifications.md", "tools.docs.specifications:render"),
    "chart": ("../../deploy/helm/ferroscope/values.schema.json", "tools.docs.chart:schema"),
    "chart-rules": ("../../deploy/helm/ferroscope/ferroscope.rules.yml", "tools.docs.chart:rules"),
    "prometheus-rule": ("../../deploy/kubernetes/prometheus-rule/rules.yaml", "tools.docs.chart:prometheus_rule"),
}


@click.command()
@click.argument("pages", metavar=f"[{'|'.join(PAGES)}]...", type=click.Choice(list(PAGES)), nargs=-1)
@click.option("--check", is_flag=True, help="Write nothing; exit code 1 if a page is not up to date.")
@click.option(
    "--directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("docs/reference"),
    show_default=True,
    help="Directory of the pages.",
)
def docs(pages: Iterable[str], check: bool, directory: Path) -> None:
    """Generate the reference pages of the documentation; by default all of them."""
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
    module, function = PAGES[page][1].split(":")
    text = getattr(importlib.import_module(module), function)()
    assert isinstance(text, str)  # as declared in the table above
    return text


if __name__ == "__main__":
    docs()
