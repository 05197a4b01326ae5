"""``ferroscope inspect``: start inspections, and watch them until they end."""

from __future__ import annotations

import shlex
from typing import IO, TYPE_CHECKING, Final

import click

from ferroscope_client.cli.input_files import InputFile
from ferroscope_client.cli.lookup import find, label, node_argument
from ferroscope_client.cli.output import CommandOrBelow, Output, table, typed, with_api
from ferroscope_client.cli.selection import NodeSelection, Selection, confirm, resolve, selectors
from ferroscope_client.client import Client, node_path
from ferroscope_client.core import json_safety
from ferroscope_client.core.states import INSPECTABLE, UNDER_WAY, Provision
from ferroscope_client.core.values import many
from ferroscope_client.errors import Exit, Failure

if TYPE_CHECKING:
    from rich.console import Console

    from ferroscope_client.cli.watch import InspectionResult, Watch

_MAX_NAMED: Final = 50


@click.command()
@node_argument
@click.option("--data", "file", type=InputFile("rb"), help="Use this data: the JSON body of a callback.")
@with_api
def reapply(api: Client, out: Output, *, ident: str, file: IO[bytes] | None) -> None:
    """Run hooks and rules again on the stored data of a node's last inspection, without touching the machine."""

    node = find(api, ident)
    body = None
    if file is not None:
        try:
            body = json_safety.decode_own(file.read())
        except json_safety.JsonError as exc:
            raise Failure(f"{file.name} is not JSON: {exc}") from None
        if isinstance(body, dict) and isinstance(body.get("plugin_data"), dict):
            # The format of the Bare Metal API: the rest of the callback is in plugin_data.
            body = {**body["plugin_data"], "inventory": body.get("inventory")}
    api.post(node_path(node["uuid"], "inventory", "reapply"), body)
    accepted = {"node": node["uuid"], "result": "accepted"}
    out.show(accepted, lambda screen: screen.print(f"accepted; to watch it: ferroscope node timeline {label(node)}"))


@click.command(
    cls=CommandOrBelow,
    epilog="--all skips nodes in enroll; --state enroll, patterns and names select them. "
    "--all, --failed, --state and patterns skip nodes in maintenance or in use, and ask for confirmation on a "
    "terminal before machines are power-cycled (unless --yes). Exit code 0: all inspections finished (without --watch "
    "and --wait: were accepted). 1: some inspections failed. 3: no such node. 4: not possible in the current state. "
    "5: the service cannot be reached. 6: --timeout expired.",
)
@selectors
@click.option("-w", "--watch", is_flag=True, help="Show the progress until all inspections have ended.")
@click.option("--wait", is_flag=True, help="Wait until all inspections have ended, and show the results.")
@click.option("--join", is_flag=True, help="Start nothing; wait for inspections that are in progress. Implies --wait.")
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), help="Maximum seconds to wait.")
@click.option("--limit", type=click.IntRange(min=1), help="Maximum number of concurrent inspections. Implies --wait.")
@with_api
def inspect(
    api: Client,
    out: Output,
    *,
    wanted: NodeSelection,
    watch: bool,
    wait: bool,
    join: bool,
    timeout: float | None,
    limit: int | None,
) -> None:
    """Inspect nodes: boot the ramdisk and collect the hardware inventory.

    The machines are power-cycled. Without --watch, --wait or --limit, the command returns when the service has
    accepted the inspections. 'inspect reapply NODE' runs hooks and rules again on stored data (see its --help).
    """
    from ferroscope_client.cli.watch import Watch, WatchedNode, verdict

    waits = watch or wait or join or limit is not None
    if timeout is not None and not waits:
        raise click.UsageError("--timeout requires --watch or --wait")
    # These are not approved yet, or their BMC was never reached.
    inspectable = INSPECTABLE - {Provision.ENROLL} if wanted.everything else INSPECTABLE
    chosen = resolve(api, wanted, states=UNDER_WAY if join else inspectable, spares=not join, inbox=join)
    if any(why == Provision.ENROLL for _, why in chosen.left_out):
        out.say("nodes in enroll are not inspected by --all; for them: ferroscope inspect --state enroll")
    confirm(out, wanted, chosen, does="follow" if join else "power-cycle and inspect", asks=not join)
    if not join:
        _mention_maintenance(out, chosen)
    refused = _refusals(chosen)
    started = Watch(api, [WatchedNode(node["uuid"], label(node)) for node in chosen.nodes], limit=limit, join=join)
    started.total += len(refused)
    started.ended += refused
    if waits:
        _wait(started, out, wanted, timeout, quiet=not watch)
    else:
        started.detach()
    _report(started, out, failures_shown=watch)
    raise click.exceptions.Exit(verdict(started.ended))


