"""``ferroscope db``: looking at a database changes nothing."""

from __future__ import annotations

from pathlib import Path

from ferroscope.cli.exits import Exit
from tests.fast.cli.running import run


def test_looking_for_the_schema_of_a_file_that_is_not_there_does_not_make_it(tmp_path: Path) -> None:
    file = tmp_path / "new.db"
    result = run("db", "current", "--database", f"sqlite:///{file}")
    assert result.exit_code == Exit.FAILURE
    assert str(file) in result.stderr
    assert "ferroscope db upgrade" in result.stderr
    assert list(tmp_path.iterdir()) == []
