"""``ferroscope db``: looking at a database changes nothing."""

from __future__ import annotations

from pathlib import Path

from ferroscope_client.errors import Exit
from tests.fast.cli.running import run


def test_looking_for_the_schema_of_a_file_that_is_not_there_does_not_make_it(tmp_path: Path) -> None:
    file = tmp_path / "new.db"
    result = run("db", "current", "--database", f"sqlite:///{file}")
    assert result.exit_code == Exit.FAILURE
    assert str(file) in result.stderr
    assert "ferroscope db upgrade" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_url_may_be_in_a_file_because_others_can_read_arguments(tmp_path: Path) -> None:
    file = tmp_path / "url"
    file.write_text("\ufeffpostgresql://user:Canary@127.0.0.1:1/machines\r\n")
    for words in (("db", "current", "--database", f"@{file}"), ("db", "copy", f"@{file}", f"@{file}")):
        result = run(*words)
        assert result.exit_code != Exit.OK
        assert "@" not in result.stderr.partition("127.0.0.1")[0]
        assert "Canary" not in result.output
        assert "Traceback" not in result.output
    result = run("db", "current", "--database", f"@{tmp_path}/missing")
    assert result.exit_code == Exit.USAGE
    assert f"cannot read '{tmp_path}/missing'" in result.stderr
