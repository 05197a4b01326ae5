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


def test_check_fails_for_a_page_that_is_not_there(tmp_path: Path) -> None:
    assert _run("config", "--check", "--directory", str(tmp_path)).exit_code == 1
    assert not list(tmp_path.iterdir())


def test_the_configuration_page_tells_types_limits_and_choices() -> None:
    page = render("config")
    assert "| `timeout` | number, 0.1 to 86400 | `1800.0` |" in page
    assert "| `bare_metal_port` | port | `6385` |" in page
    assert "| `interrupted` | one of `rerun`, `error` | `rerun` |" in page
    assert "| `power_off` | true or false | `true` |" in page
