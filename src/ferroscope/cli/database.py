"""``ferroscope db``: the schema, inspection data as a whole, and the move to another database."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click
import msgspec

from ferroscope.cli.service import config_option, database_option, database_url, settings_of, start_failure
from ferroscope_client.cli.output import Group, Output, output_option, table
from ferroscope_client.cli.screen import progress
from ferroscope_client.cli.text import is_terminal
from ferroscope_client.core.values import many
from ferroscope_client.errors import Failure

if TYPE_CHECKING:
    from ferroscope.config.options import Settings
    from ferroscope.db import Store
    from ferroscope.db.copying.copy import Copied
    from ferroscope.storage.reader import Archive


@click.group(cls=Group)
def db() -> None:
    """Upgrade the schema, copy everything to another database, encrypt secrets, move inspection data."""


@db.command()
@config_option
@database_option
def upgrade(files: tuple[str, ...], database: str | None) -> None:
    """Upgrade the schema, if it is not up to date."""
    from ferroscope.config.errors import SetupError
    from ferroscope.contracts.errors import StoreUnavailableError
    from ferroscope.db import left_behind, place, refuse_others
    from ferroscope.db.prepare import SchemaError, ensure_schema

    settings = settings_of(files, database)
    try:
        refuse_others(settings.database)
        version = ensure_schema(settings, upgrade=True)
    except (SchemaError, StoreUnavailableError, OSError) as exc:
        raise click.ClickException(str(exc)) from exc
    except SetupError as exc:
        raise start_failure([str(exc)]) from exc
    click.echo(f"schema of {place(settings.database)}: {version}")
    if old := left_behind(settings.database):
        click.echo(f"{old} is not used; to upgrade it: --database sqlite:///{old}", err=True)


@db.command()
@config_option
@database_option
def current(files: tuple[str, ...], database: str | None) -> None:
    """Show the schema's version; exit code 1 if it is not up to date."""
    from ferroscope.config.errors import SetupError
    from ferroscope.contracts.errors import StoreUnavailableError
    from ferroscope.db.prepare import SchemaError, ensure_schema

    try:
        click.echo(ensure_schema(settings_of(files, database), upgrade=False))
    except (SchemaError, StoreUnavailableError) as exc:
        raise click.ClickException(str(exc)) from exc
    except SetupError as exc:
        raise start_failure([str(exc)]) from exc


@db.command("copy", epilog="Exit code 0: the copy is complete and verified, or with --dry-run: it is possible.")
@click.argument("source", type=database_url, metavar="SOURCE")
@click.argument("destination", type=database_url, metavar="DESTINATION")
@click.option("--dry-run", is_flag=True, help="Check everything and read all rows; write nothing. The service may run.")
@config_option
@output_option
def copy(source: str, destination: str, files: tuple[str, ...], fmt: str, *, dry_run: bool) -> None:
    """Copy everything from one database to an empty one: SQLite, PostgreSQL or MariaDB, in any direction.

    SOURCE and DESTINATION are URLs as in [database] connection, or @FILE that has one. A password that is missing in a
    URL is asked for on a terminal. All processes of the service must be stopped. The source is not changed. Until
    everything was read back and compared, no service starts on the destination; a copy that was interrupted starts
    over when it is repeated.
    """
    from ferroscope.config.errors import SetupError
    from ferroscope.contracts.errors import StoreUnavailableError
    from ferroscope.db.copying.copy import CopyError, Stage
    from ferroscope.db.copying.copy import copy as run
    from ferroscope.db.prepare import SchemaError

    stage: Stage = progress
    try:
        ask = _ask_password if is_terminal(sys.stdin) else None
        done = run(settings_of(files), source, destination, stage, dry_run=dry_run, ask_password=ask)
    except CopyError as exc:
        raise Failure(str(exc), advice=exc.advice) from exc
    except (SchemaError, StoreUnavailableError, OSError) as exc:
        raise click.ClickException(str(exc)) from exc
    except SetupError as exc:
        raise start_failure([str(exc)]) from exc
    _show_copy(done, Output(fmt), dry_run=dry_run)


def _ask_password(name: str) -> str:
    text = f"Password of the {name}"
    return str(click.prompt(text, default="", hide_input=True, show_default=False, err=True))


