"""Options and messages of commands that read the service's configuration."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

import click
import msgspec

from ferroscope.config.load import ConfigurationError, load, unknown_options
from ferroscope.config.options import Settings
from ferroscope_client.cli.output import Output, table
from ferroscope_client.core.text_files import NotTextError, text_of
from ferroscope_client.core.values import many
from ferroscope_client.errors import Exit, Failure

if TYPE_CHECKING:
    from ferroscope.config.errors import StartError
    from ferroscope_client.core.finding import Finding

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


def exit_with(run: Callable[..., int], *args: Any, **options: Any) -> NoReturn:
    """Run it and exit with its exit code; if it cannot start, with an error message."""
    from ferroscope.config.errors import StartError

    try:
        sys.exit(run(*args, **options))
    except StartError as exc:
        raise not_started(exc) from exc


def not_started(exc: StartError) -> Exception:
    """Return the command's message and its exit code."""
    from ferroscope.config.errors import OptionRefusedError

    return start_failure(exc.problems) if isinstance(exc, OptionRefusedError) else click.ClickException(str(exc))


# The results of checks

_MARKS = {"ok": "ok", "note": "NOTE", "wrong": "WRONG"}


def show_findings(findings: Sequence[Finding], out: Output) -> int:
    """Show the results of checks; return how many failed."""

    checks = [msgspec.structs.asdict(finding) for finding in findings]
    out.show({"checks": checks}, lambda screen: screen.print(table(("", "CHECK", "RESULT"), map(_finding_row, checks))))
    wrong = sum(finding.verdict == "wrong" for finding in findings)
    if wrong:
        out.say(f"{wrong} of {many(len(findings), 'check')} failed")
    return wrong


def _finding_row(check: dict[str, str]) -> tuple[str, str, str]:
    advice = f"; {check['advice']}" if check["advice"] else ""
    return _MARKS[check["verdict"]], check["code"], check["summary"] + advice
