"""One verb for many nodes: every node gets its turn, and the end tells of all failures at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import click

from ferroscope.cli.client import Api, Json
from ferroscope.cli.exits import Failure, worst
from ferroscope.cli.lookup import find, label
from ferroscope.cli.output import Output, table


def each(api: Api, out: Output, idents: Iterable[str], act: Callable[[Json], object], *, done: str) -> list[Json]:
    """Do ``act`` to every node, show what became of each, and return those that it was done to.

    Ends the command where any failed: with the code of the failures where all have the same, else 1.
    """
    results, reached, failures = [], [], []
    for ident in dict.fromkeys(idents):
        try:
            node = find(api, ident)
            act(node)
        except Failure as exc:
            failures.append(exc)
            results.append({"node": ident, "uuid": None, "result": "failed", "error": exc.message})
        else:
            reached.append(node)
            results.append({"node": label(node), "uuid": node["uuid"], "result": done, "error": None})
    rows = [(row["node"], row["result"], row["error"] or "") for row in results]
    out.show(results, lambda screen: screen.print(table(("NODE", "RESULT", "ERROR"), rows)))
    if failures:
        raise click.exceptions.Exit(worst(failures))
    return reached
