"""Commands that run the roles of the service, and ``doctor``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import click
import msgspec

from ferroscope.cli.service import config_option, database_option, exit_with, read, settings_of, show_findings
from ferroscope.config.load import ConfigurationError, unknown_options, with_drop_ins
from ferroscope.config.options import SIMULATED, Settings
from ferroscope_client.cli.output import Output, output_option
from ferroscope_client.cli.text import is_terminal
from ferroscope_client.errors import Exit

if TYPE_CHECKING:
    from ferroscope_client.core.finding import Finding

processes_option = click.option(
    "--processes",
    default=0,
    type=click.IntRange(0, 64),
    help="Number of processes, under a supervisor that restarts them. [default: one, without a supervisor]",
)


@click.command("all")
@click.option(
    "--simulator",
    is_flag=True,
    help="Also enable the drivers sim and fake-hardware, for simulated machines (ferroscope sim).",
)
@config_option
@database_option
def run_all(files: tuple[str, ...], database: str | None, *, simulator: bool) -> None:
    """Run api, worker and periodic tasks in one process, by default on SQLite."""

    def with_simulator(settings: Settings) -> Settings:
        offered = dict.fromkeys((*settings.drivers.enabled, *SIMULATED))
        drivers = msgspec.structs.replace(settings.drivers, enabled=tuple(offered))
        return msgspec.structs.replace(settings, drivers=drivers)

    adjust = with_simulator if simulator else None
    _run(files, database, ("api", "worker", "periodic"), adjust=adjust, upgrade=True, greets=is_terminal(sys.stderr))


@click.command("api")
@config_option
@database_option
@processes_option
def run_api(files: tuple[str, ...], database: str | None, processes: int) -> None:
    """Run the api role: both HTTP APIs."""
    _run(files, database, ("api",), processes=processes)


@click.command("worker")
@config_option
@database_option
@processes_option
def run_worker(files: tuple[str, ...], database: str | None, processes: int) -> None:
    """Run the worker role: carry out requests, and the periodic tasks."""
    _run(files, database, ("worker", "periodic"), processes=processes)


def _run(
    files: tuple[str, ...],
    database: str | None,
    roles: tuple[Any, ...],
    *,
    adjust: Callable[[Settings], Settings] | None = None,
    greets: bool = False,
    **options: Any,
) -> None:
    """Run the roles; ``greets``: print where everything is once they are ready."""
    from ferroscope.runtime.process import run

    adjusted = adjust or (lambda settings: settings)
    settings = adjusted(settings_of(files, database))
    if greets:
        options["ready"] = lambda: click.echo("\n" + "\n".join(welcome(settings)) + "\n", err=True)
    exit_with(run, settings, roles, reread=lambda: adjusted(read(files, database)), **options)


_DEFAULT_PORT: Final = 6385
_EXAMPLE: Final = "ferroscope node import machines.csv, or ferroscope bmc scan NETWORK"


def welcome(settings: Settings) -> list[str]:
    """Return the text after a start on a terminal: the page, what to try, and where the data is.

    The log says the same, for services (``runtime.process``).
    """
    from ferroscope.db import place

    url, with_simulator = settings.api.url, set(SIMULATED) & set(settings.drivers.enabled)
    elsewhere = "" if urlsplit(url).port == _DEFAULT_PORT and "127.0.0.1" in url else f" (export FERROSCOPE_URL={url})"
    rows = [("web page", settings.api.page_url)]
    if url:
        rows.append(("try", ("ferroscope sim --nodes 50 --enroll" if with_simulator else _EXAMPLE) + elsewhere))
    rows.append(("data", place(settings.database)))
    return [f"{name:<8}  {text}" for name, text in rows if text]


# ``ferroscope doctor``


@click.command()
@config_option
@database_option
@output_option
def doctor(files: tuple[str, ...], database: str | None, fmt: str) -> None:
    """Check configuration, database, clock, drivers, hooks, ports, boot, PXE filter, members; exit code 1 on a problem.

    It connects to the database, not to the API, so it works even if nothing is running. To test that the database is
    writable, it writes the lease ferroscope/doctor and deletes it. Otherwise it starts and changes nothing.
    """
    if show_findings(_checks(files, database), Output(fmt)):
        raise click.exceptions.Exit(Exit.FAILURE)


def _checks(files: tuple[str, ...], database: str | None) -> list[Finding]:
    from ferroscope.doctor.database import examine
    from ferroscope.doctor.host import readable_files
    from ferroscope_client.core.finding import Finding

    try:
        settings = read(files, database)
    except ConfigurationError as exc:
        findings = [Finding("configuration", "wrong", problem, "correct the configuration") for problem in exc.problems]
    else:
        source = ", ".join(with_drop_ins(list(files) or None)) or "only defaults: there is no file"
        findings = _unknown_options(files) or [Finding("configuration", "ok", f"the configuration is valid ({source})")]
        findings += readable_files(list(files) or None)
        findings += examine(settings)
    return findings


def _unknown_options(files: tuple[str, ...]) -> list[Finding]:
    """Return a finding for each unknown option."""
    from ferroscope_client.core.finding import Finding

    return [
        Finding("unknown-option", "note", option.summary, option.advice)
        for option in unknown_options(list(files) or None)
    ]
