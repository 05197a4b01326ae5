"""Of which commit a release can be."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tools.packaging import contents, release


def _git(where: Path, *words: str) -> str:
    identity = ("-c", "user.name=n", "-c", "user.email=n@example.org", "-c", "commit.gpgsign=false")
    return subprocess.run(["git", *identity, *words], cwd=where, capture_output=True, text=True, check=True).stdout


def test_files_are_made_before_the_tag_or_of_it_and_never_of_another_commit(tmp_path: Path) -> None:
    _git(tmp_path, "init", "--quiet")
    _git(tmp_path, "commit", "--quiet", "--allow-empty", "-m", "one")
    assert release.tag_of(where=tmp_path) == ""
    _git(tmp_path, "tag", "-a", f"v{contents.VERSION}", "-m", "release")
    assert release.tag_of(where=tmp_path) == f"v{contents.VERSION}"
    _git(tmp_path, "commit", "--quiet", "--allow-empty", "-m", "two")
    with pytest.raises(contents.PackagingError, match="another commit"):
        release.tag_of(where=tmp_path)
