"""Tables for people, JSON and YAML for programs."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from ferroscope_client.cli.output import Output, console, key_values, table
from ferroscope_client.cli.text import span
from tests.support.rows import each

DATA = [{"name": "n1", "last_error": None, "properties": {"cpus": 8, "größe": "2 HE"}}]


def draw(screen: Any) -> None:
    screen.print(table(("NAME", "STATE"), [("n1", "inspect failed"), ("a-longer-name", None)]))


def test_json_is_the_data_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    out = Output("json")
    out.say("enrolled")
    out.show(DATA, draw)
    captured = capsys.readouterr()
    assert json.loads(captured.out) == DATA
    assert captured.err == "enrolled\n"


def test_yaml_is_the_data_in_its_order(capsys: pytest.CaptureFixture[str]) -> None:
    Output("yaml").show(DATA, draw)
    written = capsys.readouterr().out
    assert yaml.safe_load(written) == DATA
    assert written.index("name") < written.index("last_error") < written.index("größe")


def test_markup_in_data_is_only_text(capsys: pytest.CaptureFixture[str]) -> None:
    console().print(table(("NAME",), [("[red]n1[/red]",), (":smile:",)]))
    assert capsys.readouterr().out.splitlines()[1:] == ["[red]n1[/red]", ":smile:"]


def test_facts_leave_out_what_is_not_known(capsys: pytest.CaptureFixture[str]) -> None:
    console().print(
        key_values({"Name": "n1", "Error": None, "Owner": "", "Extra": {}, "Driver info": {"a": 1, "b": [2]}})
    )
    assert capsys.readouterr().out == "Name         n1\nDriver info  a = 1\n             b = [2]\n"


@each(
    ("seconds", "text"),
    [(0, "0 s"), (119, "119 s"), (120, "2 min"), (7300, "2 h"), (86400 * 2.6, "3 d")],
)
def test_spans_are_shown_in_their_largest_fitting_unit(seconds: float, text: str) -> None:
    assert span(seconds) == text
