"""Values on the command line: ``key=text`` and ``key:=json`` pairs, and MAC addresses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from ferroscope.domain import macs

Command = TypeVar("Command", bound=Callable[..., Any])


def pairs(*names: str, what: str) -> Callable[[Command], Command]:
    """Return an option that takes pairs and may be repeated."""
    text = f"{what}; KEY:=JSON for anything but text. May be repeated."
    return click.option(*names, type=pair, metavar="KEY=TEXT", multiple=True, help=text)


def mac_option(*names: str, what: str) -> Callable[[Command], Command]:
    """Return an option that takes MAC addresses and may be repeated."""
    return click.option(*names, type=mac, metavar="MAC", multiple=True, help=f"{what}; may be repeated.")


def pair(text: str) -> tuple[str, Any]:
    """Return ``key=text`` or ``key:=json`` as key and value; ``click.BadParameter``."""
    key, found, value = text.partition("=")
    if not found or not key.rstrip(":"):
        raise click.BadParameter(f"{text!r} is not KEY=TEXT or KEY:=JSON")
    if not key.endswith(":"):
        return key, value
    import json

    try:
        return key[:-1], json.loads(value)
    except ValueError as exc:
        raise click.BadParameter(f"the value of {key[:-1]} is not JSON: {exc}") from None


def mac(text: str) -> str:
    """Return a MAC address in its stored spelling; ``click.BadParameter``."""
    address = macs.normalize(text)
    if address is None:
        raise click.BadParameter(f"{text!r} is not a MAC address like 52:54:00:12:34:56")
    return address
