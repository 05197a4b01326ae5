"""Selection of nodes for a command: by identifier, by a pattern of names, by labels, or by --all, --failed and --state.

Nodes given by identifier are never skipped. Of nodes selected in bulk, those for which the command is not possible or
not advisable are skipped and counted, and on a terminal the user is asked before machines are power-cycled.
"""

from __future__ import annotations

import functools
import sys
from collections import Counter
from collections.abc import Callable, Container, Iterable
from fnmatch import fnmatchcase
from typing import Any, Final

import click
import msgspec

from ferroscope_client.cli.lookup import NODE_HELP, complete_names, find, label
from ferroscope_client.cli.output import Output, table
from ferroscope_client.cli.text import is_terminal
from ferroscope_client.client import Client, Json
from ferroscope_client.core import labels
from ferroscope_client.core.states import Provision
from ferroscope_client.core.values import many, natural
from ferroscope_client.errors import Exit, Failure
from ferroscope_client.hardware import names

FIELDS: Final = ("uuid", "name", "provision_state", "maintenance", "maintenance_reason", "instance_uuid", "inbox")
_FIELDS_IN_THE_INBOX: Final = (*FIELDS, "hardware")

_PATTERN: Final = frozenset("*?[")
_MAX_SHOWN: Final = 6


class StateType(click.ParamType):  # type: ignore[type-arg]  # generic since 8.2 only
    """A provision state; ``inspect-failed`` is accepted for ``inspect failed``, and needs no quotes."""

    name = "state"
    states: Final = tuple(str(state) for state in Provision)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        state = str(value).strip().lower().replace("-", " ").replace("_", " ")
        if state not in self.states:
            self.fail(f"invalid state {value!r}: choose from {', '.join(self.states)}", param, ctx)
        return state

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
        from click.shell_completion import CompletionItem

        spelled = [state.replace(" ", "-") for state in self.states]
        return [CompletionItem(state) for state in spelled if state.startswith(incomplete)]


class NodeSelection(msgspec.Struct, frozen=True):
    """The selection on the command line."""

    idents: tuple[str, ...] = ()
    everything: bool = False
    failed: bool = False
    state: str | None = None
    labels: str | None = None
    yes: bool = False
    dry_run: bool = False

    @property
    def words(self) -> list[str]:
        """Return the selection as arguments of the same command."""
        arguments = [*self.idents, *(["--all"] if self.everything else []), *(["--failed"] if self.failed else [])]
        arguments += [] if self.state is None else ["--state", self.state.replace(" ", "-")]
        return arguments if self.labels is None else [*arguments, "--selector", self.labels]


class Selection(msgspec.Struct):
    """``found``: the node, or the failure, for each identifier. ``left_out``: skipped nodes with the reason."""

    found: dict[str, Json | Failure]
    left_out: list[tuple[Json, str]]
    bulk: bool

    @property
    def nodes(self) -> list[Json]:
        return [node for node in self.found.values() if not isinstance(node, Failure)]

    @property
    def failures(self) -> dict[str, Failure]:
        return {ident: node for ident, node in self.found.items() if isinstance(node, Failure)}


class SelectorType(click.ParamType):  # type: ignore[type-arg]  # generic since 8.2 only
    """A selector of labels, as the API takes it."""

    name = "selector"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            labels.selector(str(value))
        except labels.LabelError as exc:
            self.fail(str(exc), param, ctx)
        return str(value)


selector_option = click.option(
    "-l",
    "--selector",
    type=SelectorType(),
    metavar="LABELS",
    help="Only nodes with these labels: rack=r1,role!=db, spare, !spare, 'rack in (r1,r2)'.",
)


def selectors(function: Callable[..., None]) -> Callable[..., None]:
    """Add NODE... and the options that select nodes to a command, which receives them as ``wanted``."""

    @click.argument("idents", metavar="[NODE...]", nargs=-1, shell_complete=complete_names)
    @click.option("--all", "everything", is_flag=True, help="All nodes in a state that allows it.")
    @click.option("--failed", is_flag=True, help="Short for --state inspect-failed.")
    @click.option("--state", type=StateType(), metavar="STATE", help="All nodes in this state.")
    @selector_option
    @click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation; implied without a terminal.")
    @click.option("--dry-run", is_flag=True, help="Only show which nodes are selected, and which are skipped.")
    @functools.wraps(function)
    def run(
        *args: Any,
        idents: tuple[str, ...],
        everything: bool,
        failed: bool,
        state: str | None,
        selector: str | None,
        yes: bool,
        dry_run: bool,
        **kwargs: Any,
    ) -> None:
        wanted = NodeSelection(idents, everything, failed, state, selector, yes, dry_run)
        function(*args, wanted=wanted, **kwargs)

    return run


def check(wanted: NodeSelection) -> None:
    """Raise ``UsageError`` unless nodes are selected in exactly one way; labels are one, or narrow the others."""
    ways = bool(wanted.idents) + wanted.everything + wanted.failed + (wanted.state is not None)
    if ways > 1 or not (ways or wanted.labels is not None):
        raise click.UsageError(
            f"specify nodes, exactly one of --all, --failed and --state, or labels (-l rack=r1). {NODE_HELP} "
            "A pattern such as 'rack1-*' selects all nodes with matching names."
        )
    if wanted.labels is not None and not all(map(is_pattern, wanted.idents)):
        raise click.UsageError("--selector narrows patterns, --all, --failed and --state, not nodes that are named")


