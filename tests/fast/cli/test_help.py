"""``ferroscope --help`` by task, on one screen; and what a wrong word leads to."""

from __future__ import annotations

from importlib.metadata import entry_points

import pytest

from ferroscope_client.cli import main
from ferroscope_client.cli.main import commands, commands_by_group
from ferroscope_client.cli.wrong_words import _ELSEWHERE, SERVICE_COMMANDS
from ferroscope_client.errors import Exit
from tests.fast.cli.running import run
from tests.support.rows import each


def test_the_help_has_each_command_once_in_five_groups_on_one_screen() -> None:
    lines = run("--help").stdout.splitlines()
    assert len(lines) <= 50
    assert max(map(len, lines)) <= 80
    assert len(commands_by_group()) == 5
    listed = [line.split()[0] for line in lines if line.startswith("  ") and line.split()[0] in commands()]
    assert sorted(listed) == sorted(commands())


def test_a_command_that_the_service_adds_is_said_to_be_its_own_where_it_is_not_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    added = {command for command in commands() if command not in main._OWN}
    added |= {point.name.replace(".", " ") for point in entry_points(group="ferroscope.subcommands")}
    assert added == SERVICE_COMMANDS
    monkeypatch.setattr(main, "commands", lambda: main._OWN)
    refused = run("worker")
    assert refused.exit_code == Exit.USAGE
    assert "pipx inject ferroscope-client ferroscope" in refused.stderr


@each(
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
        (["node", "inspect", "n1"], "ferroscope inspect"),
        (["node", "explain", "n1"], "ferroscope explain"),
        (["node", "try", "n1"], "ferroscope bmc try"),
        (["rule", "import", "r.yaml"], "ferroscope node import"),
        (["bmc", "manage", "n1"], "ferroscope node manage"),
        (["node", "reboot", "n1"], "ferroscope node power"),
        (["reboot", "n1"], "ferroscope node power"),
        (["history", "n1"], "ferroscope node timeline"),
        (["retry"], "ferroscope inspect --failed"),
    ],
)
def test_a_wrong_word_leads_to_the_right_command(words: list[str], meant: str) -> None:
    done = run(*words)
    assert done.exit_code == Exit.USAGE
    assert f"'{meant}'" in done.stderr


def test_each_word_of_other_tools_leads_to_a_command_that_exists() -> None:
    for meant in (one for some in _ELSEWHERE.values() for one in some if not one.startswith("-")):
        words = meant.split(" --")[0].split()
        assert run(*words[:2] if words[0] != "docs" else ["docs"], "--help").exit_code == Exit.OK, meant
