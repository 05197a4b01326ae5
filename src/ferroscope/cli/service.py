"""Commands that read the service's configuration: run its roles, and ``doctor``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar
from urllib.parse import urlsplit

import click
import msgspec

from ferroscope.cli.exits import Exit, Failure
from ferroscope.cli.output import Output, output_option, table
from ferroscope.cli.text import is_terminal
from ferroscope.config.load import ConfigurationError, load, unknown_options, with_drop_ins
from ferroscope.config.options import SIMULATED, Settings
from ferroscope.core.text_files import NotTextError, text_of
from ferroscope.core.values import many

if TYPE_CHECKING:
    from ferroscope.config.errors import StartError
    from ferroscope.core.finding import Finding

# Options and settings

_Command = TypeVar("_Command", bound=Callable[..., Any])
_LENIENT: Final = "ferroscope.lenient_config"


def config_option(command: _Command) -> _Command:
    """Add ``--config-file``, as ``files``, and ``--lenient-config``, which ``read`` finds by itself."""
    for option in (_lenient_option, _files_option):
        command = option(command)
    return command


def _set_lenient(context: click.Context, _: click.Parameter, lenient: bool) -> None:
    if lenient:  # the option may follow the group or the command
        context.meta[_LENIENT] = True


_files_option = click.option(
    "-c",
    "--config-file",
    "files",
    multiple=True,
    type=click.Path(dir_okay=False),
    help="Configuration file; FILE.d/*.conf override it; may be repeated. [default: /etc/ferroscope/ferroscope.conf]",
)
_lenient_option = click.option(
    "--lenient-config",
    is_flag=True,
    expose_value=False,
    callback=_set_lenient,
    help="Warn about unknown sections and options instead of rejecting them, for a newer release's file.",
)


def database_url(text: str) -> str:
    """Return the URL of a database, or the content of ``@FILE``; ``click.BadParameter``.

    Other users of the host could read a password in the process list.
    """
    if not text.startswith("@"):
        return text
    try:
        return text_of(Path(text[1:]).read_bytes()).strip()
    except OSError as exc:
        raise click.BadParameter(f"cannot read {text[1:]!r}: {exc.strerror}") from None
    except NotTextError as exc:
        raise click.BadParameter(f"{text[1:]!r}: {exc}") from None


database_option = click.option(
    "--database",
    type=database_url,
    metavar="URL",
    help="SQLAlchemy URL, or @FILE that has one with a password; overrides [database] connection.",
)


def read(files: tuple[str, ...], database: str | None = None) -> Settings:
    """Return the settings; ``ConfigurationError``."""
    overrides = {"database.connection": database} if database else {}
    return load(list(files) or None, overrides, lenient=_is_lenient())


def _is_lenient() -> bool:
    context = click.get_current_context(silent=True)
    return context is not None and _LENIENT in context.meta


def settings_of(files: tuple[str, ...], database: str | None = None) -> Settings:
    """Return the settings; ``Failure`` if they are invalid. If allowed, it only warns about unknown options."""
    try:
        settings = read(files, database)
    except ConfigurationError as exc:
        raise _refusal(exc) from exc
    if _is_lenient():
        for unknown in unknown_options(list(files) or None):
            click.echo(f"Warning: {unknown}", err=True)
    return settings


_NEWER: Final = "correct it; only after a downgrade: --lenient-config ignores unknown options of the newer release"


def _refusal(exc: ConfigurationError) -> Failure:
    return start_failure(exc.problems, advice=_NEWER if exc.unknown else "")


def start_failure(problems: Sequence[str], *, advice: str = "") -> Failure:
    """Return the failure of a start with this configuration, with one problem on each line."""
    shown = problems[0] if len(problems) == 1 else "".join(f"\n  {problem}" for problem in problems)
    separator = " " if len(problems) == 1 else ""
    return Failure(f"invalid configuration:{separator}{shown}", exit_code=Exit.CONFIGURATION, advice=advice)


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


@click.command("pxe-filter")
@config_option
@database_option
def run_pxe_filter(files: tuple[str, ...], database: str | None) -> None:
    """Run the PXE filter of this host's DHCP and TFTP service: open on one host of a network, closed on all others.

    Requires permission to change the host's firewall (CAP_NET_ADMIN).
    """
    from ferroscope.runtime.pxe_filter import run

    exit_with(run, settings_of(files, database), reread=lambda: read(files, database))


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

    The log says the same, for services (``api.urls.announce``).
    """
    from ferroscope.api.urls import api_url, page_url
    from ferroscope.db import place

    url, with_simulator = api_url(settings.api), set(SIMULATED) & set(settings.drivers.enabled)
    elsewhere = "" if urlsplit(url).port == _DEFAULT_PORT and "127.0.0.1" in url else f" (export FERROSCOPE_URL={url})"
    rows = [("web page", page_url(settings.api))]
    if url:
        rows.append(("try", ("ferroscope sim --nodes 50 --enroll" if with_simulator else _EXAMPLE) + elsewhere))
    rows.append(("data", place(settings.database)))
    return [f"{name:<8}  {text}" for name, text in rows if text]


def exit_with(run: Callable[..., int], *args: Any, **options: Any) -> NoReturn:
    """Run it and exit with its exit code; if it cannot start, with an error message."""
    from ferroscope.config.errors import StartError

    try:
        sys.exit(run(*args, **options))
    except StartError as exc:
        raise not_started(exc) from exc


def not_started(exc: StartError) -> click.ClickException:
    """Return the command's message and its exit code."""
    from ferroscope.config.errors import OptionRefusedError

    return start_failure(exc.problems) if isinstance(exc, OptionRefusedError) else click.ClickException(str(exc))


# ``ferroscope doctor``

_MARKS = {"ok": "ok", "note": "NOTE", "wrong": "WRONG"}


@click.command()
@config_option
@database_option
@output_option
def doctor(files: tuple[str, ...], database: str | None, fmt: str) -> None:
    """Check configuration, database, clock, drivers, hooks, ports, boot, PXE filter, members; exit code 1 on a problem.

    It connects to the database, not to the API, so it works even if nothing is running. To test that the database is
    writable, it writes the lease ferroscope/doctor and deletes it. Otherwise it starts and changes nothing.
    """
    if show_checks(files, database, Output(fmt)):
        raise click.exceptions.Exit(Exit.FAILURE)


def show_checks(files: tuple[str, ...], database: str | None, out: Output) -> int:
    """Run the checks and show them; return how many failed."""
    return show_findings(_checks(files, database), out)


def show_findings(findings: Sequence[Finding], out: Output) -> int:
    """Show the results of checks; return how many failed."""
    import msgspec

    checks = [msgspec.structs.asdict(finding) for finding in findings]
    out.show({"checks": checks}, lambda screen: screen.print(table(("", "CHECK", "RESULT"), map(_finding_row, checks))))
    wrong = sum(finding.verdict == "wrong" for finding in findings)
    if wrong:
        out.say(f"{wrong} of {many(len(findings), 'check')} failed")
    return wrong


def _checks(files: tuple[str, ...], database: str | None) -> list[Finding]:
    from ferroscope.core.finding import Finding
    from ferroscope.doctor.database import examine
    from ferroscope.doctor.host import readable_files

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
    from ferroscope.core.finding import Finding

    return [
        Finding("unknown-option", "note", option.summary, option.advice)
        for option in unknown_options(list(files) or None)
    ]


def _finding_row(check: dict[str, str]) -> tuple[str, str, str]:
    advice = f"; {check['advice']}" if check["advice"] else ""
    return _MARKS[check["verdict"]], check["code"], check["summary"] + advice
