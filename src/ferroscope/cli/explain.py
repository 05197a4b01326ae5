"""``ferroscope explain``: what a reason code means, what to do, and which commands help; needs no service."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

import click

from ferroscope.cli.exits import Exit, Failure
from ferroscope.cli.output import Output, output_option, table
from ferroscope.core.explanations import EXPLANATIONS
from ferroscope.core.reasons import Reason

if TYPE_CHECKING:
    from rich.console import Console


@click.command()
@click.argument("name", metavar="[REASON]", required=False)
@output_option
def explain(name: str | None, fmt: str) -> None:
    """Explain a reason code such as bmc-unreachable: what it means, what to do, which commands help.

    Without REASON, all codes are listed.
    """
    out = Output(fmt)
    if name is None:
        found = [as_data(reason) for reason in sorted(Reason)]
        rows = [(one["reason"], one["meaning"]) for one in found]
        out.show(found, lambda screen: screen.print(table(("REASON", "MEANING"), rows, wraps=("MEANING",))))
        return
    shown = as_data(_reason(name))
    out.show(shown, lambda screen: _draw(screen, shown))


def as_data(reason: Reason) -> dict[str, Any]:
    """Return the explanation for JSON and YAML."""
    one = EXPLANATIONS[reason]
    return {"reason": str(reason), "meaning": one.meaning, "hint": one.hint, "commands": list(one.commands)}


def _reason(name: str) -> Reason:
    """Return the reason of this name, however it is written; ``Failure``."""
    code = name.strip("()").lower().replace("_", "-").replace(" ", "-")
    try:
        return Reason(code)
    except ValueError:
        near = difflib.get_close_matches(code, list(Reason), n=3)
        advice = f"did you mean {' or '.join(near)}?" if near else "list all: ferroscope explain"
        raise Failure(f"unknown reason code {name!r}", exit_code=Exit.NOT_FOUND, advice=advice) from None


def _draw(screen: Console, shown: dict[str, Any]) -> None:
    screen.print(shown["reason"], style="bold")
    screen.print(shown["meaning"])
    screen.print(shown["hint"])
    screen.print()
    for command in shown["commands"]:
        screen.print(f"  {command}")
