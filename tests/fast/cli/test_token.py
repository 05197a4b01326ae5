"""``ferroscope token``, on a database of its own: before anybody can log in, and what it shows of a token when."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from ferroscope.api.auth.tokens import TokenAuth
from ferroscope.config.load import load
from ferroscope.core import credentials
from ferroscope.runtime.backend import open_for_command
from ferroscope.runtime.system import SystemClock
from ferroscope_client.errors import Exit
from tests.fast.cli.running import run
from tests.support import databases

DAY = 86_400.0


class Host:
    """The host of a service: its configuration file, and a database with its schema."""

    def __init__(self, directory: Path) -> None:
        self.file = directory / "ferroscope.conf"
        self.file.write_text(f"[database]\nconnection = {databases.sqlite(directory)}\n")

    def __call__(self, *words: str, check: int | None = None) -> Result:
        result = run(*words, "-c", str(self.file))
        if check is not None:
            assert result.exit_code == check, result.output
        return result

    def create(self, *words: str) -> str:
        return self("token", "create", *words, check=0).stdout.strip()

    def tokens(self, *words: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self("token", "list", "-o", "json", *words, check=0).stdout)["tokens"]
        return found

    def who(self, text: str) -> str | None:
        """Return the name that the api gives to the holder of this token."""
        with open_for_command(load([str(self.file)])) as backend:
            found = TokenAuth(backend.store, SystemClock()).identify({"authorization": f"Bearer {text}"})
        return None if found is None else found.user


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_standard_output_is_the_token_alone_and_the_api_accepts_it(host: Host) -> None:
    text = host.create("ci", "--role", "member")
    assert credentials.parse_token(text) is not None
    assert host.who(text) == "ci"


def test_a_token_is_shown_once_and_stored_nowhere(host: Host, tmp_path: Path) -> None:
    text = host.create("ci", "--role", "member")
    found = credentials.parse_token(text)
    assert found is not None
    _, secret = found
    for words in (("list", "--all"), ("list", "--all", "-o", "json"), ("list", "-o", "csv"), ("revoke", "ci")):
        assert secret not in host("token", *words, check=0).output
    for file in tmp_path.iterdir():
        assert secret.encode() not in file.read_bytes(), file


def test_the_list_has_what_the_token_was_made_with(host: Host) -> None:
    host.create("ci", "--role", "member", "--role", "service", "--project", "p1", "--expires", "30d")
    (one,) = host.tokens()
    assert (one["name"], one["roles"], one["project"], one["state"]) == ("ci", ["member", "service"], "p1", "active")
    assert "@" in one["created_by"]
    created, expires = (datetime.fromisoformat(one[key]) for key in ("created_at", "expires_at"))
    assert abs((expires - created).total_seconds() - 30 * DAY) <= 1.0
    assert one["last_used_at"] is None
    row = host("token", "list", check=0).stdout.splitlines()[1]
    assert row.split()[:3] == [one["id"], "ci", "member,"]


def test_the_last_use_is_listed(host: Host) -> None:
    host.who(host.create("ci", "--role", "member"))
    (one,) = host.tokens()
    assert one["last_used_at"] is not None


@pytest.mark.parametrize(
    ("given", "days"),
    [("12h", 0.5), ("8w", 56.0), ("1y", 365.0), (None, 365.0)],
    ids=["hours", "weeks", "year", "default"],
)
def test_a_token_lives_as_long_as_it_is_told(host: Host, given: str | None, days: float) -> None:
    host.create("ci", "--role", "reader", *([] if given is None else ["--expires", given]))
    (one,) = host.tokens()
    lifetime = datetime.fromisoformat(one["expires_at"]) - datetime.fromisoformat(one["created_at"])
    assert abs(lifetime.total_seconds() - days * DAY) <= 1.0


def test_a_token_may_live_for_ever_and_until_the_end_of_a_day(host: Host) -> None:
    host.create("ever", "--role", "reader", "--expires", "never")
    day = datetime.now(UTC).date() + timedelta(days=3)
    host.create("day", "--role", "reader", "--expires", day.isoformat())
    expiries = {one["name"]: one["expires_at"] for one in host.tokens()}
    assert expiries == {"ever": None, "day": f"{day + timedelta(days=1)}T00:00:00+00:00"}


@pytest.mark.parametrize("given", ["", "30", "0d", "-1d", "30x", "2026-13-01", "2020-01-01", "999999d", "1e3d"])
def test_an_expiry_that_is_none_is_a_usage_error(host: Host, given: str) -> None:
    assert host("token", "create", "ci", "--role", "reader", "--expires", given).exit_code == Exit.USAGE
    assert host.tokens("--all") == []


@pytest.mark.parametrize("name", ["", "a b", "a:b", "x" * 65, "-x", ".", "naïve", "a\nb", "0123456789ab"])
def test_a_name_that_is_none_is_a_usage_error(host: Host, name: str) -> None:
    assert host("token", "create", "--role", "reader", "--", name).exit_code == Exit.USAGE


def test_a_role_is_needed_and_must_exist(host: Host) -> None:
    assert host("token", "create", "ci").exit_code == Exit.USAGE
    assert host("token", "create", "ci", "--role", "root").exit_code == Exit.USAGE


@pytest.mark.parametrize("by", ["id", "name"])
def test_a_token_is_revoked_by_id_or_by_name_and_its_name_is_free(host: Host, by: str) -> None:
    text = host.create("ci", "--role", "member")
    (one,) = host.tokens()
    host("token", "revoke", one[by], check=0)
    with pytest.raises(Exception, match="revoked"):
        host.who(text)
    assert host.tokens() == []
    assert [token["state"] for token in host.tokens("--all")] == ["revoked"]
    host("token", "revoke", one[by], check=Exit.NOT_FOUND)
    assert host.who(host.create("ci", "--role", "member")) == "ci"


def test_two_active_tokens_never_have_one_name(host: Host) -> None:
    host.create("ci", "--role", "member")
    result = host("token", "create", "ci", "--role", "admin", check=Exit.CONFLICT)
    assert result.stdout == ""
    assert "ferroscope token revoke ci" in result.stderr


def test_a_database_without_schema_is_reported_with_the_command_that_helps(tmp_path: Path) -> None:
    result = run("token", "create", "ci", "--role", "admin", "--database", f"sqlite:///{tmp_path}/none.db")
    assert result.exit_code == Exit.FAILURE
    assert result.stdout == ""
    assert "ferroscope db upgrade" in result.stderr


def test_a_database_that_cannot_be_reached_has_its_own_code() -> None:
    result = run("token", "list", "--database", "postgresql://nobody:secret-word@127.0.0.1:1/none")
    assert result.exit_code == Exit.UNREACHABLE
    assert "secret-word" not in result.output
