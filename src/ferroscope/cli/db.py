"""``ferroscope db``: the database's schema."""

from __future__ import annotations

import click

from ferroscope.cli.service import config_option, database_option, settings_of


@click.group()
def db() -> None:
    """Look after the database's schema."""


@db.command()
@config_option
@database_option
def upgrade(files: tuple[str, ...], database: str | None) -> None:
    """Bring the schema up to date; does nothing where it is."""
    from ferroscope.runtime.backend import SchemaError, StoreUnavailableError, ensure_schema

    try:
        version = ensure_schema(settings_of(files, database), upgrade=True)
    except (SchemaError, StoreUnavailableError) as exc:
        raise click.ClickException(str(exc)) from exc
    click.echo(f"the schema is {version}")


@db.command()
@config_option
@database_option
def current(files: tuple[str, ...], database: str | None) -> None:
    """Show the schema's version; exit code 1 where it is not this release's."""
    from ferroscope.runtime.backend import SchemaError, StoreUnavailableError, ensure_schema

    try:
        click.echo(ensure_schema(settings_of(files, database), upgrade=False))
    except (SchemaError, StoreUnavailableError) as exc:
        raise click.ClickException(str(exc)) from exc
