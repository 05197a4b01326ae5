"""The page of the demo shows a real run of the demo, put there by a tool."""

from __future__ import annotations

import pytest

from tests.fast.docs.pages import page
from tools.transcript import BEGIN, END, insert


def test_a_transcript_replaces_the_one_before_it() -> None:
    empty = f"before\n{BEGIN}{END}after\n"
    once = insert(empty, "\nfirst run\n")
    assert once == f"before\n{BEGIN}\n```text\n$ make demo\nfirst run\n```\n\n{END}after\n"
    assert insert(once, "second run") == once.replace("first", "second")


def test_a_page_without_a_place_for_it_is_refused() -> None:
    with pytest.raises(ValueError, match="needs the lines"):
        insert("no marks", "run")


def test_the_page_has_a_transcript_of_a_run_that_went_well() -> None:
    shown = page("docs/tutorial/the-demo.md").text.partition(BEGIN)[2].partition(END)[0]
    assert "$ make demo" in shown
    assert "SIGKILL" in shown
    assert "All 50 finished." in shown
    assert "Traceback" not in shown
