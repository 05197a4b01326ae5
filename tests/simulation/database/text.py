"""SQL text to a tree: the part of the language that SQLAlchemy renders for the adapter's statements.

Nodes are tuples whose first item is their kind. What is not known raises ``UnknownSqlError``, which
ends the simulation: a statement is never half understood.
"""

from __future__ import annotations

import re
from typing import Any

from tests.simulation.database.tokens import Tokens

_COMPARISONS = {"=", "!=", "<>", "<", "<=", ">", ">="}
_RESERVED = {
    "from", "where", "group", "order", "limit", "offset", "for", "returning", "as", "and", "or", "not", "is", "in",
    "like", "escape", "then", "else", "end", "when", "set", "values", "asc", "desc", "union", "having", "between", "on",
    "join", "inner",
}  # fmt: skip

Tree = tuple[Any, ...]


def parse(sql: str) -> list[Tree]:
    """Return the trees of all statements in ``sql``."""
    parser = _Parser(sql)
    statements = []
    while parser.peek() is not None:
        statements.append(parser.statement())
        if not parser.take_op(";") and parser.peek() is not None:
            raise parser.unknown()
    return statements


class _Parser(Tokens):
    def __init__(self, sql: str) -> None:
        super().__init__(sql)
        self.called = ""  # the name of the last item's column, where it has one

    # Statements.

    def statement(self) -> Tree:
        if self.is_word("select"):
            return self.select()
        for word in ("insert", "update", "delete"):
            if self.is_word(word):
                return getattr(self, word)()  # type: ignore[no-any-return]
        return self.control()

    def control(self) -> Tree:
        if self.take_word("begin") or self.take_word("start", "transaction"):
            options = self._options()
            return ("begin", "repeatable read" in options, "read only" in options)
        if self.take_word("set", "transaction"):
            return ("isolation", "repeatable read" in self._options())
        if self.take_word("set", "local", "synchronous_commit", "to", "off"):
            return ("lazy",)
        if self.take_word("commit"):
            return ("commit",)
        if self.take_word("rollback"):
            return ("rollback",)
        if self.take_word("notify"):
            self.name()
            self.need_op(",")
            return ("notify", self.next()[1])
        raise self.unknown()

    def _options(self) -> str:
        words = []
        while (token := self.peek()) is not None and token != ("op", ";"):
            words.append(token[1].lower())
            self.place += 1
        return " ".join(words)

    def select(self) -> Tree:
        self.need_word("select")
        distinct = self.take_word("distinct")
        items, names = [self.item()], [self.called]
        while self.take_op(","):
            items.append(self.item())
            names.append(self.called)
        sources: list[tuple[str | Tree, str]] = []
        joined: list[Tree] = []
        if self.take_word("from"):
            sources.append(self.source())
            while (joins := self.take_word("join") or self.take_word("inner", "join")) or self.take_op(","):
                sources.append(self.source())
                if joins:
                    self.need_word("on")
                    joined.append(self.expression())
        where = self.expression() if self.take_word("where") else None
        if joined:
            parts = [] if where is None else where[1] if where[0] == "and" else [where]
            where = ("and", [*joined, *parts])
        group: list[Tree] = []
        if self.take_word("group", "by"):
            group.append(self.expression())
            while self.take_op(","):
                group.append(self.expression())
        order = []
        if self.take_word("order", "by"):
            order.append(self.ordering())
            while self.take_op(","):
                order.append(self.ordering())
        limit = self.expression() if self.take_word("limit") else None
        lock, skip = self.take_word("for", "update"), False
        if lock:
            skip = self.take_word("skip", "locked")
        return ("select", items, sources, where, group, order, limit, lock, skip, distinct, names)

    def item(self) -> Tree:
        if self.take_op("*"):
            self.called = ""
            return ("all",)
        expression = self.expression()
        self.called = expression[2] if expression[0] == "column" else ""
        if self.take_word("as"):
            self.called = self.name()
        return expression

    def source(self) -> tuple[str | Tree, str]:
        """Return a table, or a query in its place, and what it is called."""
        if self.take_op("("):
            query = self.select()
            self.need_op(")")
            self.take_word("as")
            return query, self.name()
        table = self.name()
        token = self.peek()
        if self.take_word("as") or (token is not None and token[0] == "word" and token[1].lower() not in _RESERVED):
            return table, self.name()
        return table, table

    def ordering(self) -> tuple[Tree, bool]:
        expression = self.expression()
        if self.take_word("desc"):
            return expression, True
        self.take_word("asc")
        return expression, False

    def insert(self) -> Tree:
        self.need_word("insert", "into")
        table = self.name()
        self.need_op("(")
        columns = [self.name()]
        while self.take_op(","):
            columns.append(self.name())
        self.need_op(")")
        self.need_word("values")
        rows = [self.values()]
        while self.take_op(","):
            rows.append(self.values())
        return ("insert", table, columns, rows, self.upsert(), self.returning())

    def upsert(self) -> list[tuple[str, Tree]]:
        """What to change where the key is there already."""
        if self.take_word("on", "conflict"):
            self.values()
            self.need_word("do", "update", "set")
        elif not self.take_word("on", "duplicate", "key", "update"):
            return []
        changes = [self.assignment()]
        while self.take_op(","):
            changes.append(self.assignment())
        return changes

    def values(self) -> list[Tree]:
        self.need_op("(")
        values = [self.expression()]
        while self.take_op(","):
            values.append(self.expression())
        self.need_op(")")
        return values

    def update(self) -> Tree:
        self.need_word("update")
        table = self.name()
        self.need_word("set")
        changes = [self.assignment()]
        while self.take_op(","):
            changes.append(self.assignment())
        where = self.expression() if self.take_word("where") else None
        return ("update", table, changes, where, self.returning())

    def assignment(self) -> tuple[str, Tree]:
        column = self.name()
        self.need_op("=")
        return column, self.sum()

    def delete(self) -> Tree:
        self.need_word("delete", "from")
        table = self.name()
        where = self.expression() if self.take_word("where") else None
        return ("delete", table, where, self.returning())

    def returning(self) -> list[Tree]:
        items: list[Tree] = []
        if self.take_word("returning"):
            items.append(self.item())
            while self.take_op(","):
                items.append(self.item())
        return items

    # Expressions, from the weakest binding to the strongest.

    def expression(self) -> Tree:
        parts = [self.conjunction()]
        while self.take_word("or"):
            parts.append(self.conjunction())
        return parts[0] if len(parts) == 1 else ("or", parts)

    def conjunction(self) -> Tree:
        parts = [self.negation()]
        while self.take_word("and"):
            parts.append(self.negation())
        return parts[0] if len(parts) == 1 else ("and", parts)

    def negation(self) -> Tree:
        if self.take_word("not"):
            return ("not", self.negation())
        return self.comparison()

    def comparison(self) -> Tree:
        left = self.sum()
        while True:
            token = self.peek()
            if token is not None and token[0] == "op" and token[1] in _COMPARISONS:
                self.place += 1
                left = ("compare", "!=" if token[1] == "<>" else token[1], left, self.sum())
            elif self.take_word("is"):
                negated = self.take_word("not")
                self.need_word("null")
                left = ("is null", left, negated)
            elif self.is_word("in") or self.is_word("not", "in"):
                left = self.membership(left)
            elif self.is_word("like") or self.is_word("not", "like"):
                left = self.like(left)
            else:
                return left

    def membership(self, left: Tree) -> Tree:
        negated = self.take_word("not")
        self.need_word("in")
        self.need_op("(")
        if self.is_word("select"):
            right: Any = self.select()
        else:
            right = [self.expression()]
            while self.take_op(","):
                right.append(self.expression())
        self.need_op(")")
        return ("in", left, right, negated)

    def like(self, left: Tree) -> Tree:
        negated = self.take_word("not")
        self.need_word("like")
        pattern = self.sum()
        escape = self.next()[1] if self.take_word("escape") else "\\"
        return ("like", left, pattern, escape, negated)

    def sum(self) -> Tree:
        left = self.product()
        while (token := self.peek()) is not None and token[0] == "op" and token[1] in ("+", "-", "||"):
            self.place += 1
            left = ("arithmetic", token[1], left, self.product())
        return left

    def product(self) -> Tree:
        left = self.unary()
        while (token := self.peek()) is not None and token[0] == "op" and token[1] in ("*", "/"):
            self.place += 1
            left = ("arithmetic", token[1], left, self.unary())
        return left

    def unary(self) -> Tree:
        if self.take_op("-"):
            return ("arithmetic", "-", ("constant", 0), self.unary())
        value = self.primary()
        while self.take_op("::"):
            self.name()
        return value

    def primary(self) -> Tree:
        kind, value = self.next()
        if kind == "param":
            return ("param", value)
        if kind == "number":
            return ("constant", float(value) if re.search(r"[.eE]", value) else int(value))
        if kind == "string":
            return ("constant", value.replace("''", "'"))
        if (kind, value) == ("op", "("):
            inner: Tree = ("scalar", self.select()) if self.is_word("select") else self.expression()
            self.need_op(")")
            return inner
        if kind in ("word", "quoted"):
            return self.named(kind, value)
        self.place -= 1
        raise self.unknown()

    def named(self, kind: str, value: str) -> Tree:
        word = value.lower() if kind == "word" else ""
        if word in ("null", "true", "false"):
            return ("constant", {"null": None, "true": True, "false": False}[word])
        if word == "case":
            return self.case()
        if word == "exists":
            self.need_op("(")
            query = self.select()
            self.need_op(")")
            return ("exists", query)
        if self.take_op("("):
            return self.call(word)
        if self.take_op("."):
            return ("column", value, self.name())
        return ("column", None, value)

    def call(self, function: str) -> Tree:
        if function == "cast":
            inner = self.expression()
            self.need_word("as")
            while not self.take_op(")"):
                self.next()
            return inner
        if function == "extract":
            self.need_word("epoch", "from")
            inner = self.expression()
            self.need_op(")")
            return inner
        arguments: list[Tree] = []
        if not self.take_op(")"):
            arguments.append(self.item())
            while self.take_op(","):
                arguments.append(self.item())
            self.need_op(")")
        if function in ("clock_timestamp", "sysdate"):
            return ("now",)
        if function == "unix_timestamp":
            return arguments[0]
        if function == "values":
            return ("column", "excluded", arguments[0][2])
        return ("call", function, arguments)

    def case(self) -> Tree:
        branches = []
        while self.take_word("when"):
            condition = self.expression()
            self.need_word("then")
            branches.append((condition, self.expression()))
        otherwise: Tree = self.expression() if self.take_word("else") else ("constant", None)
        self.need_word("end")
        return ("case", branches, otherwise)
