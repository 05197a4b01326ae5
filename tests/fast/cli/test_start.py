"""The command line starts fast: what a command does not need is not even imported."""

from __future__ import annotations

from ferroscope.cli.main import commands
from tests.fast.cli.running import run
from tests.support import misses


def test_every_command_in_the_table_exists_and_explains_itself() -> None:
    helps = {name: run(name, "--help") for name in commands()}
    misses.none(name for name, done in helps.items() if done.exit_code != 0 or "Usage: " not in done.stdout)


def test_an_unknown_command_is_a_usage_error() -> None:
    result = run("frobnicate")
    assert result.exit_code == 2
    assert "'frobnicate'" in result.stderr


def test_the_version_and_help_are_where_they_are_looked_for() -> None:
    assert run("-V").exit_code == 0
    assert run("help", "node", "list").output == run("node", "list", "--help").output
    assert run("help").output == run("--help").output
    assert run("help", "nothing").exit_code == 2


def test_the_commands_of_a_group_are_listed_with_whole_sentences() -> None:
    shown = run("node", "--help").output
    assert '"why is it stuck?"' in " ".join(shown.split())
    assert not any(line.endswith("...") for line in shown.partition("Commands")[2].splitlines())


def test_a_command_that_is_almost_one_is_suggested() -> None:
    result = run("nodes", "list")
    assert result.exit_code == 2
    assert "'ferroscope node'" in result.stderr
