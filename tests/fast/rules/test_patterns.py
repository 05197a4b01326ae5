"""Regular expressions of rules mean what they mean to Python's ``re``, whose engine is the oracle here."""

from __future__ import annotations

import re
import string
import warnings

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ferroscope.rules.data import InvalidRuleError, RuleBudget
from ferroscope.rules.patterns import compile_pattern, matches
from tests.support.rows import each

# Letters with several forms: dotless and dotted i, long s, the Kelvin sign, the micro sign, sharp s and its capital.
_ODD = "iI\u0131\u0130sS\u017fkK\u212a\xb5\u03bc\xdf\u1e9e\xe9\xc9"
_SUBJECTS = st.text(f"abAB1_ -{{}}[]:^$|.\n\t\x1c\u2003\u0661{_ODD}", max_size=10)

# What the engine would read in another way, and what people write.
_TRAPS = [
    "{i}", "{e<=2}", "{d}", "{s<2}", "{inventory\\[x\\]}", "{i<=1:[ab]}", "[[:alpha:]]", "[[a]", "[a&&b]", "[a--b]",
    "[a||b]", "[a~~b]", "\\Z", "\\A", "\\b", "\\B", "^", "$", ".", "(?:)", "{", "}", "a{,2}", "a{", "[]a]", "[^]a]",
]  # fmt: skip
_ATOMS = st.one_of(
    st.sampled_from([*"abAB1_ -:", *_ODD]),
    st.sampled_from([re.escape(sign) for sign in string.punctuation]),
    st.sampled_from(["\\d", "\\D", "\\w", "\\W", "\\s", "\\S", "\\n", "\\x41", "\\u0131"]),
    st.sampled_from(["[ab]", "[^ab]", "[a-z]", "[^A-Z]", "[\\w-]", "[^\\W\\d]", "[h-j\\s]", "[^i]", "[\\D1]"]),
    st.sampled_from(_TRAPS),
)
_COUNTS = st.sampled_from(["", "*", "+", "?", "{2}", "{1,2}", "{0,}", "{,3}", "*?", "+?", "??", "{1,2}?", "?+", "*+"])
_GROUPS = st.sampled_from([
    "({})", "(?:{})", "(?P<n{}>{})", "(?i:{})", "(?a:{})", "(?s:{})", "(?m:{})", "(?ai:{})", "(?-i:{})",
    "(?={})", "(?!{})", "(?<={})", "(?<!{})", "(?>{})", "(?x: {} # )\n)",
])  # fmt: skip


def _larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.lists(inner, min_size=1, max_size=4).map("".join),
        st.lists(inner, min_size=2, max_size=3).map("|".join),
        st.tuples(inner, _COUNTS).map(lambda pair: f"(?:{pair[0]}){pair[1]}"),
        st.tuples(inner, _COUNTS).map("".join),
        st.tuples(_GROUPS, inner, st.uuids()).map(
            lambda made: (
                made[0].replace("{}", made[2].hex, 1).replace("{}", made[1])
                if "<n" in made[0]
                else made[0].replace("{}", made[1])
            )
        ),
    )


_PATTERNS = st.tuples(
    st.sampled_from(["", "", "(?i)", "(?a)", "(?s)", "(?m)", "(?x)", "(?ai)", "(?im)"]),
    st.recursive(_ATOMS, _larger, max_leaves=8),
).map("".join)


def python(pattern: str) -> re.Pattern[str] | None:
    """Return the pattern as Python compiles it; None if it refuses it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return re.compile(pattern)
        except re.error:
            return None


def agree(pattern: str, subject: str) -> None:
    theirs = python(pattern)
    if theirs is None:
        with pytest.raises(InvalidRuleError):
            compile_pattern(pattern)
        return
    ours = compile_pattern(pattern)
    # Python 3.11 may match a character where a possessive count is of nothing, as with "(?:(?!\D))?+" and "b".
    if ("?+" in pattern or "*+" in pattern) and "(?" in pattern.replace("(?:", ""):
        return
    # Python 3.11 looks for where a match may begin with the flags of the whole pattern, although "(?a:" changes them.
    for name in ("fullmatch",) if "(?a:" in pattern or "(?ai:" in pattern else ("search", "fullmatch"):
        found, wanted = getattr(ours, name)(subject), getattr(theirs, name)(subject)
        assert (found is not None) == (wanted is not None), (name, pattern, subject)


@settings(max_examples=600, deadline=None)
@given(_PATTERNS, st.lists(_SUBJECTS, min_size=4, max_size=4))
@example("(Dell){e<=2}", ["Bell", "Dell{e<=2}", "", ""])
@example("[[:alpha:]]+", ["ABC", "a]", ":]]", ""])
@example("{inventory\\[system_vendor\\]}", ["{inventory[system_vendor]}", "x", "", ""])
@example("(?i)[a-z]+", ["\u0131\u0130", "\u017f", "K", "\xe9"])
def test_a_pattern_means_what_it_means_to_python(pattern: str, subjects: list[str]) -> None:
    for subject in subjects:
        agree(pattern, subject)


REFERENCES = [
    "(a|b)\\1", "(?P<x>a)?(?P=x)b", "(a)?(?(1)b|A)", "(a)?(?(1)b)", "(a)(?:b|\\1)*A", "(?i)(a)\\1", "((a)|b)+\\1",
    "(?<=(a))b\\1", "(?=(ab))\\1A", "(?:(a)|b)*?1\\1?", "(?>(a+))\\1", "([ab])(?!\\1).",
]  # fmt: skip


@settings(max_examples=60, deadline=None)
@pytest.mark.parametrize("pattern", REFERENCES)
@given(subject=st.text("abA1", max_size=8))
def test_references_to_groups_mean_the_same(pattern: str, subject: str) -> None:
    agree(pattern, subject)


@each(
    "pattern",
    ["(", "a**", "[a", "(?V1)a", "\\p{L}", "(?<=a+)b", "(?P<a>x)(?P<a>y)", "\\L<words>", "(?e)a", "(?|(a)|(b))"],
)
def test_what_python_refuses_is_refused(pattern: str) -> None:
    assert python(pattern) is None
    with pytest.raises(InvalidRuleError, match="invalid regular expression"):
        compile_pattern(pattern)


def test_every_character_is_of_the_same_class_as_to_python() -> None:
    characters = [chr(code) for code in range(0x20000) if not 0xD800 <= code < 0xE000]
    for name in ("\\w", "\\d", "\\s"):
        ours, theirs = compile_pattern(name), re.compile(name)
        # The engine may know letters that Python does not know yet; it knows all that Python knows.
        assert [one for one in characters if theirs.match(one) and not ours.match(one)] == []
        assert len([one for one in characters if ours.match(one)]) - len(theirs.findall("".join(characters))) < 10_000


def test_letters_of_any_case_are_the_same_as_to_python() -> None:
    characters = "".join(chr(code) for code in range(0x590)) + "\u1e9e\u212a\u212b\u2126\u017f"
    for one in characters:
        if one.isalpha():
            pattern = f"(?i){re.escape(one)}"
            assert set(compile_pattern(pattern).findall(characters)) == set(re.findall(pattern, characters)), one


def test_a_class_in_a_class_is_taken_as_python_takes_it() -> None:
    assert not matches("[[:alpha:]]+", "ABC", RuleBudget(), whole=True)
    assert matches("[[:alpha:]]+", "a]]", RuleBudget(), whole=True)
