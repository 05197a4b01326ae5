"""Output of commands: tables for people, JSON, YAML and templates for programs; and the options for both.

JSON, YAML and JSONPath templates contain the data under the API's own names; with them, nothing else is printed to
standard output. Colors are used on a terminal only. Libraries are imported when they are used.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any, Final, cast

import click
from click.core import ParameterSource

from ferroscope_client.cli.text import clean, may_draw, plain_option, utc_option
from ferroscope_client.client import DEFAULT_URL, connect
from ferroscope_client.core.values import spreadsheet_cell
from ferroscope_client.enrollment.printed import json_text, yaml_text
from ferroscope_client.errors import Failure
from ferroscope_client.installed import PluginError, load_installed

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

FORMATS: Final = ("table", "json", "yaml")
WIDE_FORMATS: Final = ("table", "wide", "json", "yaml")
LIST_FORMATS: Final = ("table", "wide", "csv", "json", "yaml")

_IDENTIFIERS: Final = ("UUID", "NAME", "MAC")
_NO_TERMINAL_WIDTH: Final = 1000
STYLES: Final = {
    "manageable": "green",
    "available": "green",
    "inspecting": "cyan",
    "inspect wait": "cyan",
    "verifying": "cyan",
    "inspect failed": "bold red",
    "ERROR": "bold red",
    "WARNING": "yellow",
    "power on": "green",
}


def _of_root(context: click.Context, param: click.Parameter, value: Any) -> Any:
    """Return an option of the command, else the same one of ``ferroscope`` itself, else the environment's."""
    name = str(param.name)
    if context.get_parameter_source(name) == ParameterSource.COMMANDLINE:
        return value
    return context.find_root().params.get(name) or value


url_option = click.option(
    "--url",
    callback=_of_root,
    envvar="FERROSCOPE_URL",
    show_envvar=True,
    help=f"URL of the Bare Metal API. [default: the cloud's endpoint, or {DEFAULT_URL}]",
)
cloud_option = click.option(
    "--os-cloud",
    "cloud",
    callback=_of_root,
    envvar="OS_CLOUD",
    show_envvar=True,
    help="Name of a cloud in clouds.yaml; its credentials are used, and its endpoint unless --url is given.",
)
insecure_option = click.option(
    "--insecure-http",
    is_flag=True,
    callback=_of_root,
    envvar="FERROSCOPE_INSECURE_HTTP",
    show_envvar=True,
    help="Allow credentials to be sent over plain HTTP to another host.",
)


_JSONPATH: Final = "jsonpath="


class OutputFormat(click.Choice):  # type: ignore[type-arg]  # generic since 8.2 only
    """One of the formats, or ``jsonpath=TEMPLATE``."""

    others: Final = (f"{_JSONPATH}TEMPLATE",)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not str(value).startswith(_JSONPATH):
            return super().convert(value, param, ctx)
        from ferroscope_client.cli.jsonpath import Template, TemplateError

        try:
            Template(value.removeprefix(_JSONPATH))
        except TemplateError as exc:
            self.fail(f"invalid template: {exc}", param, ctx)
        return value

    def get_metavar(self, *args: Any, **kwargs: Any) -> str | None:
        return f"[{'|'.join((*self.choices, *self.others))}]"


def typed(option: str) -> list[str]:
    """Return ``--url`` or ``--os-cloud`` with its value, if it is from the command line, not from the environment."""
    context = click.get_current_context()
    name = {"--url": "url", "--os-cloud": "cloud"}[option]
    is_typed = context.get_parameter_source(name) == ParameterSource.COMMANDLINE or context.find_root().params.get(name)
    return [option, context.params[name]] if is_typed else []


watch_option = click.option(
    "-w", "--watch", is_flag=True, help="Refresh continuously, until Ctrl-C; without a terminal, print what changes."
)


def _output_option(formats: Sequence[str]) -> Callable[..., Any]:
    return click.option(
        "-o",
        "--output",
        "fmt",
        type=OutputFormat(formats),
        default="table",
        show_default=True,
        help="Output format.",
    )


