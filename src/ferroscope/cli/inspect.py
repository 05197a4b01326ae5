"""``ferroscope inspect``: start inspections, and see them through to their end."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Any, Final

import click

from ferroscope.cli.client import Api, node_path
from ferroscope.cli.exits import Exit, Failure
from ferroscope.cli.lookup import NODE_HELP, find, label
from ferroscope.cli.output import Output, table, with_api

if TYPE_CHECKING:
    from rich.console import Console

    from ferroscope.cli.watch import Ended, Target, Watch

_STARTABLE: Final = ("enroll", "manageable", "inspect failed")
_UNDER_WAY: Final = ("inspecting", "inspect wait")


class _Inspect(click.Command):
    """``inspect NODE...``, unless the first word is that of the one verb below it."""

    @property
    def below(self) -> tuple[click.Command, ...]:
        """What the reference lists beside it."""
        return (reapply,)

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        if args[:1] == [reapply.name]:
            return reapply.make_context(f"{info_name} {reapply.name}", args[1:], parent=parent, **extra)
        return super().make_context(info_name, args, parent=parent, **extra)


@click.command()
@click.argument("ident", metavar="NODE")
@click.option("--data", "file", type=click.File("rb"), help="Other data: a callback's body as JSON.")
@with_api
def reapply(api: Api, out: Output, *, ident: str, file: IO[bytes] | None) -> None:
    """Run the hooks once more over the stored data of a node's last inspection; the machine is left alone."""
    import msgspec

    node = find(api, ident)
    body = None
    if file is not None:
        try:
            body = msgspec.json.decode(file.read())
        except msgspec.DecodeError as exc:
            raise Failure(f"{file.name} is not JSON: {exc}") from None
        if isinstance(body, dict) and isinstance(body.get("plugin_data"), dict):
            # As the Bare Metal API gives it: the rest of the callback is beside the inventory there.
            body = {**body["plugin_data"], "inventory": body.get("inventory")}
    api.post(node_path(node["uuid"], "inventory", "reapply"), body)
    accepted = {"node": node["uuid"], "result": "accepted"}
    out.show(accepted, lambda screen: screen.print(f"accepted; follow it: ferroscope node timeline {label(node)}"))


@click.command(
    cls=_Inspect,
    epilog="Exit code 0: all are inspected (without --watch and --wait: all are accepted). 1: some ended in error. "
    "3: no such node. 4: the state does not permit it. 5: the service is out of reach. 6: --timeout has passed.",
)
@click.argument("idents", metavar="[NODE...]", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All nodes whose state permits it.")
@click.option("--failed", is_flag=True, help="All nodes whose last inspection failed.")
@click.option("-w", "--watch", is_flag=True, help="Show the progress until all have ended.")
@click.option("--wait", is_flag=True, help="Wait until all have ended, and say only how.")
@click.option("--join", is_flag=True, help="Take part in inspections that are under way already.")
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), help="Seconds to wait at the most.")
@click.option("--limit", type=click.IntRange(min=1), help="At the most so many at a time; waits, like --wait.")
@with_api
def inspect(
    api: Api,
    out: Output,
    *,
    idents: tuple[str, ...],
    everything: bool,
    failed: bool,
    watch: bool,
    wait: bool,
    join: bool,
    timeout: float | None,
    limit: int | None,
) -> None:
    """Inspect nodes: boot the ramdisk on them and learn their hardware.

    Without --watch, --wait or --limit it returns as soon as the service has accepted. 'inspect reapply NODE' runs
    the hooks once more over stored data (see its own --help).
    """
    from ferroscope.cli.watch import Watch, verdict

    if bool(idents) + everything + failed != 1:
        raise click.UsageError(f"name the nodes, or use --all or --failed (one of the three). {NODE_HELP}")
    if timeout is not None and not (watch or wait or limit):
        raise click.UsageError("--timeout needs --watch or --wait")
    refused: list[Ended] = []
    targets = _named(api, idents, refused) if idents else _all(api, out, _states(failed=failed, join=join))
    started = Watch(api, targets, limit=limit, join=join)
    started.total += len(refused)
    started.ended += refused
    if watch or wait or limit:
        _see_through(started, out, timeout, quiet=not watch)
    else:
        started.let_go()
    _report(started, out, told=watch)
    raise click.exceptions.Exit(verdict(started.ended))


def _named(api: Api, idents: tuple[str, ...], refused: list[Ended]) -> list[Target]:
    from ferroscope.cli.watch import REFUSED, Ended, Target

    targets: dict[str, Target] = {}
    for ident in idents:
        try:
            node = find(api, ident)
        except Failure as exc:
            if exc.exit_code not in (Exit.NOT_FOUND, Exit.CONFLICT):
                raise
            code = Exit(exc.exit_code)
            refused.append(Ended(node=ident, uuid="", result=REFUSED, error=exc.message, code=code))
        else:
            targets[node["uuid"]] = Target(node["uuid"], label(node))
    return list(targets.values())


def _states(*, failed: bool, join: bool) -> tuple[str, ...]:
    """Return the provision states whose nodes --all or --failed mean."""
    states = ("inspect failed",) if failed else _STARTABLE
    return (*states, *_UNDER_WAY) if join else states


def _all(api: Api, out: Output, states: tuple[str, ...]) -> list[Target]:
    """Return all nodes in these states, and say what is left out."""
    from collections import Counter

    from ferroscope.cli.watch import Target

    left: Counter[str] = Counter()
    targets = []
    for node in api.pages("/v1/nodes", "nodes", fields=("uuid", "name", "provision_state")):
        if node["provision_state"] in states:
            targets.append(Target(node["uuid"], label(node)))
        else:
            left[node["provision_state"]] += 1
    if left:
        out.say(f"left out: {', '.join(f'{count} {state}' for state, count in sorted(left.items()))}")
    return targets


def _see_through(watch: Watch, out: Output, timeout: float | None, *, quiet: bool) -> None:
    from ferroscope.cli.progress import Display, display, follow

    try:
        with Display() if quiet else display(error=out.for_programs) as shown:
            shown.update(watch, watch.ended)
            follow(watch, shown, timeout=timeout)
    except KeyboardInterrupt:
        click.echo(f"interrupted: {len(watch.active)} inspections go on", err=True)
        click.echo("  follow them again: ferroscope inspect --all --join --watch", err=True)
        raise


def _report(watch: Watch, out: Output, *, told: bool) -> None:
    """Show how everything ended; failures only where they were not ``told`` while it went on."""
    from ferroscope.cli.progress import phases
    from ferroscope.cli.watch import as_data

    bad = [] if told else [end for end in watch.ended if end.code]
    rows = [(end.node, end.result, end.reason or "", end.error or "", end.hint or "") for end in bad]

    def draw(screen: Console) -> None:
        if rows:
            screen.print(table(("NODE", "RESULT", "REASON", "WHAT", "WHAT TO DO"), rows))
        screen.print(
            ", ".join(f"{count} {name}" for name, count in phases(watch.counts())) or "there was nothing to do"
        )

    out.show([as_data(end) for end in watch.ended], draw)
