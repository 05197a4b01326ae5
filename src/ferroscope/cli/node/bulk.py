"""One verb for many nodes: every node gets its turn, and the end tells of all failures at once."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import click

from ferroscope.cli.client import Json
from ferroscope.cli.exits import Failure, worst
from ferroscope.cli.lookup import label
from ferroscope.cli.output import Output, table
from ferroscope.cli.selection import Selection


def each(
    out: Output,
    chosen: Selection,
    act: Callable[[Json], object],
    *,
    done: str,
    wait: Callable[[Json], object] | None = None,
) -> list[Json]:
    """Do ``act`` to every node, show what became of each, and return those that it was done to.

    ``wait`` waits for the end of it, where ``act`` only asks; it begins when all have been asked.
    Ends the command where any failed: with the code of the failures where all have the same, else 1.
    """
    nodes: dict[str, Json] = {}
    failures = chosen.failures

    def attempt(ident: str, work: Callable[[], object]) -> None:
        try:
            work()
        except Failure as exc:
            failures[ident] = exc

    def ask(ident: str, node: Json) -> None:
        act(node)
        nodes[ident] = node

    for ident, found in chosen.found.items():
        if not isinstance(found, Failure):
            attempt(ident, partial(ask, ident, found))
    if wait is not None:
        for ident, node in nodes.items():
            attempt(ident, partial(wait, node))
    results = [_result(ident, nodes.get(ident), failures.get(ident), done) for ident in chosen.found]
    rows = [(row["node"], row["result"], row["error"] or "") for row in results]
    if rows or out.for_programs:
        out.show(results, lambda screen: screen.print(table(("NODE", "RESULT", "ERROR"), rows)))
    else:
        out.say("there was nothing to do")
    if failures:
        raise click.exceptions.Exit(worst(list(failures.values())))
    return list(nodes.values())


def _result(ident: str, node: Json | None, failure: Failure | None, done: str) -> Json:
    if failure is not None:
        return {"node": ident, "uuid": None, "result": "failed", "error": failure.message}
    assert node is not None  # noqa: S101  # it did not fail
    return {"node": label(node), "uuid": node["uuid"], "result": done, "error": None}