output_option = _output_option(FORMATS)
wide_output_option = _output_option(WIDE_FORMATS)
list_output_option = _output_option(LIST_FORMATS)


class Output:
    """Prints in one format; ``for_programs``: the format is not a table."""

    def __init__(self, fmt: str = "table") -> None:
        self._fmt = fmt

    @property
    def for_programs(self) -> bool:
        return self._fmt not in ("table", "wide")

    @property
    def is_csv(self) -> bool:
        return self._fmt == "csv"

    @property
    def wide(self) -> bool:
        """Whether all columns are shown, regardless of the terminal's width."""
        return self._fmt in ("wide", "csv")

    def show(self, data: Any, draw: Callable[[Console], None]) -> None:
        """Print ``data`` for programs, or let ``draw`` print it for people."""
        if self._fmt == "json":
            click.echo(json_text(data, ascii_only=not _any_letter()))
        elif self._fmt == "yaml":
            click.echo(yaml_text(data, ascii_only=not _any_letter()), nl=False)
        elif self._fmt.startswith(_JSONPATH):
            from ferroscope_client.cli.jsonpath import Template

            text = clean(Template(self._fmt.removeprefix(_JSONPATH)).render(data))
            click.echo(text, nl=not text.endswith("\n"))
        else:
            draw(console(wide=self.wide))

    def rows(self, titles: Sequence[str], rows: Iterable[Sequence[Any]]) -> bool:
        """Print rows as CSV with a header, if that is the format; return whether it is."""
        if not self.is_csv:
            return False
        import csv
        import io

        stream = io.StringIO()
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow([title.lower().replace(" ", "_") for title in titles])
        writer.writerows([_csv_cell(value) for value in row] for row in rows)
        click.echo(stream.getvalue(), nl=False)
        return True

    def say(self, text: str) -> None:
        """Print a message: to standard error if standard output is for a program."""
        click.echo(clean(text), err=self.for_programs)

    def note(self, text: str) -> None:
        """Print additional information, such as a count: to standard error unless standard output is a terminal."""
        if not self.for_programs:
            click.echo(clean(text), err=not sys.stdout.isatty())


class Group(click.Group):
    """A group that lists its commands with untruncated help texts, also those that packages add to it.

    A package adds one with an entry point in the group ``ferroscope.subcommands``: its name is GROUP.COMMAND, its value
    the click command.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *_load_subcommands(ctx)})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, cmd_name) or _load_subcommands(ctx).get(cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        commands = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        rows = [
            (name, command.get_short_help_str(200))
            for name, command in commands.items()
            if command and not command.hidden
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            from ferroscope_client.cli.wrong_words import no_such_command

            raise no_such_command(args[0], ctx, _path(ctx))
        return super().resolve_command(ctx, args)


def _load_subcommands(context: click.Context) -> dict[str, click.Command]:
    """Return the commands that packages add to the group of this context; ``Failure``."""
    group = f"{_path(context).replace(' ', '.')}."
    try:
        return {
            name.removeprefix(group): command
            for name, command in load_installed("ferroscope.subcommands", group).items()
        }
    except PluginError as exc:
        raise Failure(str(exc), advice=exc.advice) from exc


def _path(context: click.Context) -> str:
    """Return the words of the command, without the program's name."""
    above = f"{_path(context.parent)} " if context.parent is not None and context.parent.parent is not None else ""
    return f"{above}{context.info_name}"


def with_api(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command ``-o`` and the options of a connection; it receives them as ``out`` and ``api``."""
    return _with(function, output_option)


def with_api_and_wide(function: Callable[..., None]) -> Callable[..., None]:
    """Like ``with_api``, for a command that can show more: also ``-o wide``."""
    return _with(function, wide_output_option)


def with_api_and_lists(function: Callable[..., None]) -> Callable[..., None]:
    """Like ``with_api``, for a command that lists: also ``-o wide`` and ``-o csv``."""
    return _with(function, list_output_option)


def _with(function: Callable[..., None], output: Callable[[Any], Any]) -> Callable[..., None]:
    @url_option
    @cloud_option
    @insecure_option
    @utc_option
    @plain_option
    @output
    @functools.wraps(function)
    def run(*args: Any, url: str | None, cloud: str | None, insecure_http: bool, fmt: str, **kwargs: Any) -> None:
        function(*args, api=connect(url, cloud=cloud, insecure_http=insecure_http), out=Output(fmt), **kwargs)

    return cast("Callable[..., None]", run)


def console(*, error: bool = False, wide: bool = False) -> Console:
    """Return a console: with colors and the terminal's width, or plain with one line per row.

    ``wide``: lines may be longer than the terminal is wide, which wraps them, so that no column is squeezed.
    """
    from rich.console import Console

    class CleanConsole(Console):
        """Removes control characters from texts."""

        def print(self, *objects: Any, **options: Any) -> None:
            super().print(*(clean(text) if isinstance(text, str) else text for text in objects), **options)

    stream = sys.stderr if error else sys.stdout
    if may_draw(stream):
        width = _NO_TERMINAL_WIDTH if wide else None
        return CleanConsole(file=stream, highlight=False, markup=False, emoji=False, width=width)
    plain = cast("IO[str]", _Trimmed(stream))
    return CleanConsole(
        file=plain, force_terminal=False, highlight=False, markup=False, emoji=False, width=_NO_TERMINAL_WIDTH
    )


class CommandOrBelow(click.Command):
    """A command, unless its first word is the name of a command in ``below``."""

    below: tuple[click.Command, ...] = ()

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        for command in self.below:
            if args[:1] == [command.name]:
                return command.make_context(f"{info_name} {command.name}", args[1:], parent=parent, **extra)
        return super().make_context(info_name, args, parent=parent, **extra)


def _any_letter() -> bool:
    """Return whether the encoding of standard output is UTF-8."""
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"


class _Trimmed:
    """A text stream that removes trailing blanks of lines."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return self._stream.write(re.sub(r"(?<![ \t])[ \t]++(?=\n)", "", text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, wraps: Collection[str] | None = None) -> Table:
    """Return a table without a frame.

    ``wraps`` are the columns that may be wrapped; by default all except identifiers.
    """
    from rich import box
    from rich.table import Table

    drawn = Table(box=box.SIMPLE_HEAD if may_draw(sys.stdout) else None, pad_edge=False, header_style="bold")
    for title in columns:
        drawn.add_column(title, no_wrap=title in _IDENTIFIERS if wraps is None else title not in wraps, overflow="fold")
    for row in rows:
        drawn.add_row(*(cell(value) for value in row))
    return drawn


def key_values(pairs: Mapping[str, Any]) -> Table:
    """Return a table of names and values, without empty values."""
    from rich.table import Table

    drawn = Table.grid(padding=(0, 2))
    drawn.add_column(style="bold", no_wrap=True)
    drawn.add_column(overflow="fold")
    for name, value in pairs.items():
        if value not in (None, "", {}, []):
            drawn.add_row(name, cell(value))
    return drawn


def cell(value: Any) -> Any:
    """Return a value as a cell of ``table`` or ``key_values``."""
    from rich.text import Text

    if isinstance(value, Text):
        return value
    text = plain(value)
    return Text(text, style="dim" if value is None else STYLES.get(text, ""))


def plain(value: Any) -> str:
    """Return a value as readable text."""
    if type(value) is str:
        return clean(value)
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return clean("\n".join(f"{key} = {_inline(item)}" for key, item in value.items()))
    if isinstance(value, list | tuple):
        return clean(", ".join(str(item) for item in value))
    return clean(str(value))


def _csv_cell(value: Any) -> str:
    """Return a value for CSV. Machines may have chosen the texts, so none of them is a formula."""
    if value is None:
        return ""
    return str(spreadsheet_cell(plain(value))) if isinstance(value, str) else plain(value)


def _inline(value: Any) -> str:
    if isinstance(value, dict | list):
        import json

        return json.dumps(value, ensure_ascii=False)
    return str(value)
