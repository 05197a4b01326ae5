"""What a boot host's setup replaces is kept, however often it is run."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from ferroscope.contrib.boot.setup import apply, plan
from ferroscope.contrib.boot.setup.plan import InstallTarget


def test_what_others_wrote_is_kept_however_often_setup_replaces_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    backups, path = tmp_path / "backups", tmp_path / "site.conf"
    monkeypatch.setattr(plan, "BACKUPS", backups)
    path.write_text("theirs")
    path.chmod(0o640)
    for text in ("Ferroscope 1", "Ferroscope 2", "Ferroscope 3", "Ferroscope 2", "Ferroscope 3"):
        targets = [InstallTarget(path, text.encode())]
        apply.write(targets, apply.compare(targets, replace=True))
    kept = sorted(one.read_text() for one in backups.rglob("site.conf*"))
    assert kept == ["Ferroscope 1", "Ferroscope 2", "Ferroscope 3", "theirs"]
    assert stat.S_IMODE((backups / path.relative_to("/")).stat().st_mode) == 0o640
