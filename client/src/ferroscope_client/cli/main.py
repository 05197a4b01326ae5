"""``ferroscope``: the table of commands; each is imported when it is called, so that a start is fast."""

from __future__ import annotations

import errno
import gc
import importlib
import io
import os
import sys
from functools import cache
from typing import IO, Any, Final

import click

from ferroscope_client import __version__
from ferroscope_client.cli.text import clean, plain_option, utc_option
from ferroscope_client.cli.wrong_words import no_such_command
from ferroscope_client.errors import Exit, Failure
from ferroscope_client.installed import Command, PluginError, load_installed, merge_in_order

# The handler for unexpected errors of commands: a full disk, text that is not UTF-8, and bugs. Errors that a command
# expects are its own ``Failure``.


def prepare_standard_output() -> None:
    """Escape characters that the terminal's encoding does not support; discard everything if it is closed.

    Scripts close it (``>&-``) if they do not read it, and then it is None.
    """
    if sys.stdout is None:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def to_failure(exc: Exception) -> Failure:
    """Return an unexpected error as a failure; a broken pipe is raised again, because click handles it silently."""
    if isinstance(exc, OSError):
        if exc.errno == errno.EPIPE:
            raise exc
        _close_standard_output()
        where = "" if exc.filename is None else f"{exc.filename}: "
        return Failure(f"{where}{exc.strerror or exc}")
    if isinstance(exc, UnicodeEncodeError) and any("\ud800" <= char <= "\udfff" for char in exc.object):
        return Failure("an argument is not valid UTF-8", exit_code=Exit.USAGE)
    return Failure(
        f"internal error: {type(exc).__name__}: {str(exc)[:200]}",
        advice="run it again with 'ferroscope --debug ...', and report the output",
    )


class ShownFailure(click.ClickException):
    """A failure as click shows it: the message, below it what to do."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.exit_code = failure.exit_code  # type: ignore[misc]  # click reads it from the instance
        self._advice = failure.advice

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"Error: {clean(self.message)}", err=file is None, file=file)
        if self._advice:
            click.echo(f"  {clean(self._advice)}", err=file is None, file=file)


def _close_standard_output() -> None:
    """Discard buffered output that could not be written: Python would try again at exit and print another error."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


# The commands that need only the API; packages add more (see ``installed``).
_OWN: Final[dict[str, Command]] = {
    "node": Command("ferroscope_client.cli.node:node", "Enroll, list, show, change and delete nodes."),
    "bmc": Command("ferroscope_client.cli.bmc:bmc", "Find BMCs in networks, and report what a BMC answers."),
    "driver": Command("ferroscope_client.cli.status:driver", "List BMC drivers and their properties."),
    "rule": Command("ferroscope_client.cli.rule:rule", "Create, show, test and change inspection rules."),
    "inspect": Command("ferroscope_client.cli.inspect:inspect", "Inspect nodes and watch the progress."),
    "inventory": Command("ferroscope_client.cli.inventory:inventory", "Show, save and compare hardware inventories."),
    "search": Command("ferroscope_client.cli.inventory:search", "Find nodes by hardware, state, labels or reason."),
    "expect": Command("ferroscope_client.cli.expect:expect", "Define the expected hardware, and show deviations."),
    "firmware": Command("ferroscope_client.cli.inventory:firmware", "Report the firmware of machines."),
    "lease": Command("ferroscope_client.cli.lease:lease", "List leases, and run a command while holding one."),
    "explain": Command("ferroscope_client.cli.explain:explain", "Explain what is wrong with a node, and what to do."),
    "status": Command("ferroscope_client.cli.status:status", "Show the status of the service."),
    "top": Command("ferroscope_client.cli.top:top", "Show members, queue, progress and failures live."),
    "audit": Command("ferroscope_client.cli.audit:audit", "Show who called the API, and what it changed."),
}

# The help by task, with the commands of the distribution ferroscope. The command of another package is in the group of
# the command after which it is listed.
GROUPS: Final[dict[str, tuple[str, ...]]] = {
    "Enroll and inspect machines": ("node", "inspect", "rule", "bmc", "driver"),
    "Look at their hardware": ("inventory", "search", "expect", "firmware", "export", "sync"),
    "See what the service does": ("status", "top", "explain", "audit", "docs"),
    "Set up and run the service, with its configuration and database, not --url": (
        "setup", "all", "api", "worker", "pxe-filter", "pxe", "ramdisk", "db", "import", "events", "user", "token",
        "secret", "policy", "doctor",
    ),
    "Coordinate, try out": ("lease", "failover", "sim", "demo"),
}  # fmt: skip
_OTHERS: Final = "Coordinate, try out"


