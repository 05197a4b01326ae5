"""``ferroscope``: finds the command and loads it, so that the others cost nothing."""

from __future__ import annotations

import difflib
import errno
import importlib
import io
import os
import sys
from typing import Any, Final

import click

from ferroscope import __version__
from ferroscope.cli.exits import Exit, Failure

# What commands did not expect, as a sentence: a full disk, text that is no UTF-8, and mistakes of ours.
#
# It is the last resort. Where a command knows what may go wrong it says it better, with its own ``Failure``.


def any_letter_on_standard_output() -> None:
    """Let letters that the terminal does not know be written as their numbers."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def told(exc: Exception) -> Failure:
    """Return what happened as a failure; a pipe whose reader has left is raised again, click ends it quietly."""
    if isinstance(exc, OSError):
        if exc.errno == errno.EPIPE:
            raise exc
        _close_standard_output()
        where = "" if exc.filename is None else f"{exc.filename}: "
        return Failure(f"{where}{exc.strerror or exc}")
    if isinstance(exc, UnicodeEncodeError) and any("\ud800" <= char <= "\udfff" for char in exc.object):
        return Failure("an argument is not UTF-8", exit_code=Exit.USAGE)
    return Failure(
        f"internal error: {type(exc).__name__}: {str(exc)[:200]}",
        advice="please report it, with the output of the same command with --debug: ferroscope --debug ...",
    )


def _close_standard_output() -> None:
    """What could not be written is still in its buffer: without this Python tries again at its end, and complains."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


# name -> (module:attribute, what it does)
COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "all": ("ferroscope.cli.service:run_all", "Run api, worker and periodic tasks in one process."),
    "api": ("ferroscope.cli.service:run_api", "Run the api role."),
    "worker": ("ferroscope.cli.service:run_worker", "Run the worker role."),
    "pxe-filter": ("ferroscope.cli.service:run_pxe_filter", "Run the PXE filter of this host."),
    "pxe": ("ferroscope.cli.pxe:pxe", "Look after PXE filters and boot configuration."),
    "db": ("ferroscope.cli.db:db", "Look after the database's schema, and the data of inspections."),
    "sim": ("ferroscope.cli.sim:sim", "Run a simulated fleet."),
    "demo": ("ferroscope.cli.demo.command:demo", "Show the service at work on a simulated fleet."),
    "node": ("ferroscope.cli.node.command:node", "Enrol, list, show and change nodes."),
    "driver": ("ferroscope.cli.driver:driver", "Show how BMCs can be spoken to."),
    "rule": ("ferroscope.cli.rule:rule", "Create, show, try and change inspection rules."),
    "inspect": ("ferroscope.cli.inspect:inspect", "Inspect nodes and watch them finish."),
    "inventory": ("ferroscope.cli.inventory:inventory", "Show, save and compare what inspections found."),
    "search": ("ferroscope.cli.search:search", "Find nodes by their hardware, or by any word."),
    "status": ("ferroscope.cli.status:status", "Show how the service is doing."),
    "doctor": ("ferroscope.cli.doctor:doctor", "Check that everything is in place, and say what is not."),
}

# What they leave in their log is read by supervisors and by us: a traceback belongs there.
_SERVICES: Final = frozenset({"all", "api", "worker", "pxe-filter"})


class LazyGroup(click.Group):
    """A group whose commands are imported when they are needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, attribute = COMMANDS[cmd_name][0].split(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)  # noqa: S101  # the table above says so
        return command

    def invoke(self, ctx: click.Context) -> Any:
        any_letter_on_standard_output()
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise click.exceptions.Exit(Exit.INTERRUPTED) from None
        except (click.ClickException, click.Abort, click.exceptions.Exit):
            raise
        except Exception as exc:  # the boundary: whoever types a command is told in a sentence what became of it
            if ctx.params["debug"] or ctx.invoked_subcommand in _SERVICES:
                raise
            raise told(exc) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[:1] == ["help"]:
            return "help", _help(self, args[1:]), []
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], COMMANDS, n=2)
            meant = f" Did you mean {' or '.join(near)}?" if near else ""
            raise click.UsageError(f"No such command {args[0]!r}.{meant}", ctx)
        return super().resolve_command(ctx, args)


def _help(group: click.Group, words: list[str]) -> click.Command:
    """Return a command that shows what ``--help`` of these words does."""

    def show() -> None:
        found: click.Command = group
        context = click.get_current_context().find_root()
        for word in words:
            below = found.get_command(context, word) if isinstance(found, click.Group) else None
            if below is None:
                raise click.UsageError(f"No such command {word!r}.")
            context, found = click.Context(below, info_name=word, parent=context), below
        click.echo(found.get_help(context))

    return click.Command("help", callback=show, help="Show the help of a command.")


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", prog_name="ferroscope")
@click.option("--url", help="Address of the Bare Metal API, for whatever command follows.")
@click.option("--debug", is_flag=True, help="Show the traceback of an error that nobody expected.")
def main(*, url: str | None, debug: bool) -> None:  # both are read elsewhere: from the context
    """Ferroscope: highly available bare-metal inspection."""
