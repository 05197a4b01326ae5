"""``ferroscope import``: take over the data of other services. They work on the database, while the service runs."""

from __future__ import annotations

import csv
import io
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from ferroscope.cli.service import config_option, database_option, settings_of
from ferroscope.config.errors import extra
from ferroscope_client.cli.input_files import InputPath
from ferroscope_client.cli.output import Group, Output, cloud_option, insecure_option, output_option, table, url_option
from ferroscope_client.cli.screen import track
from ferroscope_client.client import Client, ServiceError, connect
from ferroscope_client.core.states import INSPECTABLE, Provision
from ferroscope_client.core.text_files import NotTextError, text_of
from ferroscope_client.core.values import many
from ferroscope_client.errors import Exit, Failure

if TYPE_CHECKING:
    from rich.console import Console

    from ferroscope.config.options import Settings
    from ferroscope.contrib.openstack.imports.documents import IronicDocuments
    from ferroscope.contrib.openstack.imports.imported import ImportItem
    from ferroscope.core.model import Document

# Results that need no attention are only counted.
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
    "--start", is_flag=True, help="Restart inspections that are in progress there, through this service's API."
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
    from ferroscope.config.errors import SetupError
    from ferroscope.contracts.errors import StoreError
    from ferroscope.contrib.openstack.imports import inspector as inspector_import

    if rollback and (create or start):
        raise click.UsageError("--rollback does not go with --create or --start")
    if (create is None) is not (driver is None):
        raise click.UsageError("--create and --driver require each other")
    settings = settings_of(files, database)
    try:
        if rollback:
            items = inspector_import.roll_back(settings, source, _track_back, dry_run=dry_run)
        else:
            options = inspector_import.InspectorImportOptions(
                dry_run=dry_run, create=None if create is None else Provision(create), driver=driver or ""
            )
            items = inspector_import.run(settings, source, options, _track)
    except StoreError as exc:
        raise Failure(str(exc), exit_code=Exit.UNREACHABLE) from exc
    except (SetupError, ValueError) as exc:
        raise click.ClickException(str(exc)) from exc
    if start and not dry_run:
        api = connect(url, cloud=cloud, insecure_http=insecure_http)
        items = [_start(api, item) if item.result == "in progress" else item for item in items]
    _show(fmt, items, dry_run=dry_run)


def _track(nodes: Iterable[Any]) -> Iterator[Any]:
    return track(nodes, "Importing")


def _track_back(nodes: Iterable[Any]) -> Iterator[Any]:
    return track(nodes, "Rolling back")


def _start(api: Client, item: ImportItem) -> ImportItem:
    """Start the inspection of a node, unless that was done after the one there had begun; return what was done."""
    try:
        began = _last_started(api, item.uuid)
        if began and datetime.fromisoformat(began).timestamp() > (item.started_at or 0.0):
            return msgspec.structs.replace(item, detail="it was started here before")
        api.post(f"/v1/introspection/{item.uuid}?manage_boot={item.manage_boot}")
    except Failure as exc:
        return msgspec.structs.replace(item, detail=f"it could not be started here: {exc.message}")
    detail = "boot its ramdisk: it was started there with manage_boot=false" if item.manage_boot is False else ""
    return msgspec.structs.replace(item, result="started", detail=detail)


def _last_started(api: Client, uuid: str) -> str | None:
    """Return when the newest inspection here began, in microseconds: it may be in the same second as the one there."""
    try:
        started_at: str | None = api.get(f"/v1/introspection/{uuid}")["started_at"]
    except ServiceError as exc:
        if exc.status != 404:
            raise
        return None  # never inspected here, or unknown; in the latter case the start will say so
    return started_at


def _show(fmt: str, items: list[ImportItem], *, dry_run: bool) -> None:
    """Show the report of an import."""
    from ferroscope.contrib.openstack.imports.imported import counts

    data = {"dry_run": dry_run, "counts": counts(items), "items": [msgspec.to_builtins(item) for item in items]}
    Output(fmt).show(data, lambda screen: _draw(screen, items, dry_run=dry_run))


def _draw(screen: Console, items: list[ImportItem], *, dry_run: bool) -> None:
    """Show what needs attention, and how often each result occurs."""
    from ferroscope.contrib.openstack.imports.imported import PLURALS

    notable = [item for item in items if item.detail or item.result not in _QUIET]
    if notable:
        rows = [(item.kind, item.uuid, item.result, item.detail) for item in notable]
        screen.print(table(("KIND", "UUID", "RESULT", "DETAIL"), rows))
    parts = [
        f"{many(number, kind, PLURALS[kind])} {result}"
        for (kind, result), number in sorted(Counter((item.kind, item.result) for item in items).items())
    ]
    prefix = "dry run, nothing was changed: " if dry_run else ""
    screen.print(f"{prefix}{', '.join(parts) or 'there is nothing to import'}")


# From an Ironic.


