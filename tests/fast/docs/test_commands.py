"""Every command that the documentation names exists, with the options that it gives it."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from ferroscope.cli.main import main
from tests import ROOT
from tests.fast.docs.pages import page, pages, typed

_TARGET = re.compile(r"^([a-z-]+):", re.MULTILINE)


def _typed(program: str) -> Iterator[tuple[str, str]]:
    """Yield page and command line of what is typed at a prompt and runs ``program``."""
    for source in pages():
        for block in source.blocks:
            for line in typed(block) if block.language in ("console", "") else ():
                words = shlex.split(line, comments=True)
                if words and Path(words[0]).name == program:
                    yield source.name, line


def _mentioned(program: str) -> Iterator[tuple[str, str]]:
    for source in pages():
        for span in source.spans:
            if span.split()[0] == program:
                yield source.name, span


def parse(words: list[str]) -> None:
    """Parse a whole command line as the program would, without running it; ``click.UsageError``."""
    command: click.Command = main
    context = command.make_context("ferroscope", list(words))
    while isinstance(command, click.Group):
        words = [*context._protected_args, *context.args]
        if not words and command.invoke_without_command:
            return
        name, found, rest = command.resolve_command(context, words)
        assert found is not None
        command, context = found, found.make_context(name, rest, parent=context)


def known(words: list[str]) -> str | None:
    """Return what is wrong with the names in a mention: a command or an option that is not there."""
    command: click.Command = main
    context = click.Context(main)
    while words and isinstance(command, click.Group) and not words[0].startswith("-"):
        found = command.get_command(context, words[0])
        if found is None:
            return f"there is no command {words[0]}"
        command, words = found, words[1:]
    options = {name for param in command.get_params(context) for name in (*param.opts, *param.secondary_opts)}
    missing = [word for word in words if word.startswith("-") and word.rstrip(",") not in options]
    return f"{command.name} has no option {missing[0]}" if missing else None


@pytest.mark.parametrize(("name", "line"), list(_typed("ferroscope")))
def test_what_is_typed_can_be_parsed(name: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for file in (
        "inventory.json",
        "bmc-password",
        "rack1.csv",
        "maas.csv",
        "foreman.csv",
        "machines.csv",
        "expected.yaml",
        "firmware.yaml",
    ):  # files that the pages say are there
        Path(file).touch()
    try:
        parse([*itertools.takewhile(lambda word: word != ">", shlex.split(line, comments=True)[1:])])
    except click.UsageError as exc:
        pytest.fail(f"{name}: {line}: {exc.format_message()}")
    except click.exceptions.Exit as exc:  # --help, --version
        if exc.exit_code:
            pytest.fail(f"{name}: {line}")


@pytest.mark.parametrize(("name", "span"), list(_mentioned("ferroscope")))
def test_what_is_mentioned_exists(name: str, span: str) -> None:
    words = span.split(" | ")[0].split()[1:]
    assert known(words) is None, f"{name}: {span}"


def test_a_command_or_an_option_that_does_not_exist_is_found() -> None:
    with pytest.raises(click.UsageError):
        parse(["node", "vanish", "n1"])
    with pytest.raises(click.UsageError):
        parse(["inspect", "--everything"])
    with pytest.raises(click.UsageError):
        parse(["sim", "--nodes", "many"])
    assert known(["node", "vanish"]) is not None
    assert known(["inspect", "--everything"]) is not None


def test_the_readme_says_how_to_install_and_what_contributors_call() -> None:
    readme = page("README.md")
    assert any(line.startswith("pipx install ") for block in readme.blocks for line in typed(block))
    assert {"make demo", "make test"} <= set(readme.spans)


@pytest.mark.parametrize(("name", "line"), [*_typed("make"), *_mentioned("make")])
def test_make_has_every_target(name: str, line: str) -> None:
    targets = _TARGET.findall((ROOT / "Makefile").read_text(encoding="utf-8"))
    wanted = [word for word in shlex.split(line)[1:] if "=" not in word]
    assert set(wanted) <= set(targets), f"{name}: {line}"
