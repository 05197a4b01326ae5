"""Regular expressions with the meaning of Python's ``re``, and with limits.

An operator's pattern may be slow on data of a machine; with the standard library, it could block a worker for hours.
The PyPI module ``regex`` has a time limit, but a larger syntax than ``re``: fuzzy matching (``{i}``), POSIX classes,
named lists. So Python's own parser parses each pattern, which is then rewritten for that engine in constructs that mean
the same in both. Character classes and case rules are replaced where they differ. Two differences remain: letters that
are newer than Python's Unicode, and case-insensitive references to groups with letters that have several forms.

The length of pattern and subject, the size of the compiled pattern, and the time for matching are limited.
"""

from __future__ import annotations

import importlib
import re
import threading
import time
import warnings
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

import regex
import structlog

from ferroscope.rules.data import (
    MAX_EXPANSION,
    MAX_REGEX,
    MAX_SUBJECT,
    REGEX_SECONDS,
    InvalidRuleError,
    RuleBudget,
    RuleError,
)

_log = structlog.get_logger(__name__)

_parser: Any = importlib.import_module("re._parser")
# ``warnings.catch_warnings`` is not thread-safe.
_parsing: Final = threading.Lock()
_MAX_SHOWN_CHARACTERS: Final = 80

# The parts that express where a word begins or ends.
_BOUNDARY_STEPS: Final = 4
_TYPES: Final = re.ASCII | re.UNICODE | re.LOCALE

# The classes of text, as items of a set: without ASCII, and with it.
_WORD: Final = (r"\p{L}\p{N}_", "a-zA-Z0-9_")
_DIGIT: Final = (r"\p{Nd}", "0-9")
_SPACE: Final = (r"\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000", r"\t-\r\x20")
_CLASSES: Final = {"WORD": _WORD, "DIGIT": _DIGIT, "SPACE": _SPACE}
# The letters whose upper and lower case the engine treats differently.
_I: Final = "iI\u0130\u0131"


@lru_cache(maxsize=512)
def compile_pattern(pattern: str) -> Any:
    """Return the compiled pattern; ``InvalidRuleError``."""
    shown = repr(pattern[:_MAX_SHOWN_CHARACTERS])
    if len(pattern) > MAX_REGEX:
        raise InvalidRuleError([f"the regular expression is longer than {MAX_REGEX} characters"])
    try:
        tree, flags = _parse(pattern)
        if _size(tree) > MAX_EXPANSION:
            raise InvalidRuleError([f"{shown} repeats too much: it expands to more than {MAX_EXPANSION} steps"])
        return regex.compile(_PatternWriter().sequence(tree, flags), regex.VERSION0, cache_pattern=False)
    except (RecursionError, MemoryError):
        raise InvalidRuleError([f"{shown} is nested too deeply, or too large"]) from None
    except (re.error, regex.error, OverflowError, ValueError) as exc:
        raise InvalidRuleError([f"invalid regular expression {shown}: {exc}"]) from None


def matches(pattern: Any, value: Any, budget: RuleBudget, *, whole: bool) -> bool:
    """Whether the pattern matches the value's text, wholly or in part; ``RuleError`` if that takes too long."""
    text = value if isinstance(value, str) else str(value)
    if len(text) > MAX_SUBJECT:
        raise RuleError(f"a string of {len(text)} characters is too long for a regular expression")
    try:
        expression = compile_pattern(str(pattern))
    except InvalidRuleError as exc:
        raise RuleError(str(exc)) from None
    started = time.monotonic()
    try:
        match = expression.fullmatch if whole else expression.search
        return match(text, timeout=min(REGEX_SECONDS, max(budget.regex, 0.001))) is not None
    except TimeoutError:
        raise RuleError(
            f"the regular expression {str(pattern)[:_MAX_SHOWN_CHARACTERS]!r} took too long on this data; simplify it"
        ) from None
    finally:
        budget.regex -= time.monotonic() - started


