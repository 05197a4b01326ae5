"""Parses the query language of ``search``: a recursive descent parser with limits.

Errors are ``QueryError``, with the position, the problem and what is expected.
"""

from __future__ import annotations

import difflib
import re
from datetime import UTC, datetime
from typing import Final, NoReturn

import msgspec

from ferroscope.hardware.expressions import (
    COMPARE,
    All,
    Any,
    Count,
    Glob,
    Known,
    Not,
    Number,
    Own,
    Query,
    Some,
    Text,
    Word,
)
from ferroscope.hardware.search_index import fold
from ferroscope.hardware.sources import spellings
from ferroscope_client.core.labels import is_key
from ferroscope_client.hardware.readings import Kind
from ferroscope_client.hardware.search_fields import KINDS, LABEL, OWN, SPELLED, IndexedField, label

# The values in queries: numbers with units, booleans, times, and the spellings of texts.

_UNITS: Final = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_NUMBER: Final = re.compile(
    r"(?P<digits>-?\d+(?:\.\d+)?)(?P<unit>[kmgtp]?)(?P<binary>i?)(?P<rest>b|bps|bit/s|hz|t/s|)\Z", re.IGNORECASE
)
_YES: Final = {"yes": 1.0, "true": 1.0, "up": 1.0, "1": 1.0, "no": 0.0, "false": 0.0, "down": 0.0, "0": 0.0}


class QueryError(ValueError):
    """The query is invalid; ``position`` is where, counted from 0."""

    def __init__(self, message: str, position: int) -> None:
        self.position = position
        super().__init__(f"{message} (at character {position + 1})")


def number(text: str, source: str, field: IndexedField, at: int) -> float:
    """Return the number in the field's unit; ``QueryError``."""
    if field.boolean:
        if text.lower() not in _YES:
            raise QueryError(f"invalid value {text[:20]} for {source}: expected yes or no", at)
        return _YES[text.lower()]
    if field.moment:
        return _moment(text, source, at)
    match = _NUMBER.match(text)
    if match is None or len(match["digits"]) > 20:
        raise QueryError(f"invalid value {text[:20]} for {source}: expected a number such as 512, 25G or 1.5TiB", at)
    base = 1024.0 if match["binary"] else 1000.0
    if match["binary"] and not match["unit"]:
        raise QueryError(f"unknown unit in {text[:20]}", at)
    return float(match["digits"]) * base ** _UNITS[match["unit"].lower()] * field.factor


def texts(field: IndexedField, value: str, source: str, at: int) -> tuple[str, ...]:
    """Return the stored texts that mean this value; ``QueryError``."""
    if field.among:
        return (_listed_value(field, value, source, at),)
    if field.own:
        return (value.lower(),)
    folded = fold(value, vendor=field.vendor)
    return spellings(folded) if field.vendor else (folded,)


def _listed_value(field: IndexedField, value: str, source: str, at: int) -> str:
    """Return the field's value for this spelling: inspect-failed is 'inspect failed', on is 'power on'."""
    words = {_normalize_spelling(value): value for value in field.among}
    words |= {value.removeprefix("power "): value for value in field.among if value.startswith("power ")}
    wanted = _normalize_spelling(value)
    if wanted in words:
        return words[wanted]
    near = difflib.get_close_matches(wanted[:40], words, n=3, cutoff=0.6)
    suggestions = [f"'{words[word]}'" if " " in words[word] else words[word] for word in near]
    examples = field.among if len(field.among) <= _MAX_LISTED_VALUES else field.among[:_MAX_EXAMPLE_VALUES]
    all_ = f"one {'of' if examples == field.among else 'such as'} {', '.join(examples)}"
    hint = f"did you mean {' or '.join(suggestions)}?" if suggestions else f"expected {all_}"
    raise QueryError(f"unknown value {value[:40]!r} for {source}; {hint}", at)


def _normalize_spelling(text: str) -> str:
    return " ".join(re.split(r"[-_\s]+", text.strip().lower()))


