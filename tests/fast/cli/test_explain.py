"""``ferroscope explain``: every reason code, without a service."""

from __future__ import annotations

import json
from collections.abc import Iterator

from ferroscope_client.core.explanations import EXPLANATIONS
from ferroscope_client.core.reasons import Reason
from ferroscope_client.errors import Exit
from tests.fast.cli.running import run
from tests.fast.docs.test_commands import known, parse
from tests.support import misses
from tests.support.rows import each


def test_each_reason_is_explained_with_commands_that_exist() -> None:
    misses.none(f"{reason}: {wrong}" for reason in Reason for wrong in _wrong(reason))


def _wrong(reason: Reason) -> Iterator[str]:
    """Yield what is wrong with what is said about a reason."""
    result, one = run("explain", reason, "-o", "json"), EXPLANATIONS[reason]
    assert result.exit_code == Exit.OK
    said = {"reason": reason, "meaning": one.meaning, "hint": one.hint, "commands": list(one.commands)}
    if json.loads(result.stdout) != said:
        yield f"the command says {result.stdout}"
    if one.meaning == one.hint:
        yield f"the hint repeats the meaning: {one.meaning}"
    if not one.commands:
        yield "no command"
    for command in one.commands:
        program, *words = command.split()
        if program != "ferroscope" or known(words) is not None:
            yield f"no command of ours: {command}"
        else:
            parse(words)


@each("written", ["BMC_UNREACHABLE", "(bmc-unreachable)", "bmc unreachable"])
def test_a_code_may_be_copied_from_anywhere(written: str) -> None:
    assert json.loads(run("explain", written, "-o", "json").stdout)["reason"] == Reason.BMC_UNREACHABLE


def test_without_a_code_all_are_listed() -> None:
    lines = run("explain").stdout.splitlines()
    assert [line.split()[0] for line in lines[1:]] == sorted(Reason)


def test_an_unknown_code_is_refused_with_those_that_are_near() -> None:
    result = run("explain", "bmc-unreachabel")
    assert result.exit_code == Exit.NOT_FOUND
    assert Reason.BMC_UNREACHABLE in result.stderr
