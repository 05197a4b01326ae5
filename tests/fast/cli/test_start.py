"""The command line starts fast: what a command does not need is not even imported."""

from __future__ import annotations

from ferroscope_client.cli.main import commands
from tests.fast.cli.running import run
from tests.support import misses


def test_every_command_in_the_table_exists_and_explains_itself() -> None:
    helps = {name: run(name, "--help") for name in commands()}
    misses.none(name for name, done in helps.items() if done.exit_code != 0 or "Usage: " not in done.stdout)


def test_the_version_and_help_are_where_they_are_looked_for() -> None:
    assert run("-V").exit_code == 0
    assert run("help", "node", "list").output == run("node", "list", "--help").output
    assert run("help").output == run("--help").output
    assert run("help", "nothing").exit_code == 2
