"""Failures say what is wrong and what to do, and scripts can tell them apart."""

from __future__ import annotations

import click
import pytest

from ferroscope_client.errors import Exit, Failure, worst


def test_failures_that_differ_are_a_plain_failure() -> None:
    assert worst([Failure("a", exit_code=Exit.CONFLICT), Failure("b", exit_code=Exit.NOT_FOUND)]) is Exit.FAILURE


def test_a_key_press_ends_a_command_with_its_own_code() -> None:
    from ferroscope_client.cli.main import LazyGroup

    class Pressed(LazyGroup):
        def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
            raise KeyboardInterrupt

    with pytest.raises(SystemExit) as left:
        Pressed()(["status"])
    assert left.value.code == Exit.INTERRUPTED
