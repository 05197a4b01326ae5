"""Suggests commands in place of one that does not exist: a typo, a command of a group, or another tool's word."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Final

import click

from ferroscope_client.errors import Exit, Failure

# The words of other tools, of the OpenStack clients and of the shell, and their equivalents here.
_ELSEWHERE: Final[Mapping[str, tuple[str, ...]]] = {
    "add": ("node create", "node import"),
    "apply": ("node import",),
    "backup": ("docs back-up-and-upgrade",),
    "config": ("setup", "doctor"),
    "describe": ("node show", "explain"),
    "edit": ("node set",),
    "enroll": ("node create", "node import"),
    "failed": ("node list --state inspect-failed",),
    "get": ("node list", "node show"),
    "history": ("node timeline", "inventory"),
    "host": ("node",),
    "hosts": ("node list",),
    "introspect": ("inspect",),
    "introspection": ("inspect",),
    "label": ("node set",),
    "labels": ("node set",),
    "list": ("node list",),
    "logs": ("node log", "node timeline"),
    "ls": ("node list",),
    "machine": ("node",),
    "machines": ("node list",),
    "maintenance": ("node set",),
    "nodes": ("node list",),
    "reboot": ("node power",),
    "reset": ("node power",),
    "retry": ("inspect --failed",),
    "rm": ("node delete",),
    "run": ("all",),
    "serve": ("all",),
    "server": ("all",),
    "servers": ("node list",),
    "start": ("all", "inspect"),
    "verify": ("node manage", "bmc try"),
    "version": ("--version",),
    "wait": ("inspect --wait",),
    "why": ("explain",),
}
_MAX_SUGGESTIONS: Final = 2

# The commands of the distribution ferroscope, which may not be installed.
SERVICE_COMMANDS: Final = frozenset({
    "all", "api", "bmc report", "bmc scan", "db", "demo", "docs", "doctor", "events", "export", "failover", "import",
    "policy", "pxe", "pxe-filter", "ramdisk", "rule check", "secret", "setup", "sim", "sync", "token", "user", "worker",
})  # fmt: skip


def no_such_command(word: str, context: click.Context, group: str = "") -> Exception:
    """Return the error for a command that does not exist here, at the top or in a group, with suggestions."""
    if (command := f"{group} {word}".lstrip()) in SERVICE_COMMANDS:
        return Failure(
            f"'ferroscope {command}' is not installed here: it is in the service's distribution, ferroscope",
            exit_code=Exit.USAGE,
            advice="run it on a host of the service, or install that here: pipx inject ferroscope-client ferroscope",
        )
    names = [f"'ferroscope {suggestion}'" for suggestion in _suggestions(word, context, group)]
    meant = f" Did you mean {' or '.join(names)}?" if names else ""
    return click.UsageError(f"No such command {word!r}.{meant}", context)


def _suggestions(word: str, context: click.Context, group: str) -> list[str]:
    """Return at most two commands, with their groups; it imports all commands, which only an error needs."""
    root = context.find_root()
    commands = _below(root)
    groups = {name: _below(click.Context(command, root, name)) for name, command in commands.items()}
    within = f"{group} " if group else ""
    meant = _ELSEWHERE.get(word, ())
    suggestions = [command_line for command_line in meant if command_line.startswith(within)]
    suggestions += [word] if group and word in commands else []
    suggestions += [
        f"{command_group} {word}"
        for command_group in sorted(groups, key=lambda command_group: command_group != "node")
        if word in groups[command_group]
    ]
    suggestions += meant
    if not (group and suggestions):  # within a group, a command with exactly this name elsewhere is meant
        near = difflib.get_close_matches(word, list(_below(context)), n=_MAX_SUGGESTIONS)
        suggestions += [f"{within}{word_near}" for word_near in near]
    return list(dict.fromkeys(suggestions))[:_MAX_SUGGESTIONS]


def _below(context: click.Context) -> dict[str, click.Command]:
    """Return the commands of the context's group, none if it is not a group."""
    of = context.command
    if not isinstance(of, click.Group):
        return {}
    return {
        name: subcommand
        for name in of.list_commands(context)
        if (subcommand := of.get_command(context, name)) is not None
    }
