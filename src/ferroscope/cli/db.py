"""``ferroscope db``: the database's schema, and the data of inspections as a whole."""

from __future__ import annotations

import click

from ferroscope.cli.output import Group
from ferroscope.cli.service import config_option, database_option, settings_of


@click.group(cls=Group)
def db() -> None:
    """Look after the database's schema, and the data of inspections."""


@db.command()
@config_option
@database_option
def upgrade(files: tuple[str, ...], database: str | None) -> None:
    """Bring the schema up to date; does nothing where it is."""
    from ferroscope.contracts.errors import StoreUnavailableError
    from ferroscope.runtime.backend import ensure_schema
    from ferroscope.runtime.member import left_behind, place
    from ferroscope.runtime.system import SetupError

    settings = settings_of(files, database)
    try:
        version = ensure_schema(settings, upgrade=True)
    except (SetupError, StoreUnavailableError, OSError) as exc:
        raise click.ClickException(str(exc)) from exc
    click.echo(f"the schema of {place(settings.database)} is {version}")
    if old := left_behind(settings.database):
        click.echo(f"{old} is not used; to upgrade that one: --database sqlite:///{old}", err=True)


@db.command()
@config_option
@database_option
def current(files: tuple[str, ...], database: str | None) -> None:
    """Show the schema's version; exit code 1 where it is not this release's."""
    from ferroscope.contracts.errors import StoreUnavailableError
    from ferroscope.runtime.backend import ensure_schema
    from ferroscope.runtime.system import SetupError

    try:
        click.echo(ensure_schema(settings_of(files, database), upgrade=False))
    except (SetupError, StoreUnavailableError) as exc:
        raise click.ClickException(str(exc)) from exc


_PLACES = ("database", "s3", "swift")


@db.command("move-data", epilog="Exit code 0: all is moved. 1: it ended early; run it again and it goes on.")
@click.option("--from", "source", type=click.Choice(_PLACES), required=True, help="Where the data is.")
@click.option("--to", "target", type=click.Choice(_PLACES), required=True, help="Where it shall be.")
@config_option
@database_option
def move_data(source: str, target: str, files: tuple[str, ...], database: str | None) -> None:
    """Move the data of all ended inspections from one store to another, while the service runs.

    Set [storage] backend first: it says where new data goes, and where the service would move it back to.
    """
    from ferroscope.contracts.errors import StoreUnavailableError
    from ferroscope.runtime.data import move
    from ferroscope.runtime.system import SetupError

    if source == target:
        raise click.UsageError("--from and --to are the same")
    try:
        done = move(settings_of(files, database), source, target, _progress)
    except (SetupError, StoreUnavailableError) as exc:
        raise click.ClickException(str(exc)) from exc
    skipped = f", {done.skipped} were changed meanwhile or are gone" if done.skipped else ""
    click.echo(f"{done.moved} parts moved from {source} to {target}{skipped}")
    if done.error:
        raise click.ClickException(f"ended early: {done.error}; run it again to go on")


@db.command("rebuild-search-index")
@config_option
@database_option
def rebuild_facts(files: tuple[str, ...], database: str | None) -> None:
    """Derive what searches find from every node's newest inventory, for data stored by an earlier release."""
    from ferroscope.contracts.errors import StoreUnavailableError
    from ferroscope.runtime.data import rebuild
    from ferroscope.runtime.system import SetupError

    try:
        done = rebuild(settings_of(files, database), _progress)
    except (SetupError, StoreUnavailableError) as exc:
        raise click.ClickException(str(exc)) from exc
    click.echo(f"{done.changed} of {done.nodes} nodes have a new search index")
    if done.errors:
        raise click.ClickException(f"the data of {done.errors} nodes could not be read; run it again")


def _progress(text: str) -> None:
    click.echo(text, err=True)
