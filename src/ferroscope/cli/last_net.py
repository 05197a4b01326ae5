"""What commands did not expect, as a sentence: a full disk, text that is no UTF-8, and mistakes of ours.

It is the last resort. Where a command knows what may go wrong it says it better, with its own ``Failure``.
"""

from __future__ import annotations

import errno
import io
import os
import sys

from ferroscope.cli.exits import Exit, Failure


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
        f"this should not have happened: {type(exc).__name__}: {str(exc)[:200]}",
        advice="please report it, with what is printed by the same command after: ferroscope --debug",
    )


def _close_standard_output() -> None:
    """What could not be written is still in its buffer: without this Python tries again at its end, and complains."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
