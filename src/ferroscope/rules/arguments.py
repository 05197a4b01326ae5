"""The arguments of conditions and actions: by name, or, as older rules have them, by position.

What an operation takes is declared once, in a ``Signature``; checking, rendering and the reference
all follow from it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import StrEnum
from typing import Any

import msgspec

from ferroscope.core.model import Document
from ferroscope.rules import template
from ferroscope.rules.data import Data
from ferroscope.rules.errors import InvalidRuleError


class Kind(StrEnum):
    """How an argument is rendered: placeholders in it, as it is written, a text for people, or a URL."""

    VALUE = "value"
    LITERAL = "literal"
    MESSAGE = "message"
    URL = "url"


class Argument(msgspec.Struct, frozen=True):
    """One argument; without a ``default`` it must be given. ``check`` says what is wrong with a fixed value."""

    name: str
    kind: Kind = Kind.VALUE
    default: Any = msgspec.UNSET
    check: Callable[[Any], str | None] | None = None

    @property
    def required(self) -> bool:
        return self.default is msgspec.UNSET


Arguments = Callable[[Data], Document]


class Signature(msgspec.Struct, frozen=True):
    """What an operation takes, in the order of positional arguments."""

    arguments: tuple[Argument, ...]

    def named(self, given: Any) -> Document:
        """Return the arguments by name; ``InvalidRuleError`` for unknown, missing and too many ones."""
        if isinstance(given, list):
            given = self._by_position(given)
        if not isinstance(given, dict):
            raise InvalidRuleError(["args must be an object with the arguments by name, or a list"])
        known = [argument.name for argument in self.arguments]
        unknown = sorted(set(given) - set(known))
        missing = [argument.name for argument in self.arguments if argument.required and argument.name not in given]
        problems = [f"args.{name[:64]} is unknown; it takes: {', '.join(known)}" for name in unknown]
        problems += [f"args.{name} is missing" for name in missing]
        if problems:
            raise InvalidRuleError(problems)
        return dict(given)

    def _by_position(self, given: list[Any]) -> Document:
        if self.arguments and self.arguments[0].name == "values" and given and not isinstance(given[0], list):
            return {"values": given}
        if len(given) > len(self.arguments):
            raise InvalidRuleError([f"args has {len(given)} items; at most {len(self.arguments)} are taken"])
        return {argument.name: value for argument, value in zip(self.arguments, given, strict=False)}

    def compile(self, given: Any, roots: Collection[str], *, looped: bool) -> Arguments:
        """Return what renders the arguments; ``InvalidRuleError`` names the one that is wrong.

        In a loop what is otherwise taken as it is written may have placeholders, too.
        """
        named = self.named(given)
        renders: list[tuple[str, template.Render]] = []
        problems: list[str] = []
        for argument in self.arguments:
            if argument.name not in named:
                renders.append((argument.name, template.literal(argument.default)))
                continue
            try:
                renders.append((argument.name, _compile(argument, named[argument.name], roots, looped)))
            except InvalidRuleError as exc:
                problems += [f"args.{argument.name}: {problem}" for problem in exc.problems]
        if problems:
            raise InvalidRuleError(problems)
        return lambda data: {name: render(data) for name, render in renders}


def _compile(argument: Argument, value: Any, roots: Collection[str], looped: bool) -> template.Render:
    if argument.kind is Kind.MESSAGE:
        return template.message(value, roots)
    strict = argument.kind is not Kind.LITERAL
    variable = (strict or looped) and is_variable(value, roots)
    if not variable and argument.check is not None and (problem := argument.check(value)) is not None:
        raise InvalidRuleError([problem])
    if argument.kind is Kind.URL:
        return template.address(str(value), roots)
    return template.plan(value, roots, strict=strict) if strict or looped else template.literal(value)


def is_variable(value: Any, roots: Collection[str]) -> bool:
    """Whether ``value`` is a text with a placeholder in it."""
    if not isinstance(value, str):
        return False
    return any(isinstance(part, template.Placeholder) for part in template.parse(value, roots, strict=False))
