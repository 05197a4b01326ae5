"""The tutorials show what their commands print. ``python -m tests.support.transcripts`` writes the transcripts."""

from __future__ import annotations

from pathlib import Path

from tests.fast.docs.pages import page
from tests.support import transcripts


def test_the_first_inspection_prints_what_its_page_shows(tmp_path: Path) -> None:
    shown = page(transcripts.FIRST_INSPECTION).text
    assert transcripts.mask(transcripts.play_first_inspection(tmp_path)) == transcripts.mask(shown)


def test_the_demo_prints_what_its_page_shows() -> None:
    (shown,) = (block.text for block in page(transcripts.DEMO).blocks if block.language == "text")
    assert transcripts.find_fixed_lines(transcripts.play_demo()) == transcripts.find_fixed_lines(shown)
