"""What a wait says: what it waits for, and how long yet."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from ferroscope_client.cli.newest_step import message
from ferroscope_client.cli.screen import Waiting, progress, track
from tests.support.rows import each


def test_a_wait_without_a_terminal_says_now_and_then_what_it_waits_for(capsys: pytest.CaptureFixture[str]) -> None:
    with Waiting(1, every=0.0) as shown:
        shown.say("n1 is still verifying (the BMC is tried again in 77 s)", 42.4)
    captured = capsys.readouterr()
    assert captured.err == "n1 is still verifying (the BMC is tried again in 77 s); 42 s left\n"
    assert not captured.out


@pytest.mark.parametrize(("total", "expected"), [(3000, "after 2 of 3,000"), (None, "after 2")])
def test_an_interrupt_is_answered_with_how_far_it_got(
    capsys: pytest.CaptureFixture[str], total: int | None, expected: str
) -> None:
    def rows() -> Iterator[int]:
        yield from range(2)
        raise KeyboardInterrupt

    def encrypt() -> None:
        with progress("Encrypting", total) as advance:
            advance(2)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(track(rows(), "Importing", total))
    with pytest.raises(KeyboardInterrupt):
        encrypt()
    said = capsys.readouterr().err.splitlines()
    assert [line.partition("; ")[0] for line in said] == [
        f"interrupted while importing, {expected}",
        f"interrupted while encrypting, {expected}",
    ]


@each(
    ("step", "expected"),
    [
        (None, ""),
        ({"step": "booted", "message": "the machine boots\nfrom the network"}, "the machine boots"),
        ({"step": "booted", "message": ""}, "booted"),
        (
            {
                "step": "bmc",
                "message": "BMC 192.0.2.1 did not respond; trying again in 40 s",
                "detail": {"after": 40.0},
            },
            "BMC 192.0.2.1 did not respond; trying again in 28 s",
        ),
        ({"step": "retry", "message": "no answer", "detail": {"after": 12.5}}, "no answer; trying again now"),
        ({"step": "retry", "message": "no answer", "detail": {"after": "soon"}}, "no answer"),
    ],
)
def test_a_pause_of_a_bmc_has_the_seconds_that_are_left(step: dict[str, Any] | None, expected: str) -> None:
    at = "2026-11-27T04:00:00+00:00"
    assert message(step and {"at": at} | step, now=datetime(2026, 11, 27, 4, 0, 12, tzinfo=UTC)) == expected


def test_a_clock_that_is_wrong_makes_no_pause_longer() -> None:
    step = {"at": "2026-11-27T04:00:00+00:00", "step": "retry", "message": "no answer", "detail": {"after": 12.5}}
    assert message(step, now=datetime(2026, 11, 24, tzinfo=UTC)) == "no answer; trying again in 12 s"
