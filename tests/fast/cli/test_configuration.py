"""Every command that reads the configuration refuses what is unknown, and does nothing, unless it may ignore that."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from ferroscope_client.cli.main import commands, main
from ferroscope_client.errors import Exit

# What a command needs besides.
_ARGUMENTS = {
    "failover pause": ("--why", "x"),
    "bmc report": ("x",),
    "bmc scan": ("192.0.2.1",),
    "db copy": ("sqlite:////nowhere/x.db", "sqlite:////nowhere/y.db"),
    "db move-data": ("--from", "database", "--to", "s3"),
    "events redeliver": ("--dead",),
    "events test": ("x",),
    "import inspector": ("sqlite:////nowhere/x.db",),
    "policy check": ("baremetal:node:get", "--role", "admin"),
    "token create": ("x", "--role", "admin"),
    "token revoke": ("x",),
    "user add": ("x", "--role", "admin"),
    "user remove": ("x",),
}


def _reading(command: click.Command, words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the commands that take a configuration file."""
    if any(option.name == "files" for option in command.params):
        yield words
    if isinstance(command, click.Group):
        context = click.Context(command, click.Context(main), words[-1])
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from _reading(below, (*words, name))


def _all() -> list[str]:
    context = click.Context(main)
    found = [(name, main.get_command(context, name)) for name in commands()]
    return sorted(" ".join(one) for name, command in found if command for one in _reading(command, (name,)))


READING = _all()


def test_there_are_such_commands() -> None:
    assert {"all", "api", "worker", "pxe-filter", "failover", "db upgrade", "doctor"} <= set(READING)


def _file(directory: Path) -> str:
    file = directory / "f.conf"
    file.write_text("[databse]\nx = 1\n")
    return str(file)


@pytest.mark.parametrize("words", [one for one in READING if one != "doctor"])
def test_a_misspelt_section_ends_it(tmp_path: Path, words: str) -> None:
    arguments = [*words.split(), *_ARGUMENTS.get(words, ()), "-c", _file(tmp_path)]
    done = CliRunner().invoke(main, arguments, input="long enough a password\n" * 2)
    assert done.exit_code == Exit.CONFIGURATION, done.output
    assert "f.conf:1" in done.stderr
    assert "[database]" in done.stderr
    assert "--lenient-config" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["f.conf"]


@pytest.mark.parametrize("place", [0, 1], ids=["group", "command"])
def test_it_goes_on_with_a_warning_if_it_may(tmp_path: Path, place: int) -> None:
    url = f"sqlite:///{tmp_path}/f.db"
    assert CliRunner().invoke(main, ["db", "upgrade", "--database", url]).exit_code == Exit.OK
    words = ["failover", "status"]
    words.insert(1 + place, "--lenient-config")
    done = CliRunner().invoke(main, [*words, "--database", url, "-c", _file(tmp_path)])
    assert done.exit_code == Exit.OK, done.output
    assert done.stderr.startswith("Warning: ")
    assert "f.conf:1" in done.stderr