def commands_by_group() -> dict[str, list[str]]:
    """Return the names of all commands by group, in the order of the help."""
    group_of = {name: group for group, names in GROUPS.items() for name in names}
    by_group: dict[str, list[str]] = {group: list(names) for group, names in GROUPS.items()}
    for name, command in _commands().items():
        if name not in group_of:
            among = by_group[group_of.get(command.after or "", _OTHERS)]
            among.insert(among.index(command.after) + 1 if command.after in among else len(among), name)
    return {group: [name for name in names if name in _commands()] for group, names in by_group.items()}


@cache
def commands() -> dict[str, Command]:
    """Return all commands by name, in the order of the help; ``PluginError``."""
    return merge_in_order(_OWN, load_installed("ferroscope.commands"))


def _commands() -> dict[str, Command]:
    try:
        return commands()
    except PluginError as exc:
        raise Failure(str(exc), advice=exc.advice) from exc


def _is_service(name: str | None) -> bool:
    command = _OWN.get(name or "") or _commands().get(name or "")
    return command is not None and command.is_service


class LazyGroup(click.Group):
    """A group whose commands are imported when they are needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for names in commands_by_group().values() for name in names]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        located = _OWN.get(cmd_name) or _commands().get(cmd_name)
        if located is None:
            return None
        module, attribute = located.target.split(":")
        gc.disable()  # imported objects stay: garbage collections during an import take a tenth of its time
        try:
            command = getattr(importlib.import_module(module), attribute)
        finally:
            gc.enable()
        assert isinstance(command, click.Command)  # noqa: S101  # the table above says so
        return command

    def make_context(self, *args: Any, **more: Any) -> click.Context:
        """Read the arguments; this also writes the help and the release."""
        prepare_standard_output()
        try:
            return super().make_context(*args, **more)
        except Failure as exc:
            raise ShownFailure(exc) from None
        except OSError as exc:
            raise ShownFailure(to_failure(exc)) from None

    def _main_shell_completion(self, *args: Any, **more: Any) -> None:
        try:
            super()._main_shell_completion(*args, **more)
        except OSError as exc:
            _close_standard_output()
            sys.exit(f"Error: {exc.strerror}")

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise click.exceptions.Exit(Exit.INTERRUPTED) from None
        except Failure as exc:
            raise ShownFailure(exc) from exc
        except (click.ClickException, click.Abort, click.exceptions.Exit):
            raise
        except Exception as exc:  # the boundary: users get one line instead of a traceback
            if ctx.params["debug"] or _is_service(ctx.invoked_subcommand):
                raise
            raise ShownFailure(to_failure(exc)) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        commands = _commands()
        width = max(map(len, commands)) + 2
        for group, names in commands_by_group().items():
            formatter.write(f"{group}:\n")
            for name in names:
                formatter.write(f"  {name:<{width}}{commands[name].help}\n")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands, and the options as one sentence: everything fits on one screen."""
        formatter.write_paragraph()
        self.format_commands(ctx, formatter)
        names = ", ".join(
            max(option.opts, key=len) for option in self.get_params(ctx) if isinstance(option, click.Option)
        )
        formatter.write_paragraph()
        formatter.write_text(f"Options before any command: {names}. For details: ferroscope COMMAND --help")

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[:1] == ["help"]:
            return "help", _help(self, args[1:]), []
        if args and args[0] not in _OWN and not args[0].startswith("-") and args[0] not in _commands():
            raise no_such_command(args[0], ctx)
        return super().resolve_command(ctx, args)


def _help(group: click.Group, words: list[str]) -> click.Command:
    """Return a command that shows the ``--help`` of the command that these words name."""

    def show() -> None:
        command: click.Command = group
        context = click.get_current_context().find_root()
        for word in words:
            below = command.get_command(context, word) if isinstance(command, click.Group) else None
            if below is None:
                raise click.UsageError(f"No such command {word!r}.")
            context, command = click.Context(below, info_name=word, parent=context), below
        click.echo(command.get_help(context))

    return click.Command("help", callback=show, help="Show the help of a command.")


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", prog_name="ferroscope")
@click.option("--url", help="URL of the Bare Metal API, for the command that follows.")
@click.option("--os-cloud", "cloud", help="Name of a cloud in clouds.yaml, for the command that follows.")
@click.option("--insecure-http", is_flag=True, help="Allow credentials over plain HTTP, for the command that follows.")
@utc_option
@plain_option
@click.option("--debug", is_flag=True, help="Show the traceback of unexpected errors.")
def main(**_read_from_the_context: object) -> None:
    """Ferroscope: highly available bare-metal inspection."""
