"""Every command that the documentation names exists, with the options that it gives it."""

from __future__ import annotations

import importlib.util
import io
import itertools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from bench.__main__ import main as benchmarks
from ferroscope_client.cli.main import main
from tests import ROOT
from tests.fast.docs.pages import Page, pages, typed
from tests.support import misses

_TARGET = re.compile(r"^([a-z-]+):", re.MULTILINE)
_MODULE = re.compile(r"python3? -m ((?:tests|tools|bench)[\w.]*)")
_BENCH = re.compile(r"python -m bench ([^`\n#]+)")
# Files that the pages say are there.
_FILES = (
    "inventory.json", "bmc-password", "rack1.csv", "maas.csv", "foreman.csv", "machines.csv", "expected.yaml",
    "firmware.yaml",
)  # fmt: skip


def _typed(program: str) -> Iterator[tuple[Page, str]]:
    """Yield page and command line of what is typed at a prompt and runs ``program``."""
    for source in pages():
        for block in source.blocks:
            for line in typed(block) if block.language in ("console", "") else ():
                words = shlex.split(line, comments=True)
                if words and Path(words[0]).name == program:
                    yield source, line


def _mentioned(program: str) -> Iterator[tuple[Page, str]]:
    for source in pages():
        for span in source.spans:
            if span.split()[0] == program:
                yield source, span


def parse(words: list[str], command: click.Command = main) -> None:
    """Parse a whole command line as the program would, without running it; ``click.UsageError``."""
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
        command, context, words = found, click.Context(found, context, words[0]), words[1:]
    options = {name for param in command.get_params(context) for name in (*param.opts, *param.secondary_opts)}
    missing = [word for word in words if word.startswith("-") and word.rstrip(",") not in options]
    return f"{command.name} has no option {missing[0]}" if missing else None


def unparsed(line: str, command: click.Command = main) -> str | None:
    """Return why a line that is typed cannot be parsed."""
    try:
        parse([*itertools.takewhile(lambda word: word != ">", shlex.split(line, comments=True)[1:])], command)
    except click.UsageError as exc:
        return exc.format_message()
    except click.exceptions.Exit as exc:  # --help, --version
        return f"exit code {exc.exit_code}" if exc.exit_code else None
    return None


def test_what_is_typed_can_be_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", io.StringIO("SECRET"))
    for file in _FILES:
        Path(file).touch()
    misses.none(
        f"{source.at(line)}: {line}: {wrong}" for source, line in _typed("ferroscope") if (wrong := unparsed(line))
    )


def test_what_is_mentioned_exists() -> None:
    misses.none(
        f"{source.at(span)}: {span}: {wrong}"
        for source, span in _mentioned("ferroscope")
        if (wrong := known(span.split(" | ")[0].split()[1:]))
    )


def test_modules_that_are_run_exist() -> None:
    misses.none(
        f"{source.at(name)}: there is no module {name}"
        for source in pages()
        for name in _MODULE.findall(source.text)
        if importlib.util.find_spec(name) is None
    )


def test_each_benchmark_that_is_named_can_be_run() -> None:
    misses.none(
        f"{source.at(line)}: {line}: {wrong}"
        for source in pages()
        for line in _BENCH.findall(source.text)
        if (wrong := unparsed(f"bench {line}", benchmarks))
    )
    assert unparsed("bench failover", benchmarks) is not None


def test_make_has_every_target() -> None:
    targets = set(_TARGET.findall((ROOT / "Makefile").read_text(encoding="utf-8")))
    misses.none(
        f"{source.at(line)}: {line}: the Makefile has no target {word}"
        for source, line in (*_typed("make"), *_mentioned("make"))
        for word in shlex.split(line)[1:]
        if "=" not in word and word not in targets
    )