def resolve(
    api: Client,
    wanted: NodeSelection,
    *,
    states: Container[str] | None = None,
    spares: bool = False,
    inbox: bool = False,
    only_inbox: bool = False,
) -> Selection:
    """Return the selected nodes.

    Of nodes selected in bulk, those in other ``states`` are skipped; with ``spares`` also those in maintenance or in
    use, and without ``inbox`` also those in the inbox. ``only_inbox`` selects from the inbox only. Nodes given by
    identifier are never skipped.
    """
    check(wanted)
    bulk = not wanted.idents or any(is_pattern(ident) for ident in wanted.idents)
    fleet = every(api, inbox=True if only_inbox else None, labels=wanted.labels) if bulk else []
    nodes_found: dict[str, Json | Failure] = {}
    left: list[tuple[Json, str]] = []
    seen: set[str] = set()

    def choose(nodes: Iterable[Json]) -> None:
        for node in nodes:
            if node["uuid"] in seen:
                continue
            seen.add(node["uuid"])
            why = _why_not(node, states, spares=spares, inbox=inbox or only_inbox)
            if why:
                left.append((node, why))
            else:
                nodes_found[label(node)] = node

    if not wanted.idents:
        state = str(Provision.INSPECT_FAILED) if wanted.failed else wanted.state
        choose(node for node in fleet if state is None or node["provision_state"] == state)
    for ident in wanted.idents:
        if is_pattern(ident):
            fitting = [node for node in fleet if fnmatchcase(node["name"] or suggested(node) or "", ident)]
            if not fitting:
                nodes_found[ident] = _no_match(ident)
            choose(fitting)
            continue
        try:
            node = find(api, ident, fields=_FIELDS_IN_THE_INBOX if only_inbox else FIELDS)
        except Failure as exc:
            if exc.exit_code not in (Exit.NOT_FOUND, Exit.CONFLICT):
                raise
            nodes_found[ident] = exc
        else:
            if node["uuid"] not in seen:
                seen.add(node["uuid"])
                nodes_found[ident] = node
    return Selection(nodes_found, left, bulk)


def confirm(out: Output, wanted: NodeSelection, chosen: Selection, *, does: str, asks: bool) -> None:
    """Report skipped nodes, and labels that no node has; end a dry run; with ``asks``, ask on a terminal."""
    if wanted.labels is not None and not (chosen.found or chosen.left_out):
        among = "" if wanted.everything or not (wanted.failed or wanted.state) else " in this state"
        out.say(f"no node{among} has the labels {wanted.labels}")
    if wanted.dry_run:
        _show_plan(out, chosen, does)
        raise click.exceptions.Exit(Exit.NOT_FOUND if chosen.failures else Exit.OK)
    counted = left_out(chosen)
    if counted:
        out.say(counted)
    nodes = chosen.nodes
    if chosen.bulk and asks and nodes and not wanted.yes and is_terminal(sys.stdin):
        names = ", ".join(label(node) for node in nodes[:_MAX_SHOWN]) + (" ..." if len(nodes) > _MAX_SHOWN else "")
        click.confirm(f"{does.capitalize()} {many(len(nodes), 'machine')} ({names})?", abort=True, err=True)


def left_out(chosen: Selection) -> str:
    """Return how many nodes are skipped, and why."""
    counts = Counter(why.partition(":")[0] for _, why in chosen.left_out)
    return f"skipped: {', '.join(f'{count} {why}' for why, count in sorted(counts.items()))}" if counts else ""


def every(api: Client, *, inbox: bool | None = None, labels: str | None = None) -> list[Json]:
    """Return all nodes, or all that are in the ``inbox`` or not, or have such ``labels``, sorted by name."""
    fields = _FIELDS_IN_THE_INBOX if inbox else FIELDS
    listed = api.pages("/v1/nodes", "nodes", fields=fields, inbox=inbox, labels=labels)
    return sorted(listed, key=lambda node: natural(label(node)))


def suggested(node: Json) -> str | None:
    """Return a name from the machine's serial number, for a node without a name; None if it is unknown."""
    return names.suggestion((node.get("hardware") or {}).get("serial"))


def is_pattern(ident: str) -> bool:
    """Return whether this is a pattern of names."""
    return not _PATTERN.isdisjoint(ident)


def _why_not(node: Json, states: Container[str] | None, *, spares: bool, inbox: bool) -> str | None:
    if node["inbox"] and not inbox:
        return "in the inbox"
    if states is not None and node["provision_state"] not in states:
        return str(node["provision_state"])
    if spares and node["maintenance"]:
        return f"in maintenance: {node['maintenance_reason']}" if node["maintenance_reason"] else "in maintenance"
    return "in use" if spares and node["instance_uuid"] else None


def _no_match(pattern: str) -> Failure:
    return Failure(f"no matching nodes: {pattern}", exit_code=Exit.NOT_FOUND, advice="ferroscope node list")


def _show_plan(out: Output, chosen: Selection, does: str) -> None:
    plan: list[Json] = [
        {"node": ident, "uuid": None, "result": "not found", "why": node.message}
        if isinstance(node, Failure)
        else {"node": label(node), "uuid": node["uuid"], "result": f"would {does}", "why": None}
        for ident, node in chosen.found.items()
    ]
    plan += [
        {"node": label(node), "uuid": node["uuid"], "result": "skipped", "why": why} for node, why in chosen.left_out
    ]
    rows = [(row["node"], row["result"], row["why"] or "") for row in plan]
    out.show(plan, lambda screen: screen.print(table(("NODE", "RESULT", "WHY"), rows)))
    if not out.for_programs:
        counted = left_out(chosen)
        out.say(f"would {does} {many(len(chosen.nodes), 'machine')}" + (f"; {counted}" if counted else ""))