inspect.below = (reapply,)


def _refusals(chosen: Selection) -> list[InspectionResult]:
    from ferroscope_client.cli.watch import REFUSED, InspectionResult

    return [
        InspectionResult(
            node=ident,
            uuid="",
            result=REFUSED,
            error=failure.message,
            hint=failure.advice or None,
            code=Exit(failure.exit_code),
        )
        for ident, failure in chosen.failures.items()
    ]


def _mention_maintenance(out: Output, chosen: Selection) -> None:
    """Point out nodes in maintenance: given by identifier they are inspected, but the user may not know."""
    for node in chosen.nodes:
        if node["maintenance"]:
            reason = f" ({node['maintenance_reason']})" if node["maintenance_reason"] else ""
            out.say(f"{label(node)} is in maintenance{reason}; inspecting it anyway")


def _wait(watch: Watch, out: Output, wanted: NodeSelection, timeout: float | None, *, quiet: bool) -> None:
    from ferroscope_client.cli.watch_display import display, follow

    try:
        with display(error=out.for_programs, quiet=quiet) as shown:
            shown.update(watch, watch.ended)
            follow(watch, shown, timeout=timeout)
    except KeyboardInterrupt:
        active = len(watch.active)
        left = f"; {many(len(watch.waiting), 'node was', 'nodes were')} not started" if watch.waiting else ""
        click.echo(f"interrupted: {many(active, 'inspection continues', 'inspections continue')}{left}", err=True)
        if active:
            click.echo(f"  to watch again: {_again(wanted, watch)}", err=True)
        raise


def _again(wanted: NodeSelection, watch: Watch) -> str:
    """Return the command that watches the same inspections without starting any."""
    nodes = wanted.words
    if wanted.failed or wanted.state:
        # These nodes are in another state now.
        names = [watch.label(uuid) for uuid in watch.active]
        nodes = names if len(names) <= _MAX_NAMED else ["--all"]
    return shlex.join(["ferroscope", "inspect", *nodes, "--join", "--watch", *typed("--url"), *typed("--os-cloud")])


def _report(watch: Watch, out: Output, *, failures_shown: bool) -> None:
    """Show the results; failures only if they have not been shown before."""
    from ferroscope_client.cli.watch import NOT_STARTED, STILL_RUNNING, as_data
    from ferroscope_client.cli.watch_display import phases, shown_result

    # Of nodes without a result, show only the number; there may be thousands.
    quiet = {NOT_STARTED} | ({STILL_RUNNING} if watch.counts()[STILL_RUNNING] > _MAX_NAMED else set())
    bad = [] if failures_shown else [end for end in watch.ended if end.code and end.result not in quiet]
    rows = [(end.node, shown_result(end), end.reason or "", end.error or "", end.hint or "") for end in bad]

    def draw(screen: Console) -> None:
        if rows:
            screen.print(table(("NODE", "RESULT", "REASON", "WHAT", "WHAT TO DO"), rows))
        screen.print(", ".join(f"{count:,} {name}" for name, count in phases(watch.counts())) or "nothing to do")

    out.show([as_data(end) for end in watch.ended], draw)
