"""``ferroscope import``: take over the data of other services. It works on the database, while the service runs."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final

import click
import msgspec

from ferroscope.cli.client import Api, connect, node_path
from ferroscope.cli.exits import Exit, Failure
from ferroscope.cli.output import Group, Output, cloud_option, insecure_option, output_option, table, url_option
from ferroscope.cli.service import config_option, database_option, settings_of
from ferroscope.core.states import INSPECTABLE, Provision

if TYPE_CHECKING:
    from rich.console import Console

    from ferroscope.runtime.inspector_import import Item

# What needs no attention is counted only.
_QUIET: Final = ("imported", "already imported", "rolled back")
# The provision states of nodes that are created.
_CREATED: Final = sorted(str(state) for state in INSPECTABLE - {Provision.INSPECT_FAILED})


@click.group("import", cls=Group)
def imports() -> None:
    """Import the data of other services."""


@imports.command(epilog="Exit code 0: everything was imported, or is reported.")
@click.argument("source")
@click.option("--dry-run", is_flag=True, help="Only report what would be done.")
@click.option(
    "--create",
    type=click.Choice(_CREATED),
    help="Create nodes that are unknown here, in this provision state. [default: only report them]",
)
@click.option("--driver", help="Driver of nodes that are created.")
@click.option(
    "--start", is_flag=True, help="Start what is in progress there again here, through the API of the service."
)
@click.option("--rollback", is_flag=True, help="Undo an earlier import, except for what was changed since.")
@config_option
@database_option
@url_option
@cloud_option
@insecure_option
@output_option
def inspector(
    source: str,
    create: str | None,
    driver: str | None,
    files: tuple[str, ...],
    database: str | None,
    url: str | None,
    cloud: str | None,
    fmt: str,
    *,
    insecure_http: bool,
    dry_run: bool,
    start: bool,
    rollback: bool,
) -> None:
    """Import introspections, their data and rules from the database of ironic-inspector 12.5.

    SOURCE is its configuration file, such as /etc/ironic-inspector/inspector.conf, or the SQLAlchemy URL of its
    database. It is only read. Nodes are identified by UUID. An import may be repeated: it adds what is new.
    """
    from ferroscope.contracts.errors import StoreUnavailableError
    from ferroscope.runtime import inspector_import
    from ferroscope.runtime.system import SetupError

    if rollback and (create or start):
        raise click.UsageError("--rollback does not go with --create or --start")
    if (create is None) is not (driver is None):
        raise click.UsageError("--create and --driver require each other")
    settings = settings_of(files, database)
    try:
        if rollback:
            items = inspector_import.roll_back(settings, source, dry_run=dry_run)
        else:
            options = inspector_import.Options(
                dry_run=dry_run, create=None if create is None else Provision(create), driver=driver or ""
            )
            items = inspector_import.run(settings, source, options)
    except StoreUnavailableError as exc:
        raise Failure(str(exc), exit_code=Exit.UNREACHABLE) from exc
    except (SetupError, ValueError) as exc:
        raise click.ClickException(str(exc)) from exc
    if start and not dry_run:
        api = connect(url, cloud=cloud, insecure_http=insecure_http)
        items = [_started(api, item) if item.result == "in progress" else item for item in items]
    counts = inspector_import.counts(items)
    data = {"dry_run": dry_run, "counts": counts, "items": [msgspec.to_builtins(item) for item in items]}
    Output(fmt).show(data, lambda screen: _draw(screen, items, counts, dry_run=dry_run))


def _started(api: Api, item: Item) -> Item:
    """Start the inspection of a node, unless that was done after the one there had begun; return what was done."""
    try:
        began = api.get(node_path(item.uuid))["inspection_started_at"]
        if began and datetime.fromisoformat(began).timestamp() > (item.started_at or 0.0):
            return msgspec.structs.replace(item, detail="it was started here before")
        api.post(f"/v1/introspection/{item.uuid}?manage_boot={item.manage_boot}")
    except Failure as exc:
        return msgspec.structs.replace(item, detail=f"it could not be started here: {exc.message}")
    return msgspec.structs.replace(item, result="started")


def _draw(screen: Console, items: list[Item], counts: dict[str, int], *, dry_run: bool) -> None:
    notable = [item for item in items if item.detail or item.result not in _QUIET]
    if notable:
        rows = [(item.kind, item.uuid, item.result, item.detail) for item in notable]
        screen.print(table(("KIND", "UUID", "RESULT", "DETAIL"), rows))
    summary = ", ".join(f"{number} {what}" for what, number in sorted(counts.items())) or "there is nothing to import"
    screen.print(f"{'dry run, nothing was changed: ' if dry_run else ''}{summary}")
