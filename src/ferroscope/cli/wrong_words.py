"""What was probably meant by a command that does not exist: a typo, a command of a group, or another tool's word."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping
from typing import Final

import click

# The words of other tools, of the OpenStack clients and of the shell, and what they are here.
_ELSEWHERE: Final[Mapping[str, tuple[str, ...]]] = {
    "add": ("node create", "node import"),
    "apply": ("node import",),
    "config": ("setup", "doctor"),
    "describe": ("node show", "explain"),
    "edit": ("node set",),
    "enroll": ("node create", "node import"),
    "get": ("node list", "node show"),
    "host": ("node",),
    "hosts": ("node list",),
    "introspect": ("inspect",),
    "introspection": ("inspect",),
    "list": ("node list",),
    "logs": ("node log", "node timeline"),
    "ls": ("node list",),
    "machine": ("node",),
    "machines": ("node list",),
    "nodes": ("node list",),
    "rm": ("node delete",),
    "run": ("all",),
    "serve": ("all",),
    "server": ("all",),
    "servers": ("node list",),
    "start": ("all", "inspect"),
    "version": ("--version",),
    "wait": ("inspect --wait",),
    "why": ("explain",),
}
_MOST: Final = 2


def suggestions(word: str, known: Iterable[str], below: Mapping[str, Collection[str]] | None = None) -> list[str]:
    """Return at most two commands; ``below``: the commands of each group, which are named with their group."""
    words = list(known)
    if below is None:  # within a group
        found = [name for one in _ELSEWHERE.get(word, ()) if (name := one.rpartition(" ")[2]) in words]
    else:
        found = list(_ELSEWHERE.get(word, ()))
        found += [f"{group} {word}" for group in sorted(below, key=lambda one: one != "node") if word in below[group]]
    found += difflib.get_close_matches(word, words, n=_MOST)
    return list(dict.fromkeys(found))[:_MOST]


def no_such_command(word: str, found: Iterable[str], context: click.Context, prefix: str = "") -> click.UsageError:
    """Return the error for a command that does not exist, with those that were probably meant."""
    names = [f"'{prefix}{one}'" for one in found]
    meant = f" Did you mean {' or '.join(names)}?" if names else ""
    return click.UsageError(f"No such command {word!r}.{meant}", context)
