"""Unexpected errors are one line; --debug shows the traceback."""

from __future__ import annotations

import pytest

from ferroscope_client.cli import inventory
from ferroscope_client.errors import Exit
from tests.fast.cli.running import run
from tests.support.rows import each


@each(
    "arguments",
    [("node", "show", "\udcff"), ("search", "\udcff"), ("node", "delete", "\udcff"), ("inventory", "diff", "\udcff")],
)
def test_an_argument_that_is_not_utf8_is_a_usage_error(arguments: tuple[str, ...]) -> None:
    result = run(*arguments)
    assert (result.exit_code, "UTF-8" in result.stderr) == (Exit.USAGE, True)


@each("ident", ["", ".", ".."])
def test_an_identifier_that_would_change_the_path_is_refused(ident: str) -> None:
    result = run("node", "show", ident)
    assert (result.exit_code, repr(ident) in result.stderr) == (Exit.NOT_FOUND, True)


@each("url", ["http://[::1", "http://h:99999", "http://h:x", "http://", "h:1"])
def test_an_address_that_is_none_is_a_usage_error(url: str) -> None:
    result = run("node", "list", "--url", url)
    assert result.exit_code == Exit.USAGE
    assert f'"{url}"' in result.stderr


def test_a_mistake_of_ours_is_one_line_that_says_how_to_get_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_out: object) -> None:
        raise KeyError("uuid")

    monkeypatch.setattr(inventory, "_list_fields", broken)
    result = run("search", "--fields")
    assert result.exit_code == Exit.FAILURE
    assert "KeyError: 'uuid'" in result.stderr
    assert "--debug" in result.stderr
    with pytest.raises(KeyError):
        run("--debug", "search", "--fields")