def _moment(text: str, source: str, at: int) -> float:
    try:
        then = datetime.fromisoformat(text)
        return (then if then.tzinfo else then.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise QueryError(f"invalid value {text[:20]} for {source}: expected a time such as 2026-01-31", at) from None


# The most values that a message names. Of longer lists it names the first ones, which are the usual ones.
_MAX_LISTED_VALUES: Final = 12
_MAX_EXAMPLE_VALUES: Final = 7
MAX_LENGTH: Final = 2000
MAX_CONDITIONS: Final = 50
MAX_DEPTH: Final = 20
MAX_STARS: Final = 5
MAX_WORDS: Final = 5

_TOKEN: Final = re.compile(
    r"""\s*(?:
        (?P<op>==|!=|<=|>=|=|<|>|~|\(|\)|\[|\]|,)
      | (?P<quoted>"[^"]*"|'[^']*')
      | (?P<word>[^\s()\[\],=<>!~"']+)
    )""",
    re.VERBOSE,
)
_RESERVED: Final = frozenset({"and", "or", "not", "has", "count", "in"})


class _Token(msgspec.Struct, frozen=True):
    kind: str
    text: str
    at: int


def parse(text: str) -> Query:
    """Return the parsed query; ``QueryError``."""
    if len(text) > MAX_LENGTH:
        raise QueryError(f"the query is longer than {MAX_LENGTH} characters", MAX_LENGTH)
    parser = _Parser(_tokens(text))
    query = parser.any_of(None, 0)
    parser.expect_end()
    return query


def _tokens(text: str) -> list[_Token]:
    tokens, at = [], 0
    text = text.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            rest = text[at:].lstrip()
            raise QueryError(f"unterminated quotation mark: {rest[:20]}", at)
        kind = match.lastgroup or ""
        tokens.append(_Token(kind, match[kind], match.start(kind)))
        at = match.end()
    tokens.append(_Token("end", "", len(text)))
    return tokens


class _Parser:
    """``kind`` is the kind of part inside of ``[ ]``, or None for conditions on the node."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._next = 0
        self._conditions = 0
        self._words = 0

    def any_of(self, kind: Kind | None, depth: int) -> Query:
        """Parse conditions joined by ``or``."""
        if depth > MAX_DEPTH:
            raise QueryError(f"brackets are nested more than {MAX_DEPTH} levels deep", self._token.at)
        terms = [self.all_of(kind, depth)]
        while self._take_word("or"):
            terms.append(self.all_of(kind, depth))
        return terms[0] if len(terms) == 1 else Any(tuple(terms))

    def all_of(self, kind: Kind | None, depth: int) -> Query:
        """Parse conditions joined by ``and``, which binds more tightly; between bare words it is optional."""
        terms = [self.term(kind, depth)]
        while self._take_word("and") or (isinstance(terms[-1], Word) and self._is_bare(kind)):
            terms.append(self.term(kind, depth))
        return terms[0] if len(terms) == 1 else All(tuple(terms))

    def term(self, kind: Kind | None, depth: int) -> Query:
        """Parse one condition, possibly negated or in parentheses."""
        negated = False
        while self._take_word("not"):
            negated = not negated
        if self._take("("):
            query = self.any_of(kind, depth + 1)
            self._close(")")
        else:
            query = self.condition(kind, depth)
        return Not(query) if negated else query

    def condition(self, kind: Kind | None, depth: int) -> Query:
        """Parse a comparison, ``has FIELD``, ``KIND[...]`` or ``count(...)``."""
        self._conditions += 1
        token = self._token
        if self._conditions > MAX_CONDITIONS:
            raise QueryError(f"the query has more than {MAX_CONDITIONS} conditions", token.at)
        if self._take_word("has"):
            return self._has(kind, depth)
        if kind is None and self._word() == "count" and self._tokens[self._next + 1].text == "(":
            return self._count(depth)
        if kind is None and self._word() in KINDS and self._tokens[self._next + 1].text == "[":
            return self._parts(depth)
        if self._is_bare(kind):
            return self._bare()
        part, field, source = self._field(kind)
        test = self._comparison(field, source)
        return test if kind is not None else _about(part, test)

    def expect_end(self) -> None:
        """Raise if the query continues."""
        if self._token.kind != "end":
            self._fail(f"expected 'and', 'or' or the end of the query, found {self._token.text}")

    def _has(self, kind: Kind | None, depth: int) -> Query:
        if kind is None and self._word() in KINDS:
            return self._parts(depth)
        part, field, _ = self._field(kind)
        return Known(field.column) if kind is not None else _about(part, Known(field.column))

    def _is_bare(self, kind: Kind | None) -> bool:
        """Whether the next token is a bare word: not compared, not a field and not a kind of part."""
        token = self._token
        if kind is not None or token.kind not in ("word", "quoted"):
            return False
        if token.kind == "word" and (self._word() in _RESERVED or _is_known(self._word())):
            return False
        following = self._tokens[self._next + 1]
        joined = following.kind == "op" and following.text not in ("(", ")")
        return not joined and not (following.kind == "word" and following.text.lower() == "in")

    def _bare(self) -> Word:
        self._words += 1
        if self._words > MAX_WORDS:
            self._fail(f"the query has more than {MAX_WORDS} bare words")
        at = self._token.at
        text = fold(self._value())
        if not text:
            raise QueryError("empty quotation marks", at)
        return Word(text)

    def _parts(self, depth: int) -> Some:
        word, at = self._word(), self._token.at
        kind = next((kind_name for kind_name in KINDS if kind_name == word), None)
        if kind is None:
            raise QueryError(f"expected a kind of part ({', '.join(KINDS)}), found {word or 'the end'}", at)
        self._next += 1
        if not self._take("["):
            return Some(kind)
        query = self.any_of(kind, depth + 1)
        self._close("]")
        return Some(kind, query)

    def _count(self, depth: int) -> Count:
        self._next += 2
        some = self._parts(depth)
        self._close(")")
        op = self._operator()
        if op not in COMPARE:
            self._fail("expected ==, !=, <, <=, > or >= after count")
        return Count(some, op, self._number("count", IndexedField("n1", "")))  # type: ignore[arg-type]

    def _field(self, kind: Kind | None) -> tuple[Kind | None, IndexedField, str]:
        """Return the next field, its kind of part (None: the node itself), and its source text."""
        token = self._token
        word = self._word()
        if token.kind != "word" or word in _RESERVED:
            self._fail(f"expected a field, found {token.text or 'the end'}")
        self._next += 1
        if kind is None and (own := SPELLED.get(word, word)) in OWN:
            return None, OWN[own], word
        if kind is None and word.startswith(f"{LABEL}.") and is_key(word.removeprefix(f"{LABEL}.")):
            return None, label(word.removeprefix(f"{LABEL}.")), word
        named, _, name = word.rpartition(".") if kind is None else ("", "", word)
        part = kind or next((kind_name for kind_name in KINDS if kind_name == (named or "node")), None)
        if part is None or name not in KINDS[part]:
            raise QueryError(f"unknown field {token.text[:40]}{_hint(word, kind)}", token.at)
        return part, KINDS[part][name], word

    def _comparison(self, field: IndexedField, source: str) -> Query:
        if self._take_word("in"):
            return self._one_of(field, source)
        op = self._operator()
        if not field.is_text:
            if op == "~":
                self._fail(f"{source} is a number; ~ can be used only with text")
            return Number(field.column, op, self._number(source, field))  # type: ignore[arg-type]
        at = self._token.at
        if op in ("==", "!="):
            return self._equals(field, texts(field, self._value(), source, at), negated=op == "!=")
        if op != "~":
            self._fail(f"{source} is text; expected ==, !=, ~ or in")
        pattern = fold(self._value())
        if field.coded:
            pattern = f"*({pattern})*"
        elif field.among:
            pattern = _normalize_spelling(pattern)
        if pattern.count("*") > MAX_STARS:
            self._fail(f"the pattern has more than {MAX_STARS} asterisks")
        return Glob(field.column, pattern)

    @staticmethod
    def _equals(field: IndexedField, values: tuple[str, ...], *, negated: bool = False) -> Query:
        if not field.coded:
            return Text(field.column, values, negated=negated)
        codes = tuple(Glob(field.column, f"*({value})*") for value in values)
        any_code: Query = codes[0] if len(codes) == 1 else Any(codes)
        return All((Known(field.column), Not(any_code))) if negated else any_code

    def _one_of(self, field: IndexedField, source: str) -> Query:
        if not self._take("("):
            self._fail("expected ( and a list of values after in")
        values: list[str | float] = []
        count = 0
        while True:
            at = self._token.at
            values += texts(field, self._value(), source, at) if field.is_text else (self._number(source, field),)
            count += 1
            if not self._take(","):
                break
        self._close(")")
        self._conditions += count - 1
        if self._conditions > MAX_CONDITIONS:
            self._fail(f"the query has more than {MAX_CONDITIONS} conditions; each value counts as one")
        if field.is_text:
            return self._equals(field, tuple(str(value) for value in values))
        return Any(tuple(Number(field.column, "==", float(value)) for value in values))

    def _operator(self) -> str:
        token = self._token
        if token.kind != "op" or token.text not in (*COMPARE, "=", "~"):
            self._fail(f"expected a comparison (==, !=, <, <=, >, >=, ~, in), found {token.text or 'the end'}")
        self._next += 1
        return "==" if token.text == "=" else token.text

    def _value(self) -> str:
        token = self._token
        if token.kind not in ("word", "quoted"):
            self._fail(f"expected a value, found {token.text or 'the end'}")
        self._next += 1
        return token.text[1:-1] if token.kind == "quoted" else token.text

    def _number(self, source: str, field: IndexedField) -> float:
        at = self._token.at
        return number(self._value().strip(), source, field, at)

    @property
    def _token(self) -> _Token:
        return self._tokens[self._next]

    def _word(self) -> str:
        token = self._token
        return token.text.lower() if token.kind == "word" else ""

    def _take_word(self, word: str) -> bool:
        if self._word() != word:
            return False
        self._next += 1
        return True

    def _take(self, op: str) -> bool:
        if self._token.kind != "op" or self._token.text != op:
            return False
        self._next += 1
        return True

    def _close(self, bracket: str) -> None:
        if not self._take(bracket):
            self._fail(f"expected {bracket}, found {self._token.text or 'the end'}")

    def _fail(self, message: str) -> NoReturn:
        raise QueryError(message, self._token.at)


def _about(part: Kind | None, test: Query) -> Query:
    return Own(test) if part is None else Some(part, test)


def _fields() -> list[str]:
    return [*OWN, *(name if part == "node" else f"{part}.{name}" for part, names in KINDS.items() for name in names)]


def _is_known(word: str) -> bool:
    """Whether the word is a field, a kind of part, or looks like a field of one."""
    kind, dot, _ = word.partition(".")
    return (
        word in KINDS
        or word in OWN
        or word in SPELLED
        or word in KINDS["node"]
        or bool(dot and (kind in KINDS or kind == LABEL))
    )


def _hint(word: str, kind: Kind | None) -> str:
    if kind is not None:
        return f" in {kind}; available: {', '.join(KINDS[kind])}"
    near = difflib.get_close_matches(word[:40], _fields(), n=3, cutoff=0.5)
    if near:
        return f"; did you mean {', '.join(near)}?"
    return f"; known are {', '.join(OWN)}, {LABEL}.KEY, and fields of {', '.join(KINDS)} such as nic.speed"
