"""``ferroscope all | api | worker``: run roles until SIGTERM or SIGINT."""

from __future__ import annotations

import sys
from typing import Any

import click

from ferroscope.config.options import ConfigurationError, load
from ferroscope.config.settings import Settings

config_option = click.option(
    "-c",
    "--config-file",
    "files",
    multiple=True,
    type=click.Path(dir_okay=False),
    help="Configuration file; may be given several times. [default: /etc/ferroscope/ferroscope.conf, if there]",
)
database_option = click.option("--database", help="SQLAlchemy URL; overrides [database] connection.")


@click.command("all")
@config_option
@database_option
def run_all(files: tuple[str, ...], database: str | None) -> None:
    """Run api, worker and periodic tasks in one process, by default on SQLite."""
    _run(settings_of(files, database), ("api", "worker", "periodic"), upgrade=True)


@click.command("api")
@config_option
@database_option
def run_api(files: tuple[str, ...], database: str | None) -> None:
    """Run the api role: both HTTP APIs."""
    _run(settings_of(files, database), ("api",))


@click.command("worker")
@config_option
@database_option
def run_worker(files: tuple[str, ...], database: str | None) -> None:
    """Run the worker role: carry out requests, and the periodic tasks."""
    _run(settings_of(files, database), ("worker", "periodic"))


def settings_of(files: tuple[str, ...], database: str | None = None, **overrides: Any) -> Settings:
    """Return the settings, or leave with a message that says what is wrong."""
    if database:
        overrides["database.connection"] = database
    try:
        return load(list(files) or None, overrides)
    except ConfigurationError as exc:
        raise click.ClickException(f"the configuration cannot be used: {exc}") from exc


def _run(settings: Settings, roles: tuple[Any, ...], *, upgrade: bool = False) -> None:
    from ferroscope.observe import log
    from ferroscope.runtime.process import Process, StartError

    process = Process(settings, roles, upgrade=upgrade)
    log.configure(settings.log, process=process.name)
    try:
        sys.exit(process.run())
    except StartError as exc:
        raise click.ClickException(str(exc)) from exc
