"""``python3 -m tools site``: every page, links that lead somewhere, a search, and nothing from other servers."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests import ROOT

_LOADED = re.compile(
    r"""<(?:script|img|iframe)[^>]*\ssrc="([^"]*)"|<link[^>]*\shref="([^"]*)"|url\(([^)]*)\)|@import"""
)


def test_the_site_has_every_page_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    command = [
        ROOT / ".site-venv/bin/sphinx-build",
        "-q",
        "-W",
        "--keep-going",
        "-c",
        ROOT / "tools/site",
        "docs",
        tmp_path,
    ]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    pages = {path.relative_to(ROOT / "docs").with_suffix("") for path in (ROOT / "docs").rglob("*.md")}
    made = {path.relative_to(tmp_path).with_suffix("") for path in tmp_path.rglob("*.html")}
    assert pages <= made
    assert (tmp_path / "searchindex.js").stat().st_size > 100_000
    for path in (*tmp_path.rglob("*.html"), *tmp_path.rglob("*.css")):
        for found in _LOADED.finditer(path.read_text()):
            source = next(filter(None, found.groups()), "")
            assert not re.match(r"[\"']?(https?:)?//", source), (path.name, found[0])
