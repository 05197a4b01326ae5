"""What can go wrong, and the exit codes that scripts can rely on.

A failure says what is wrong and what to do, usually the next command to run. The reference of the command line
documents the codes; it is generated from here.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class Exit(IntEnum):
    """Exit codes; ``MEANINGS`` describes each."""

    OK = 0
    FAILURE = 1
    USAGE = 2
    NOT_FOUND = 3
    CONFLICT = 4
    UNREACHABLE = 5
    TIMED_OUT = 6
    UNAUTHENTICATED = 7
    FORBIDDEN = 8
    CONFIGURATION = 78  # EX_CONFIG of sysexits.h
    INTERRUPTED = 130


MEANINGS: Final[dict[Exit, str]] = {
    Exit.OK: "Success; with --wait or --watch: all operations succeeded.",
    Exit.FAILURE: "The command failed, or with --wait or --watch an inspection ended in error.",
    Exit.USAGE: "Invalid command line or value; nothing was done.",
    Exit.NOT_FOUND: "The node or the requested data does not exist.",
    Exit.CONFLICT: "Not possible in the current state, or a name or address is already in use.",
    Exit.UNREACHABLE: "The service cannot be reached or is temporarily unavailable.",
    Exit.TIMED_OUT: "--timeout expired before all operations ended.",
    Exit.UNAUTHENTICATED: "The service, or Keystone, requires a login, or rejected the credentials.",
    Exit.FORBIDDEN: "The credentials are valid, but their roles do not allow the operation.",
    Exit.CONFIGURATION: "The service's configuration cannot be used; nothing was started or changed.",
    Exit.INTERRUPTED: "Interrupted from the keyboard; the service continues with accepted operations.",
}


class Failure(Exception):  # noqa: N818  # the name that messages and docs use
    """Something failed; ``advice`` says what to do, usually a command. A command ends with ``exit_code``."""

    def __init__(self, message: str, *, exit_code: Exit = Exit.FAILURE, advice: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.exit_code = exit_code
        self.advice = advice


def worst(failures: list[Failure]) -> Exit:
    """Return the exit code of a command on many nodes: the failures' code if all are the same, else 1."""
    codes = {Exit(failure.exit_code) for failure in failures}
    return codes.pop() if len(codes) == 1 else Exit.FAILURE
