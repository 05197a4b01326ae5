"""Regular expressions that would fill the memory when they are compiled are refused before."""

from __future__ import annotations

import pytest

from ferroscope.rules import patterns
from ferroscope.rules.data import InvalidRuleError
from ferroscope.rules.patterns import compile_pattern
from tests.support.rows import each

BOMBS = [
    "a{99999999}",
    "a{99999999,}",
    "(((a{1000}){1000}){1000})",
    "(?:(?:a|b){1000}){100}",
    "|".join(f"{letter}{{5000}}" for letter in "abcdefghij"),
    "(?:a|b" * 100 + ")+" * 100,
    "(?x)a{9999999} # all of them",
    "(?x)(?:a{1000}#)\n){99999}",
    r"(?:\b){2000}",
    "(?<=a{99999999})b",
]
HARMLESS = [
    "(?i)dell",
    "^([0-9a-f]{2}:){5}[0-9a-f]{2}$",
    "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
    r"(?:\w+\s+)+(?:\d{1,3}\.){3}\d{1,3}",
    "a{0,99999999}",
    r"[]({99999}]\(\{99999}(?#{99999})",
    "x" * 1024,
    r"(?x) (\d+) \s+ # a number",
    "(?x)a{9 9 9 9 9 9 9 9}",
]


@each("pattern", BOMBS)
def test_what_would_become_too_large_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidRuleError, match="repeats too much"):
        compile_pattern(pattern)


@each("pattern", HARMLESS)
def test_what_people_write_is_taken(pattern: str) -> None:
    assert compile_pattern(pattern) is not None


@pytest.mark.parametrize(
    ("pattern", "steps"),
    [("abc", 3), ("a{3}b", 4), ("(a{3}){4}", 16), ("a+", 2), ("a{2,}", 3), ("a{2,5}?b", 4), ("a|b{5}", 8)],
)
def test_what_is_written_out_is_counted(pattern: str, steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "MAX_EXPANSION", steps)
    assert compile_pattern.__wrapped__(pattern) is not None
    monkeypatch.setattr(patterns, "MAX_EXPANSION", steps - 1)
    with pytest.raises(InvalidRuleError, match=f"more than {steps - 1} steps"):
        compile_pattern.__wrapped__(pattern)


def test_an_allocation_that_fails_while_compiling_refuses_the_pattern(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_args: object, **_kwargs: object) -> None:
        raise MemoryError

    monkeypatch.setattr("regex.compile", full)
    with pytest.raises(InvalidRuleError, match="too large"):
        compile_pattern("never compiled before")
