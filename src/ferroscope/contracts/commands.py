"""Commands of ``ferroscope``: those of the service, and those that other packages add.

A package adds one with an entry point in the group ``ferroscope.commands``: its name is the command's, its value a
``Command`` in a module that imports little, because ``ferroscope --help`` loads all of them. One that belongs to a
group, such as ``bmc scan``, is a click command in the group ``ferroscope.subcommands`` (see ``cli.output.Group``).
"""

from __future__ import annotations

from typing import NamedTuple


class Command(NamedTuple):
    """``target``: MODULE:ATTRIBUTE of the click command, imported when it is called. ``help``: a sentence for the list.

    ``after``: the command after which it is listed; "" for the last, None for the first. ``is_service``: its standard
    error is a log, where the traceback of an unexpected error belongs.
    """

    target: str
    help: str
    after: str | None = ""
    is_service: bool = False
