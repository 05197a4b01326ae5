"""Values on the command line mean what they look like."""

from __future__ import annotations

import os
from pathlib import Path

import click
import pytest

from ferroscope_client.cli.node.write import mac, pair
from tests.fast.cli.running import run
from tests.support.rows import each


@each(
    ("text", "value"),
    [
        ("user=admin", ("user", "admin")),
        ("port=6230", ("port", "6230")),
        ("port:=6230", ("port", 6230)),
        ("url=http://a/?b=c", ("url", "http://a/?b=c")),
        ("empty=", ("empty", "")),
        ('hints:={"size": ">= 10"}', ("hints", {"size": ">= 10"})),
        ("off:=false", ("off", False)),
    ],
)
def test_pairs_are_text_unless_they_say_that_they_are_json(text: str, value: object) -> None:
    assert pair(text) == value


def test_a_password_comes_from_a_file_and_not_from_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "password"
    for end in (b"\n", b"\r\n", b""):
        file.write_bytes(b"s3cret @ rack" + end)
        assert pair(f"redfish_password=@{file}") == ("redfish_password", "s3cret @ rack")
    assert pair('at:="@home"') == ("at", "@home")
    with pytest.raises(click.BadParameter, match="redfish_password"):
        pair(f"redfish_password=@{tmp_path / 'nothing'}")


def test_a_terminal_is_asked_for_a_password_which_it_does_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, bool]] = []

    def prompt(text: str, *, hide_input: bool, err: bool) -> str:
        assert err
        asked.append((text, hide_input))
        return "s3cret"

    terminal, ours = os.openpty()
    with open(ours) as stdin:  # noqa: PTH123  # a descriptor
        monkeypatch.setattr("sys.stdin", stdin)
        monkeypatch.setattr("click.prompt", prompt)
        assert pair("redfish_password=@-") == ("redfish_password", "s3cret")
        assert asked == [("redfish_password", True)]
        os.write(terminal, b"what all may see\n\x04")
        assert pair("notes=@-") == ("notes", "what all may see")
    os.close(terminal)


@each("text", ["user", "=admin", ":=1", "", "port:=62a0", "x:=NaN", "x:=-Infinity"])
def test_what_is_no_pair_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        pair(text)


def test_macs_come_in_any_spelling() -> None:
    assert mac("52-54-00-AA-BB-CC") == "52:54:00:aa:bb:cc"


def test_what_is_no_mac_is_a_usage_error_that_names_it() -> None:
    result = run("node", "create", "n", "--port", "52:54:00:aa:bb")
    assert result.exit_code == 2
    assert "'52:54:00:aa:bb'" in result.stderr


@each(
    "arguments",
    [
        ("inspect",),
        ("inspect", "a", "--all"),
        ("inspect", "--all", "--failed"),
        ("inspect", "a", "--timeout", "3"),
        ("inspect", "a", "--watch", "--limit", "0"),
        ("node", "set", "a"),
        ("node", "list", "-o", "xml"),
        ("node", "list", "--state", "deploying"),
        ("node", "list", "--failed", "--state", "enroll"),
        ("node", "list", "--fields", ","),
        ("node", "list", "--fields", ""),
        ("node", "create", "a", "-d", "p=@-", "-p", "p=@-"),
        ("node", "power", "on"),
        ("node", "set", "a", "--reason", "why"),
        ("node", "delete", "--all"),
        ("inspect", "--state", "deploying"),
        ("docs", "novel", "second"),
    ],
)
def test_commands_that_make_no_sense_are_usage_errors(arguments: tuple[str, ...]) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "Error: " in result.stderr
