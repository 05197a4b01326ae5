"""Values on the command line: ``key=text``, ``key=@file`` and ``key:=json`` pairs, and MAC addresses.

Everybody on the host can see a command line: passwords come from files, or from standard input.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from ferroscope.core import values

_FROM_STANDARD_INPUT: Final = "ferroscope.cli.node.values.standard_input"

Command = TypeVar("Command", bound=Callable[..., Any])


def pairs(*names: str, what: str) -> Callable[[Command], Command]:
    """Return an option that takes pairs and may be repeated."""
    text = f"{what}; KEY=@FILE reads the text from a file, KEY=@- from standard input; KEY:=JSON for anything but text."
    text += " May be repeated."
    return click.option(*names, type=pair, metavar="KEY=TEXT", multiple=True, help=text)


def mac_option(*names: str, what: str) -> Callable[[Command], Command]:
    """Return an option that takes MAC addresses and may be repeated."""
    return click.option(*names, type=mac, metavar="MAC", multiple=True, help=f"{what}; may be repeated.")


def pair(text: str) -> tuple[str, Any]:
    """Return ``key=text``, ``key=@file`` or ``key:=json`` as key and value; ``click.BadParameter``."""
    key, found, value = text.partition("=")
    if not found or not key.rstrip(":"):
        raise click.BadParameter(f"{text!r} is not KEY=TEXT or KEY:=JSON")
    if not key.endswith(":"):
        return key, _content(key, value[1:]) if value.startswith("@") else value
    import json

    try:
        return key[:-1], json.loads(value, parse_constant=_no_number)
    except ValueError as exc:
        raise click.BadParameter(f"the value of {key[:-1]} is not JSON: {exc}") from None


def _content(key: str, file: str) -> str:
    """Return what the file has, without the end of its last line."""
    if file == "-":
        _take_standard_input(key)
    try:
        with click.open_file(file, encoding="utf-8") as stream:
            content: str = stream.read()
    except (OSError, UnicodeDecodeError) as exc:
        raise click.BadParameter(
            f"the value of {key} cannot be read from {file!r}: {exc}; a text that begins with @ is {key}:='\"@...\"'"
        ) from None
    return content.removesuffix("\n")


def _take_standard_input(key: str) -> None:
    """Standard input is there once: a second value that comes from it would be empty."""
    context = click.get_current_context(silent=True)
    if context is None:
        return
    if _FROM_STANDARD_INPUT in context.meta:
        raise click.BadParameter(
            f"the value of {key} cannot be read: that of {context.meta[_FROM_STANDARD_INPUT]} took the input"
        )
    context.meta[_FROM_STANDARD_INPUT] = key


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no number")


def mac(text: str) -> str:
    """Return a MAC address in its stored spelling; ``click.BadParameter``."""
    address = values.normalize(text)
    if address is None:
        raise click.BadParameter(f"{text!r} is not a MAC address like 52:54:00:12:34:56")
    return address
