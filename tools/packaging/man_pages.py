"""Man pages and shell completion, generated from the commands, as files below a directory ``share``.

A page is a command of ``ferroscope`` with all that is below it, such as ferroscope-node(1); ferroscope(1) lists them.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click

from ferroscope_client.cli.main import commands, main
from ferroscope_client.errors import MEANINGS
from tools.packaging.contents import VERSION

# Where each shell looks for completions, below share.
_COMPLETIONS: Final = {
    "bash": "bash-completion/completions/ferroscope",
    "zsh": "zsh/site-functions/_ferroscope",
    "fish": "fish/vendor_completions.d/ferroscope.fish",
}
_ABOUT: Final = """\
Ferroscope boots machines into a ramdisk, receives the inventory that the ramdisk collects, and serves it with the
inspection APIs of OpenStack Ironic."""
_FILES: Final = {
    "/etc/ferroscope/ferroscope.conf": "Options of the service, if no file is given with -c.",
    "/etc/ferroscope/ferroscope.conf.d/*.conf": "More of them, which override the others in the order of their names.",
    "/var/lib/ferroscope": "The database, if it is SQLite.",
    "/var/lib/ferroscope-tftp": "What machines boot, on boot hosts; root's.",
}


def write(share: Path, epoch: int) -> None:
    """Write the pages, dated ``epoch``, and the completions below ``share``."""
    day = datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%d")
    pages = share / "man/man1"
    pages.mkdir(parents=True, exist_ok=True)
    (pages / "ferroscope.1").write_text(_overview(day))
    for name, one in commands().items():
        (pages / f"ferroscope-{name}.1").write_text(_page(name, one.help, day))
    for shell, place in _COMPLETIONS.items():
        path = share / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_completion(shell))


def _completion(shell: str) -> str:
    from click.shell_completion import ShellComplete, get_completion_class

    found = get_completion_class(shell)
    if found is None:
        raise RuntimeError(f"click has no completion for {shell}")
    # Not its own ``source``, which looks for the shell on this machine.
    return ShellComplete.source(found(main, {}, "ferroscope", "_FERROSCOPE_COMPLETE"))


def _overview(day: str) -> str:
    context = click.Context(main, info_name="ferroscope")
    lines = [*_head("ferroscope", "highly available inspection of bare-metal machines", day)]
    lines += [".SH SYNOPSIS", ".B ferroscope", "[\\fIOPTIONS\\fR] \\fICOMMAND\\fR [\\fIARGS\\fR]..."]
    lines += [".SH DESCRIPTION", _plain(_ABOUT), ".SH COMMANDS"]
    for name, one in commands().items():
        lines += [".TP", f".BR {_plain(f'ferroscope-{name}')} (1)", _plain(one.help)]
    lines += [".SH OPTIONS", *_options(main, context), ".SH EXIT STATUS"]
    for code, meaning in MEANINGS.items():
        lines += [".TP", f".B {code.value}", _plain(meaning)]
    lines += [".SH FILES"]
    for path, what in _FILES.items():
        lines += [".TP", f".I {path}", _plain(what)]
    return "\n".join(lines) + "\n"


def _page(name: str, purpose: str, day: str) -> str:
    root = click.Context(main, info_name="ferroscope")
    command = main.get_command(root, name)
    if command is None:
        raise RuntimeError(f"there is no command {name}")
    lines = [*_head(f"ferroscope-{name}", purpose.rstrip("."), day)]
    lines += [".SH SYNOPSIS", f".B ferroscope {_plain(name)}"]
    lines += [_plain(" ".join(command.collect_usage_pieces(click.Context(command, parent=root, info_name=name))))]
    lines += [".SH DESCRIPTION", *_command(command, click.Context(command, parent=root, info_name=name), top=True)]
    lines += [".SH SEE ALSO", ".BR ferroscope (1)"]
    return "\n".join(lines) + "\n"


def _command(command: click.Command, context: click.Context, *, top: bool) -> Iterator[str]:
    if not top:
        yield f'.SS "{_plain(context.command_path)} {_plain(" ".join(command.collect_usage_pieces(context)))}"'
    yield from _paragraphs(command.help)
    yield from _options(command, context)
    yield from _paragraphs(command.epilog)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            if found is not None:
                yield from _command(found, click.Context(found, parent=context, info_name=name), top=False)


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    for option in command.get_params(context):
        record = option.get_help_record(context) if isinstance(option, click.Option) else None
        if record is not None:
            yield ".TP"
            yield f".B {_plain(record[0])}"
            yield _plain(record[1])


def _head(name: str, purpose: str, day: str) -> Iterator[str]:
    yield f'.TH "{_plain(name.upper())}" "1" "{day}" "Ferroscope {VERSION}" "Ferroscope"'
    yield ".SH NAME"
    yield f"{_plain(name)} \\- {_plain(purpose)}"


def _paragraphs(text: str | None) -> Iterator[str]:
    for part in (text or "").split("\n\n"):
        if words := " ".join(part.replace("\b", "").split()):
            yield ".PP"
            yield _plain(words)


def _plain(text: str) -> str:
    """Escape what has a meaning in a man page."""
    escaped = " ".join(text.split()).replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped
