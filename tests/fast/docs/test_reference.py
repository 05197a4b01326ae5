"""The reference pages in the repository are what the code would write today."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner, Result

from tests import ROOT
from tests.support import misses
from tools.docs.__main__ import PAGES, docs, render

REFERENCE = ROOT / "docs" / "reference"


def _run(*arguments: str) -> Result:
    return CliRunner().invoke(docs, arguments)


def test_the_committed_pages_are_up_to_date() -> None:
    misses.none(
        f"{file}: run: python -m tools.docs {page}"
        for page, (file, *_) in PAGES.items()
        if (REFERENCE / file).read_text(encoding="utf-8") != render(page)
    )


def test_check_fails_for_a_page_that_differs_and_says_how_to_write_it(tmp_path: Path) -> None:
    assert _run("states", "config", "--directory", str(tmp_path)).exit_code == 0
    assert _run("states", "config", "--check", "--directory", str(tmp_path)).exit_code == 0
    (tmp_path / "states.md").write_text("old")
    result = _run("states", "config", "--check", "--directory", str(tmp_path))
    assert result.exit_code == 1
    assert f"not up to date: {tmp_path}/states.md\n  run: python -m tools.docs states" in result.stderr
    assert (tmp_path / "states.md").read_text() == "old"
    (tmp_path / "states.md").unlink()
    assert _run("states", "--check", "--directory", str(tmp_path)).exit_code == 1
    assert not (tmp_path / "states.md").exists()