@imports.command(epilog="Exit code 0: everything was imported, or is reported.")
@click.option("--endpoint", metavar="URL", help="An Ironic without authentication, instead of [ironic].")
@click.option("--from-cloud", metavar="NAME", help="The Ironic of this cloud in clouds.yaml, instead of [ironic].")
@click.option("--dry-run", is_flag=True, help="Only report what would be done.")
@click.option(
    "--driver",
    "drivers",
    metavar="THERE=HERE",
    multiple=True,
    help="Driver here of the nodes with a driver there, such as idrac=redfish; may be repeated. [default: the same]",
)
@click.option(
    "--driver-info-file",
    type=InputPath(exists=True, dir_okay=False, path_type=Path),
    help="CSV file with NODE,KEY,VALUE in each line: values to add to driver_info, such as the BMC's password. NODE is "
    "a UUID or a name, VALUE may be a reference to a secret (secret://...).",
)
@click.option("--rollback", is_flag=True, help="Undo earlier imports, except for what was changed since.")
@config_option
@database_option
@output_option
def ironic(
    endpoint: str | None,
    from_cloud: str | None,
    drivers: tuple[str, ...],
    driver_info_file: Path | None,
    files: tuple[str, ...],
    database: str | None,
    fmt: str,
    *,
    dry_run: bool,
    rollback: bool,
) -> None:
    """Import nodes, ports, traits, inventories and inspection rules from an Ironic.

    The section ironic of the configuration file says where it is, and how to log in. It is only read. Nodes keep their
    UUIDs; nodes that exist here are not changed, so an import may be repeated.
    """
    from ferroscope.config.errors import SetupError
    from ferroscope.contracts.errors import StoreError
    from ferroscope.contracts.remote import IronicLockedError, IronicRefusedError, IronicUnavailableError
    from ferroscope.contrib.openstack.imports import ironic as ironic_import

    if endpoint and from_cloud:
        raise click.UsageError("--endpoint and --from-cloud are mutually exclusive")
    if rollback and (drivers or driver_info_file):
        raise click.UsageError("--rollback does not go with --driver or --driver-info-file")
    options = ironic_import.IronicImportOptions(
        dry_run=dry_run,
        drivers=dict(_pair(pair) for pair in drivers),
        driver_info={} if driver_info_file is None else _driver_info(driver_info_file),
    )
    settings = settings_of(files, database)
    try:
        source = _source(settings, endpoint, from_cloud)
        try:
            if rollback:
                items = ironic_import.roll_back(settings, source, _track_back, dry_run=dry_run)
            else:
                items = ironic_import.run(settings, source, options, _track)
        finally:
            source.close()
    except (StoreError, IronicUnavailableError) as exc:
        raise Failure(str(exc), exit_code=Exit.UNREACHABLE) from exc
    except (SetupError, IronicLockedError, IronicRefusedError) as exc:
        raise click.ClickException(str(exc)) from exc
    _show(fmt, items, dry_run=dry_run)


def _pair(text: str) -> tuple[str, str]:
    there, equals, here = text.partition("=")
    if not (there and equals and here):
        raise click.BadParameter(f"expected THERE=HERE, such as idrac=redfish, not {text!r}", param_hint="--driver")
    return there, here


def _driver_info(path: Path) -> dict[str, Document]:
    """Return what the file says of each node; its lines may contain secrets, so no message shows them."""
    by_node: dict[str, Document] = {}
    try:
        rows = csv.reader(io.StringIO(text_of(path.read_bytes()), newline=""))
        for number, row in enumerate(rows, 1):
            if not row:
                continue
            if len(row) != 3 or not row[0] or not row[1]:
                raise click.ClickException(f"{path}, line {number}: expected NODE,KEY,VALUE")
            by_node.setdefault(row[0].strip(), {})[row[1].strip()] = row[2]
    except NotTextError as exc:
        raise click.ClickException(f"cannot read {path}: {exc}") from exc
    except (OSError, csv.Error) as exc:
        raise click.ClickException(f"cannot read {path}: {type(exc).__name__}") from exc
    return by_node


def _source(settings: Settings, endpoint: str | None, cloud: str | None) -> IronicDocuments:
    """Return the Ironic; ``ClickException`` or ``SetupError`` if it cannot be used."""
    from ferroscope.config.errors import SetupError
    from ferroscope.config.integration_options import IronicSettings, problem
    from ferroscope.contrib.openstack.client import LoginSetupError, NoLogin
    from ferroscope.contrib.openstack.imports.documents import IronicDocuments

    if settings.registry.backend != "embedded":
        raise SetupError(
            f"[registry] backend is {settings.registry.backend}: the nodes of that Ironic are used where they are",
            "to import them instead, set it to embedded",
        )
    login = settings.ironic
    if endpoint:
        login = IronicSettings(auth_type="none", endpoint_override=endpoint)
    elif cloud:
        login = IronicSettings(cloud=cloud)
    if wrong := problem(login):
        raise SetupError(wrong, "see: ferroscope docs attach-an-ironic; or use --endpoint or --from-cloud")
    try:
        if login.auth_type == "none":
            source = IronicDocuments(login, NoLogin(login), threading.Event())
        else:
            from ferroscope.contrib.openstack.login import KeystoneLogin

            source = IronicDocuments(login, KeystoneLogin(login), threading.Event())
        source.check()
    except ImportError as exc:
        raise SetupError(f"the Python package {exc.name} is missing", extra("openstack")) from exc
    except LoginSetupError as exc:
        raise SetupError(str(exc)) from exc
    return source