def _parse(pattern: str) -> tuple[Any, int]:
    """Return the parts of the pattern, and the flags that apply to all of it."""
    with _parsing, warnings.catch_warnings(record=True) as doubts:
        warnings.simplefilter("always")
        tree = _parser.parse(pattern)
    for doubt in doubts:
        _log.warning("a regular expression may not mean what was intended", pattern=pattern, why=str(doubt.message))
    return tree, tree.state.flags


def _size(tree: Any) -> int:
    """Return the number of steps in the compiled pattern.

    The engine expands repetitions: ``a{1000}`` is a thousand steps, ``(a{1000}){1000}`` a million, and ``+`` doubles
    what it repeats. Compiling holds the interpreter lock, so neither a time limit nor another thread could stop it.
    """
    return sum(_size_of(op.name, value) for op, value in tree)


def _size_of(op: str, value: Any) -> int:
    match op:
        case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
            minimum, maximum, body = value
            return _size(body) * max(1, int(minimum) if minimum == maximum else int(minimum) + 1)
        case "SUBPATTERN":
            return 1 + _size(value[-1])
        case "ASSERT" | "ASSERT_NOT":
            return 1 + _size(value[1])
        case "ATOMIC_GROUP":
            return 1 + _size(value)
        case "BRANCH":
            return sum(1 + _size(branch) for branch in value[1])
        case "GROUPREF_EXISTS":
            return 1 + sum(_size(branch) for branch in value[1:] if branch is not None)
        case "AT":
            return _BOUNDARY_STEPS if value.name.endswith("BOUNDARY") else 1
        case _:
            return 1


class _PatternWriter:
    """Writes the parts of a pattern for the engine."""

    def sequence(self, tree: Any, flags: int) -> str:
        return "".join(self._part(op.name, value, flags) for op, value in tree)

    def _part(self, op: str, value: Any, flags: int) -> str:
        match op:
            case "LITERAL":
                return _literal(value, flags)
            case "NOT_LITERAL":
                return _any_but(_literal(value, flags))
            case "ANY":
                return "(?s:.)" if flags & re.DOTALL else r"[^\n]"
            case "IN":
                return _set(value, flags)
            case "AT":
                return _position(value.name, flags)
            case "BRANCH":
                return f"(?:{'|'.join(self.sequence(branch, flags) for branch in value[1])})"
            case "SUBPATTERN":
                return self._group(value, flags)
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                minimum, maximum, body = value
                count = f"{{{minimum},{'' if maximum == _parser.MAXREPEAT else maximum}}}"
                suffix = {"MAX_REPEAT": "", "MIN_REPEAT": "?", "POSSESSIVE_REPEAT": "+"}[op]
                return f"(?:{self.sequence(body, flags)}){count}{suffix}"
            case "ATOMIC_GROUP":
                return f"(?>{self.sequence(value, flags)})"
            case "ASSERT" | "ASSERT_NOT":
                direction, body = value
                return self._look(direction, body, op == "ASSERT", flags)
            case "GROUPREF":
                return f"(?{'i' if flags & re.IGNORECASE else ''}:(?P=g{value}))"
            case "GROUPREF_EXISTS":
                group, yes, no = value
                otherwise = "" if no is None else f"|{self.sequence(no, flags)}"
                return f"(?(g{group}){self.sequence(yes, flags)}{otherwise})"
            case "FAILURE":
                return "(?!)"
            case _:
                raise ValueError(f"{op} is not supported")

    def _group(self, value: Any, flags: int) -> str:
        group, added, removed, body = value
        if added & _TYPES:
            flags &= ~_TYPES
        written = self.sequence(body, (flags | added) & ~removed)
        return f"(?:{written})" if group is None else f"(?P<g{group}>{written})"

    def _look(self, direction: int, body: Any, positive: bool, flags: int) -> str:
        if direction < 0:
            shortest, longest = body.getwidth()
            if shortest != longest:
                raise ValueError("look-behind requires fixed-width pattern")
        sign = ("<" if direction < 0 else "") + ("=" if positive else "!")
        return f"(?{sign}{self.sequence(body, flags)})"


