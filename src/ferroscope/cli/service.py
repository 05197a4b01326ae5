"""``ferroscope all | api | worker | pxe-filter``: run roles until SIGTERM or SIGINT."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import Any, NoReturn

import click
import msgspec

from ferroscope.config.load import ConfigurationError, load, unknown_options
from ferroscope.config.options import SIMULATED, Settings

# Commands that read the service's configuration: their options, and the settings that come of them.

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


processes_option = click.option(
    "--processes",
    default=0,
    type=click.IntRange(0, 64),
    help="Run this many processes under a supervisor that restarts those that die. [default: one, without]",
)


@click.command("all")
@click.option(
    "--simulator",
    is_flag=True,
    help="Enable the drivers sim and fake-hardware too, for machines that do not exist (ferroscope sim).",
)
@config_option
@database_option
def run_all(files: tuple[str, ...], database: str | None, *, simulator: bool) -> None:
    """Run api, worker and periodic tasks in one process, by default on SQLite."""
    settings = settings_of(files, database)
    if simulator:
        offered = dict.fromkeys((*settings.drivers.enabled, *SIMULATED))
        drivers = msgspec.structs.replace(settings.drivers, enabled=tuple(offered))
        settings = msgspec.structs.replace(settings, drivers=drivers)
    _run(settings, ("api", "worker", "periodic"), upgrade=True)


@click.command("api")
@config_option
@database_option
@processes_option
def run_api(files: tuple[str, ...], database: str | None, processes: int) -> None:
    """Run the api role: both HTTP APIs."""
    _run(settings_of(files, database), ("api",), processes=processes)


@click.command("worker")
@config_option
@database_option
@processes_option
def run_worker(files: tuple[str, ...], database: str | None, processes: int) -> None:
    """Run the worker role: carry out requests, and the periodic tasks."""
    _run(settings_of(files, database), ("worker", "periodic"), processes=processes)


@click.command("pxe-filter")
@config_option
@database_option
def run_pxe_filter(files: tuple[str, ...], database: str | None) -> None:
    """Run the PXE filter beside this host's DHCP and TFTP service: open on one host of a network, closed on all others.

    Needs the right to change the host's firewall (CAP_NET_ADMIN).
    """
    from ferroscope.runtime.pxe_filter import run

    _exit_with(run, settings_of(files, database))


def _run(settings: Settings, roles: tuple[Any, ...], *, upgrade: bool = False, processes: int = 0) -> None:
    from ferroscope.runtime.process import run

    _exit_with(run, settings, roles, upgrade=upgrade, processes=processes)


def _exit_with(run: Callable[..., int], *args: Any, **options: Any) -> NoReturn:
    """Run it, and leave with its exit code; where it cannot begin, with a message."""
    from ferroscope.runtime.system import StartError

    try:
        sys.exit(run(*args, **options))
    except StartError as exc:
        raise click.ClickException(str(exc)) from exc
