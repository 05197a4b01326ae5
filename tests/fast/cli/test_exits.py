"""Failures say what is wrong and what to do, and scripts can tell them apart."""

from __future__ import annotations

import click
import pytest

from ferroscope.cli.exits import MEANINGS, Exit, Failure, worst
from tests.fast.cli.running import run
from tools.docs import commands


def test_every_exit_code_is_documented() -> None:
    assert set(MEANINGS) == set(Exit)
    page = commands.render()
    for code, meaning in MEANINGS.items():
        assert f"| {code.value} | {meaning} |" in page


def test_a_failure_shows_its_message_and_its_advice(capsys: pytest.CaptureFixture[str]) -> None:
    Failure("there is no node x", exit_code=Exit.NOT_FOUND, advice="see: ferroscope node list").show()
    assert capsys.readouterr().err == "Error: there is no node x\n  see: ferroscope node list\n"


def test_failures_that_agree_keep_their_code() -> None:
    assert worst([Failure("a", exit_code=Exit.CONFLICT), Failure("b", exit_code=Exit.CONFLICT)]) is Exit.CONFLICT


def test_failures_that_differ_are_a_plain_failure() -> None:
    assert worst([Failure("a", exit_code=Exit.CONFLICT), Failure("b", exit_code=Exit.NOT_FOUND)]) is Exit.FAILURE


def test_a_key_press_ends_a_command_with_its_own_code() -> None:
    from ferroscope.cli.main import LazyGroup

    class Pressed(LazyGroup):
        def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
            raise KeyboardInterrupt

    with pytest.raises(SystemExit) as left:
        Pressed()(["status"])
    assert left.value.code == Exit.INTERRUPTED


def test_an_address_that_is_none_is_a_usage_error() -> None:
    result = run("status", "--url", "localhost:6385")
    assert result.exit_code == Exit.USAGE
    assert '"localhost:6385"' in result.stderr