# Before Python 3.14, an empty text has no place that is not the boundary of a word.
_NEVER_EMPTY: Final = "" if re.search(r"\B", "") else r"(?!\A\Z)"


def _position(name: str, flags: int) -> str:
    """Return an assertion: of the beginning, the end, or the boundary of a word."""
    word = f"[{_WORD[bool(flags & re.ASCII)]}]"
    several = flags & re.MULTILINE
    match name:
        case "AT_BEGINNING":
            return r"(?:\A|(?<=\n))" if several else r"\A"
        case "AT_END":
            return r"(?=\n|\Z)" if several else r"(?=\n?\Z)"
        case "AT_BEGINNING_STRING":
            return r"\A"
        case "AT_END_STRING":
            return r"\Z"
        case "AT_BOUNDARY":
            return f"(?:(?<={word})(?!{word})|(?<!{word})(?={word}))"
        case "AT_NON_BOUNDARY":
            return f"(?:{_NEVER_EMPTY}(?:(?<={word})(?={word})|(?<!{word})(?!{word})))"
        case _:
            raise ValueError(f"{name} is not supported")


def _any_but(excluded: str) -> str:
    return f"(?:(?!{excluded})(?s:.))"


def _literal(code: int, flags: int) -> str:
    if not flags & re.IGNORECASE:
        return _escape(code)
    return _in_any_case([(code, code)], flags)


def _set(items: Iterable[Any], flags: int) -> str:
    """Return a set of characters. Classes are excluded, because they treat upper and lower case alike."""
    inverted, spans, others = False, [], []
    for op, value in items:
        match op.name:
            case "NEGATE":
                inverted = True
            case "LITERAL":
                spans.append((value, value))
            case "RANGE":
                spans.append(value)
            case "CATEGORY":
                kind = value.name.removeprefix("CATEGORY_")
                text = _CLASSES[kind.removeprefix("NOT_")][bool(flags & re.ASCII)]
                others.append(f"[^{text}]" if kind.startswith("NOT_") else f"[{text}]")
            case name:
                raise ValueError(f"{name} is not supported")
    if spans:
        others.append(_in_any_case(spans, flags) if flags & re.IGNORECASE else _span_set(spans))
    positive = others[0] if len(others) == 1 else f"(?:{'|'.join(others)})"
    return _any_but(positive) if inverted else positive


def _in_any_case(spans: list[tuple[int, int]], flags: int) -> str:
    """Return the set of these characters, and of all that are the same without regard to case."""
    if flags & re.ASCII:
        letters = [code for code in (*range(65, 91), *range(97, 123)) if _has(spans, code)]
        return _span_set([*spans, *((code ^ 32, code ^ 32) for code in letters)])
    if not any(_has(spans, ord(letter)) for letter in _I):
        return f"(?i:{_span_set(spans)})"
    equal_letters = [
        letter for letter in _I if any(_has(spans, ord(listed)) and letter in _SAME_I[listed] for listed in _I)
    ]
    exactly = _span_set([(ord(letter), ord(letter)) for letter in equal_letters])
    rest = f"(?![{_I}])(?i:{_span_set(spans)})"
    return exactly if len(spans) == 1 and spans[0][0] == spans[0][1] else f"(?:{exactly}|{rest})"


_SAME_I: Final = {letter: [same for same in _I if re.fullmatch(letter, same, re.IGNORECASE)] for letter in _I}


def _has(spans: Iterable[tuple[int, int]], code: int) -> bool:
    return any(first <= code <= last for first, last in spans)


def _span_set(spans: Iterable[tuple[int, int]]) -> str:
    return f"[{''.join(_escape(low) if low == high else f'{_escape(low)}-{_escape(high)}' for low, high in spans)}]"


def _escape(code: int) -> str:
    """Return a character so that it means itself anywhere."""
    if code < 128 and chr(code).isalnum():
        return chr(code)
    return f"\\U{code:08x}"
