"""What a wait says: what it waits for, and how long yet."""

from __future__ import annotations

import pytest

from ferroscope.cli.screen import Waiting


def test_a_wait_without_a_terminal_says_now_and_then_what_it_waits_for(capsys: pytest.CaptureFixture[str]) -> None:
    with Waiting(1, every=0.0) as shown:
        shown.say("n1 is still verifying (the BMC is tried again in 77 s)", 42.4)
    captured = capsys.readouterr()
    assert captured.err == "n1 is still verifying (the BMC is tried again in 77 s); 42 s left\n"
    assert not captured.out


def test_a_short_wait_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with Waiting(1) as shown:
        shown.say("n1 is still verifying", 119.0)
    assert not capsys.readouterr().err
