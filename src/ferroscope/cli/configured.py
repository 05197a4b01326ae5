"""Commands that read the service's configuration: their options, and the settings that come of them."""

from __future__ import annotations

import contextlib

import click

from ferroscope.config.load import ConfigurationError, load, unknown_options
from ferroscope.config.options import Settings

config_option = click.option(
    "-c",
    "--config-file",
    "files",
    multiple=True,
    type=click.Path(dir_okay=False),
    help="Configuration file; may be given several times. [default: /etc/ferroscope/ferroscope.conf, if there]",
)
database_option = click.option("--database", help="SQLAlchemy URL; overrides [database] connection.")


def read(files: tuple[str, ...], database: str | None = None) -> Settings:
    """Return the settings; ``ConfigurationError``."""
    return load(list(files) or None, {"database.connection": database} if database else {})


def settings_of(files: tuple[str, ...], database: str | None = None) -> Settings:
    """Return the settings, with warnings on standard error, or leave with a message that says what is wrong."""
    try:
        settings = read(files, database)
    except ConfigurationError as exc:
        raise click.ClickException(f"the configuration cannot be used: {exc}") from exc
    with contextlib.suppress(OSError):  # whoever cannot be warned can still be served
        for sentence in unknown_options(list(files) or None):
            click.echo(f"Warning: {sentence}", err=True)
    return settings
