"""``ferroscope secret`` and ``db rekey``, as operators run them."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from ferroscope.secrets.keys import parse
from ferroscope_client.errors import Exit
from tests.api.service import Service
from tests.fast.cli.running import run


def test_a_new_key_file_is_for_its_owner_only_and_never_shown(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    old = os.umask(0)
    try:
        result = run("secret", "generate-key", str(file))
    finally:
        os.umask(old)
    assert result.exit_code == 0, result.output
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    first = parse(file.read_text())
    assert first[0].id in result.output
    assert file.read_text().strip() not in result.output
    assert run("secret", "generate-key", str(file)).exit_code == Exit.FAILURE
    assert run("secret", "generate-key", "--add", str(file)).exit_code == 0
    assert parse(file.read_text())[:1] == first
    assert len(parse(file.read_text())) == 2


@pytest.mark.parametrize("content", [None, "no key\n"])
def test_a_key_is_added_to_a_key_file_only(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "keys"
    if content is not None:
        file.write_text(content)
    assert run("secret", "generate-key", "--add", str(file)).exit_code == Exit.FAILURE
    assert content is None or file.read_text() == content
    assert content is not None or not file.exists()


def test_a_missing_key_file_stops_the_command_and_is_named(tmp_path: Path, sqlite_url: str) -> None:
    Service(sqlite_url).close()
    for file, word in (("", "generate-key"), (str(tmp_path / "absent"), "absent")):
        result = run("db", "rekey", "--database", sqlite_url, OS_SECRETS__KEY_FILE=file)
        assert result.exit_code == Exit.FAILURE
        assert word in result.output
