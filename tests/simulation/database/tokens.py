"""The tokens of SQL, one after the other, as ``text`` reads them."""

from __future__ import annotations

import re

_TOKEN = re.compile(
    r"""\s*(?:
        %\((?P<param>\w+)\)s
      | (?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)
      | '(?P<string>(?:[^']|'')*)'
      | ["`](?P<quoted>[^"`]+)["`]
      | (?P<word>[A-Za-z_]\w*)
      | (?P<op><=|>=|!=|<>|\|\||::|[-+*/=<>(),.;])
    )""",
    re.VERBOSE,
)


class UnknownSqlError(Exception):
    """The simulated database does not know this construct: teach it in tests/simulation/database."""


class Tokens:
    """The words of a text, and where its reader is."""

    def __init__(self, sql: str) -> None:
        self.sql = sql
        self.tokens: list[tuple[str, str]] = []
        place, end = 0, len(sql.rstrip())
        while place < end:
            match = _TOKEN.match(sql, place)
            if match is None:
                raise UnknownSqlError(f"cannot read {sql[place : place + 30]!r} in: {sql}")
            kind = match.lastgroup or ""
            value = match.group(kind)
            self.tokens.append((kind, value.replace("%%", "%") if kind == "string" else value))
            place = match.end()
        self.place = 0

    def peek(self, ahead: int = 0) -> tuple[str, str] | None:
        place = self.place + ahead
        return self.tokens[place] if place < len(self.tokens) else None

    def next(self) -> tuple[str, str]:
        token = self.peek()
        if token is None:
            raise self.unknown()
        self.place += 1
        return token

    def unknown(self) -> UnknownSqlError:
        rest = " ".join(value for _, value in self.tokens[self.place : self.place + 8])
        return UnknownSqlError(f"cannot read from {rest!r} on in: {self.sql}")

    def is_word(self, *words: str, ahead: int = 0) -> bool:
        for offset, word in enumerate(words):
            token = self.peek(ahead + offset)
            if token is None or token[0] != "word" or token[1].lower() != word:
                return False
        return True

    def take_word(self, *words: str) -> bool:
        if not self.is_word(*words):
            return False
        self.place += len(words)
        return True

    def need_word(self, *words: str) -> None:
        if not self.take_word(*words):
            raise self.unknown()

    def take_op(self, op: str) -> bool:
        if self.peek() != ("op", op):
            return False
        self.place += 1
        return True

    def need_op(self, op: str) -> None:
        if not self.take_op(op):
            raise self.unknown()

    def name(self) -> str:
        kind, value = self.next()
        if kind not in ("word", "quoted"):
            raise self.unknown()
        return value
