"""How commands end: the exit codes that scripts may rely on, and the failures that carry them.

A failure says what is wrong, why, and the next command to run. The codes are documented in the
reference of the command line, which is generated from here.
"""

from __future__ import annotations

from enum import IntEnum
from typing import IO, Any, Final

import click

from ferroscope.cli.text import clean


class Exit(IntEnum):
    """``MEANINGS`` has a sentence for each."""

    OK = 0
    FAILURE = 1
    USAGE = 2
    NOT_FOUND = 3
    CONFLICT = 4
    UNREACHABLE = 5
    TIMED_OUT = 6
    INTERRUPTED = 130


MEANINGS: Final[dict[Exit, str]] = {
    Exit.OK: "Done; with --wait or --watch: everything that was waited for succeeded.",
    Exit.FAILURE: "It failed, or an inspection that was waited for ended in error.",
    Exit.USAGE: "The command, or a value in it, was not written as it must be: nothing was done.",
    Exit.NOT_FOUND: "There is no such node, or it has nothing of that kind.",
    Exit.CONFLICT: "The present state does not permit it, or something else has that name or address already.",
    Exit.UNREACHABLE: "The service cannot be reached, or cannot answer at present.",
    Exit.TIMED_OUT: "--timeout has passed before everything that was waited for had ended.",
    Exit.INTERRUPTED: "Interrupted from the keyboard; what was asked of the service goes on.",
}


class Failure(click.ClickException):
    """Ends the command with ``exit_code``; ``advice`` is what to do, most often a command."""

    def __init__(self, message: str, *, exit_code: Exit = Exit.FAILURE, advice: str = "") -> None:
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc]  # click reads it from the instance
        self.advice = advice

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"Error: {clean(self.message)}", err=file is None, file=file)
        if self.advice:
            click.echo(f"  {clean(self.advice)}", err=file is None, file=file)


def worst(failures: list[Failure]) -> Exit:
    """Return the exit code of a command over many nodes: that of its failures where all agree, else 1."""
    codes = {Exit(failure.exit_code) for failure in failures}
    return codes.pop() if len(codes) == 1 else Exit.FAILURE
