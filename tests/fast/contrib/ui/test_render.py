"""Texts as the page shows them."""

from __future__ import annotations

from ferroscope.contrib.ui.render import capitalized


def test_a_text_gets_a_capital_letter_and_the_name_of_a_process_none() -> None:
    assert [capitalized(text) for text in ("no worker", "all@host:7 is full", "")] == [
        "No worker",
        "all@host:7 is full",
        "",
    ]