def _show_copy(done: Copied, out: Output, *, dry_run: bool) -> None:
    rows = [
        (copied_table.name, f"{copied_table.rows:,}", copied_table.checksum[:12])
        for copied_table in done.tables
        if copied_table.rows
    ]
    out.show(msgspec.to_builtins(done), lambda screen: screen.print(table(("TABLE", "ROWS", "CHECKSUM"), rows)))
    for left in done.left:
        out.say(f"not copied: {left.name}, {many(left.rows, 'row')}: {left.why}")
    for note in done.notes:
        out.say(f"note: {note}")
    rows_in_all = many(sum(copied_table.rows for copied_table in done.tables), "row")
    if dry_run:
        out.say(f"dry run: {rows_in_all} can be copied from {done.source} to {done.destination}; nothing was written")
        return
    out.say(f"copied and verified: {rows_in_all} from {done.source} to {done.destination}")
    out.say("next: set [database] connection to the destination on every host, and start the service")
    out.say("never start it on the source again: two services would control the same machines")


@contextmanager
def _archive(settings: Settings) -> Iterator[tuple[Store, Archive]]:
    from ferroscope.runtime.backend import open_for_command
    from ferroscope.storage.stores import build_archive

    with open_for_command(settings) as backend:
        yield backend.store, build_archive(settings, backend.store, threading.Event())


_PLACES = ("database", "s3", "swift")


@db.command("move-data", epilog="Exit code 0: everything was moved. 1: it ended early; run it again to continue.")
@click.option("--from", "source", type=click.Choice(_PLACES), required=True, help="The current storage backend.")
@click.option("--to", "target", type=click.Choice(_PLACES), required=True, help="The new storage backend.")
@config_option
@database_option
def move_data(source: str, target: str, files: tuple[str, ...], database: str | None) -> None:
    """Move the data of all ended inspections to another storage backend, while the service is running.

    Set [storage] backend first: otherwise the service moves the data back.
    """
    from ferroscope.config.errors import SetupError
    from ferroscope.contracts.errors import StoreError
    from ferroscope.storage.maintenance import move

    if source == target:
        raise click.UsageError("--from and --to must differ")
    try:
        with progress("Moving") as advance, _archive(settings_of(files, database)) as (store, archive):
            done = move(store, archive, source, target, advance)
    except (SetupError, StoreError) as exc:
        raise click.ClickException(str(exc)) from exc
    skipped = f", {done.skipped} skipped because they were changed or deleted concurrently" if done.skipped else ""
    click.echo(f"{many(done.moved, 'part')} moved from {source} to {target}{skipped}")
    if done.error:
        raise click.ClickException(f"ended early: {done.error}; run it again to continue")


@db.command("rebuild-search-index")
@config_option
@database_option
def rebuild_search_index(files: tuple[str, ...], database: str | None) -> None:
    """Rebuild the search index from the newest inventory of each node, for data of earlier releases."""
    from ferroscope.config.errors import SetupError
    from ferroscope.contracts.errors import StoreError
    from ferroscope.storage.maintenance import rebuild

    try:
        with progress("Rebuilding") as advance, _archive(settings_of(files, database)) as (store, archive):
            done = rebuild(store, archive, _report, advance)
    except (SetupError, StoreError) as exc:
        raise click.ClickException(str(exc)) from exc
    click.echo(f"search index rebuilt: {done.changed:,} of {many(done.nodes, 'node')} changed")
    if done.errors:
        raise click.ClickException(f"cannot read the data of {many(done.errors, 'node')}; run it again")


@db.command("rekey", epilog="Exit code 0: all secrets are encrypted with the first key. 1: some cannot be decrypted.")
@click.option("--lost", multiple=True, metavar="KEYID", help="A key that is lost for good; may be repeated.")
@config_option
@database_option
def rekey(lost: tuple[str, ...], files: tuple[str, ...], database: str | None) -> None:
    """Encrypt the secrets of all nodes with the first key of [secrets] key_file, while the service is running.

    This includes plain text. If the first line of the file is 'identity', all secrets are decrypted. You can interrupt
    it and run it again. Without one of the keys in use it changes nothing, because the key file may be the wrong one;
    --lost allows it, and lists the nodes whose secrets must be set again.
    """
    from ferroscope.config.errors import SetupError
    from ferroscope.contracts.errors import SecretKeyError, StoreError
    from ferroscope.db.rekey import rekey as run
    from ferroscope.runtime.backend import open_for_command

    settings = settings_of(files, database)
    if not settings.secrets.key_file:
        wrong = SetupError("[secrets] key_file is not set", "to create one, run: ferroscope secret generate-key FILE")
        raise click.ClickException(str(wrong))
    try:
        with progress("Encrypting") as advance, open_for_command(settings) as backend:
            done = run(backend.store, backend.keys, _report, advance, lost)
    except (SetupError, SecretKeyError, StoreError) as exc:
        raise click.ClickException(str(exc)) from exc
    click.echo(f"{many(done.nodes, 'node')} checked, {done.changed} changed")
    if done.failed:
        raise click.ClickException(
            f"the secrets of {many(done.failed, 'node')} cannot be decrypted and were not changed"
        )


def _report(text: str) -> None:
    click.echo(text, err=True)
