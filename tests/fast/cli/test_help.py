"""``ferroscope --help`` by task, on one screen; and what a wrong word leads to."""

from __future__ import annotations

import pytest

from ferroscope.cli.exits import Exit
from ferroscope.cli.main import _OWN, GROUPS, commands, grouped
from tests.fast.cli.running import run


def test_the_help_has_each_command_once_in_five_groups_on_one_screen() -> None:
    lines = run("--help").stdout.splitlines()
    assert len(lines) <= 50
    assert max(map(len, lines)) <= 80
    assert len(grouped()) == 5
    listed = [line.split()[0] for line in lines if line.startswith("  ") and line.split()[0] in commands()]
    assert sorted(listed) == sorted(commands())


def test_each_command_of_the_service_belongs_to_a_task() -> None:
    named = [name for names in GROUPS.values() for name in names]
    assert len(set(named)) == len(named)
    assert set(_OWN) <= set(named) <= set(commands())


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["list"], "ferroscope node list"),
        (["get", "nodes"], "ferroscope node list"),
        (["nodes", "list"], "ferroscope node"),
        (["approve", "n1"], "ferroscope node approve"),
        (["statuss"], "ferroscope status"),
        (["serve"], "ferroscope all"),
        (["node", "ls"], "ferroscope node list"),
        (["node", "shwo", "n1"], "ferroscope node show"),
        (["node", "rm", "n1"], "ferroscope node delete"),
    ],
)
def test_a_wrong_word_leads_to_the_right_command(words: list[str], meant: str) -> None:
    done = run(*words)
    assert done.exit_code == Exit.USAGE
    assert f"'{meant}'" in done.stderr


def test_nothing_is_suggested_for_nonsense() -> None:
    assert "Did you mean" not in run("qqqqqqq").stderr
