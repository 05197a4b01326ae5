"""News fragments become release notes, and what is no fragment is refused."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from tools import changes

TODAY = datetime.date(2026, 1, 2)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    made = tmp_path / "changes"
    made.mkdir()
    (made / "README.md").write_text("What a fragment is.\n")
    return made


@pytest.fixture
def changelog(tmp_path: Path) -> Path:
    file = tmp_path / "CHANGELOG.md"
    file.write_text(f"# Changes\n\n{changes.MARK}\n## 1.0.0 (2025-01-01)\n")
    return file


def test_the_fragments_of_this_tree_are_valid() -> None:
    changes.fragments(changes.ROOT / "changes")
    assert changes.MARK in (changes.ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_a_release_moves_the_fragments_above_earlier_releases(directory: Path, changelog: Path) -> None:
    (directory / "slow-start.fixed.md").write_text("It starts at once.\n")
    (directory / "new-hook.added.md").write_text("A hook.\nIt looks.\n")
    changes.release("1.1.0", changelog, directory, TODAY)
    assert changelog.read_text() == (
        f"# Changes\n\n{changes.MARK}\n## 1.1.0 (2026-01-02)\n\n"
        "### Added\n\n* A hook.\n  It looks.\n\n### Fixed\n\n* It starts at once.\n\n## 1.0.0 (2025-01-01)\n"
    )
    assert [path.name for path in directory.iterdir()] == ["README.md"]


@pytest.mark.parametrize(
    ("name", "text"),
    [("a.nonsense.md", "Words."), ("a.md", "Words."), ("Capital.added.md", "Words."), ("a.added.md", " \n")],
)
def test_what_is_no_fragment_is_refused_and_nothing_is_changed(
    directory: Path, changelog: Path, name: str, text: str
) -> None:
    (directory / name).write_text(text)
    before = changelog.read_text()
    with pytest.raises(changes.FragmentError, match=name):
        changes.release("1.1.0", changelog, directory, TODAY)
    assert changelog.read_text() == before
    assert (directory / name).exists()


def test_a_release_needs_a_version_fragments_and_a_place(directory: Path, changelog: Path) -> None:
    with pytest.raises(changes.FragmentError, match="no fragments"):
        changes.release("1.1.0", changelog, directory, TODAY)
    (directory / "a.added.md").write_text("Words.\n")
    with pytest.raises(changes.FragmentError, match="version"):
        changes.release("next", changelog, directory, TODAY)
    with pytest.raises(changes.FragmentError, match="has a section"):
        changes.release("1.0.0", changelog, directory, TODAY)
    changelog.write_text("# Changes\n")
    with pytest.raises(changes.FragmentError, match="does not contain the line"):
        changes.release("1.1.0", changelog, directory, TODAY)
