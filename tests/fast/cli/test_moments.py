"""Times for people: the local time zone, or UTC, whoever prints them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime

import click
import pytest
from click.testing import CliRunner

from ferroscope_client.cli.output import with_api
from ferroscope_client.cli.text import moment
from tests.support.rows import each

AT = "2026-11-20T14:42:36.019+00:00"
IN_UTC, IN_BERLIN = "2026-11-20 14:42:36 UTC", "2026-11-20 15:42:36 CET"


@pytest.fixture(autouse=True)
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@click.command()
@with_api
def shown(api: object, out: object) -> None:
    """Print one time, as every command with a connection may."""
    click.echo(moment(AT))


@each(
    ("words", "environment", "expected"),
    [
        ([], {}, IN_BERLIN),
        (["--utc"], {}, IN_UTC),
        ([], {"FERROSCOPE_UTC": "1"}, IN_UTC),
        ([], {"FERROSCOPE_UTC": "0"}, IN_BERLIN),
    ],
)
def test_times_are_local_unless_utc_is_wanted(words: list[str], environment: dict[str, str], expected: str) -> None:
    assert CliRunner().invoke(shown, words, env=environment).stdout == f"{expected}\n"


def test_outside_of_a_command_and_of_other_types() -> None:
    assert moment(datetime(2026, 11, 20, 14, 42, 36, tzinfo=UTC)) == IN_BERLIN
    assert moment(None) is None
    assert moment("not a time") == "not a time"
