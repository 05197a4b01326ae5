"""Placeholders in the arguments of rules: ``{inventory[cpu][count]}``, ``{node.properties[x]}``, ``{item}``.

The syntax is that of ``str.format``, but every step is a lookup in data, and none reaches an attribute of a Python
object. An argument that is exactly one placeholder keeps the type of its value. Braces that cannot be a placeholder, as
in ``a{2}``, are literal.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from enum import StrEnum
from typing import Any, Final
from urllib.parse import quote

import msgspec

from ferroscope.core.model import Document
from ferroscope.rules import template
from ferroscope.rules.data import (
    MAX_DEPTH,
    MAX_LOOP,
    MAX_TEXT,
    InvalidRuleError,
    MissingDataError,
    RuleData,
    RuleError,
    Step,
)
from ferroscope_client.core.values import many

Render = Callable[[RuleData], Any]

_TOKEN: Final = re.compile(r"\{\{|\}\}|\{((?:[^{}\[\]]|\[[^\[\]{}]{0,255}\]){1,1024})\}")
_PLACEHOLDER: Final = re.compile(
    r"(?P<root>[A-Za-z_]\w{0,63})"
    r"(?P<steps>(?:\.[^.\[\]{}!:]{1,255}|\[[^\[\]{}]{1,255}\]){0,32})"
    r"(?:!(?P<conversion>[rs]))?(?::(?P<spec>.{0,32}))?\Z"
)
_STEP: Final = re.compile(r"\.([^.\[\]]+)|\[([^\[\]]+)\]")
_WIDTH: Final = re.compile(r"[0-9]{4,}")


class Placeholder(msgspec.Struct, frozen=True):
    """One placeholder; ``name`` is its source, without the braces."""

    name: str
    root: str
    steps: tuple[Step, ...]
    conversion: str | None = None
    spec: str | None = None

    @property
    def plain(self) -> bool:
        return self.conversion is None and self.spec is None

    def value(self, data: RuleData) -> Any:
        """Return a copy of its value; ``MissingDataError``."""
        return data.get(self.root, self.steps, self.name)

    def text(self, data: RuleData) -> str:
        """Return its value as part of a string."""
        value = self.value(data)
        if self.conversion == "r":
            value = repr(value)
        try:
            return format(value, self.spec) if self.spec else str(value)
        except (ValueError, TypeError) as exc:
            raise RuleError(f"invalid format of {{{self.name}}}: {exc}") from None


Part = str | Placeholder


def parse(text: str, roots: Collection[str], *, strict: bool = True) -> tuple[Part, ...]:
    """Return ``text`` as its parts; ``InvalidRuleError`` for an invalid placeholder.

    If not ``strict``, unknown names in braces are literal, as in regular expressions.
    """
    if len(text) > MAX_TEXT:
        raise InvalidRuleError([f"a string of {len(text)} characters is too long; at most {MAX_TEXT}"])
    parts: list[Part] = []
    end = 0
    for token in _TOKEN.finditer(text):
        parts.append(text[end : token.start()])
        parts.append(_part(token, roots, strict))
        end = token.end()
    parts.append(text[end:])
    return _join_texts(parts)


def _part(token: re.Match[str], roots: Collection[str], strict: bool) -> Part:
    inner = token[1]
    if inner is None:
        return token[0][0]  # a doubled brace is a literal brace
    match = _PLACEHOLDER.match(inner)
    if match is None or (match["root"] not in roots and not strict):
        return token[0]
    if match["root"] not in roots:
        names = ", ".join(sorted(roots))
        raise InvalidRuleError([f"{{{inner}}} does not begin with one of: {names}; double literal braces: {{{{ }}}}"])
    if match["spec"] and _WIDTH.search(match["spec"]):
        raise InvalidRuleError([f"{{{inner}}} is wider than 999 characters"])
    steps = tuple(_step(dotted or bracketed) for dotted, bracketed in _STEP.findall(match["steps"]))
    return Placeholder(inner, match["root"], steps, match["conversion"], match["spec"] or None)


def _step(text: str) -> Step:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else text


def _join_texts(parts: list[Part]) -> tuple[Part, ...]:
    joined: list[Part] = []
    for part in parts:
        if isinstance(part, str) and joined and isinstance(joined[-1], str):
            joined[-1] += part
        elif part != "":
            joined.append(part)
    return tuple(joined)


def plan(value: Any, roots: Collection[str], *, strict: bool = True, depth: int = MAX_DEPTH) -> Render:
    """Return the renderer of ``value``, at any depth, including the keys of objects."""
    if depth <= 0:
        raise InvalidRuleError([f"it is nested more than {MAX_DEPTH} levels deep"])
    if isinstance(value, str):
        return _text_plan(parse(value, roots, strict=strict))
    if isinstance(value, list):
        items = [plan(item, roots, strict=strict, depth=depth - 1) for item in value]
        return lambda data: [item(data) for item in items]
    if isinstance(value, dict):
        pairs = [
            (_text_plan(parse(str(key), roots, strict=strict)), plan(item, roots, strict=strict, depth=depth - 1))
            for key, item in value.items()
        ]
        return lambda data: {str(key(data)): item(data) for key, item in pairs}
    return lambda _data: value


def literal(value: Any) -> Render:
    """Return the renderer of a literal ``value``."""
    if isinstance(value, dict | list):
        return lambda data: data.budget.copy(value, mask=False)
    return lambda _data: value


def message(text: Any, roots: Collection[str]) -> Render:
    """Return the renderer of a message, in which placeholders without a value are left unchanged."""
    parts = parse(str(text), roots, strict=False)

    def render(data: RuleData) -> str:
        return "".join(part if isinstance(part, str) else _text_or_source(part, data) for part in parts)

    return render


def address(text: str, roots: Collection[str]) -> Render:
    """Return the renderer of a URL: values in it are escaped, so that they cannot change its structure."""
    parts = parse(text, roots)

    def render(data: RuleData) -> str:
        texts = [part if isinstance(part, str) else part.text(data) for part in parts]
        escaped = [
            text if isinstance(part, str) or number == 0 else quote(text, safe="")
            for number, (part, text) in enumerate(zip(parts, texts, strict=True))
        ]
        return "".join(escaped)

    return render


def _text_plan(parts: tuple[Part, ...]) -> Render:
    if not parts:
        return lambda _data: ""
    first = parts[0]
    if len(parts) == 1 and isinstance(first, str):
        return lambda _data: first
    if len(parts) == 1 and isinstance(first, Placeholder) and first.plain:
        return first.value

    def render(data: RuleData) -> str:
        text = "".join(part if isinstance(part, str) else part.text(data) for part in parts)
        data.budget.take(len(text))
        return text

    return render


def _text_or_source(part: Placeholder, data: RuleData) -> str:
    try:
        return part.text(data)
    except MissingDataError:
        return f"{{{part.name}}}"


# The arguments of conditions and actions: by name, or, in older rules, by position.
#
# A ``Signature`` declares the arguments of an operation; validation, rendering and the reference derive from it.


class ArgumentKind(StrEnum):
    """How an argument is rendered: with placeholders, literally, as a message, or as a URL."""

    VALUE = "value"
    LITERAL = "literal"
    MESSAGE = "message"
    URL = "url"


class Argument(msgspec.Struct, frozen=True):
    """One argument; without a ``default`` it is required. ``check`` validates a constant value."""

    name: str
    kind: ArgumentKind = ArgumentKind.VALUE
    default: Any = msgspec.UNSET
    check: Callable[[Any], str | None] | None = None

    @property
    def is_required(self) -> bool:
        return self.default is msgspec.UNSET


Arguments = Callable[[RuleData], Document]


class Signature(msgspec.Struct, frozen=True):
    """The arguments of an operation, in positional order."""

    arguments: tuple[Argument, ...]

    def by_name(self, args: Any) -> Document:
        """Return the arguments by name; ``InvalidRuleError`` if one is unknown or missing, or if there are too many."""
        if isinstance(args, list):
            args = self._by_position(args)
        if not isinstance(args, dict):
            raise InvalidRuleError(["args must be an object with the arguments by name, or a list"])
        names = [argument.name for argument in self.arguments]
        unknown = sorted(set(args) - set(names))
        missing = [argument.name for argument in self.arguments if argument.is_required and argument.name not in args]
        problems = [f"unknown args.{name[:64]}; available: {', '.join(names)}" for name in unknown]
        problems += [f"args.{name} is missing" for name in missing]
        if problems:
            raise InvalidRuleError(problems)
        return dict(args)

    def _by_position(self, args: list[Any]) -> Document:
        if self.arguments and self.arguments[0].name == "values" and args and not isinstance(args[0], list):
            return {"values": args}
        if len(args) > len(self.arguments):
            raise InvalidRuleError([f"args has {many(len(args), 'item')}; at most {len(self.arguments)} are allowed"])
        return {argument.name: value for argument, value in zip(self.arguments, args, strict=False)}

    def compile(self, args: Any, roots: Collection[str], *, looped: bool) -> Arguments:
        """Return the renderer of the arguments; ``InvalidRuleError`` names the invalid one.

        In a loop, arguments that are otherwise literal may have placeholders too.
        """
        by_name = self.by_name(args)
        renders: list[tuple[str, template.Render]] = []
        problems: list[str] = []
        for argument in self.arguments:
            if argument.name not in by_name:
                renders.append((argument.name, template.literal(argument.default)))
                continue
            try:
                renders.append((argument.name, _compile(argument, by_name[argument.name], roots, looped)))
            except InvalidRuleError as exc:
                problems += [f"args.{argument.name}: {problem}" for problem in exc.problems]
        if problems:
            raise InvalidRuleError(problems)
        return lambda data: {name: render(data) for name, render in renders}


def _compile(argument: Argument, value: Any, roots: Collection[str], looped: bool) -> template.Render:
    if argument.kind is ArgumentKind.MESSAGE:
        return template.message(value, roots)
    strict = argument.kind is not ArgumentKind.LITERAL
    variable = (strict or looped) and is_variable(value, roots)
    if not variable and argument.check is not None and (problem := argument.check(value)) is not None:
        raise InvalidRuleError([problem])
    if argument.kind is ArgumentKind.URL:
        return template.address(str(value), roots)
    return template.plan(value, roots, strict=strict) if strict or looped else template.literal(value)


def is_variable(value: Any, roots: Collection[str]) -> bool:
    """Whether ``value`` is a string with a placeholder."""
    if not isinstance(value, str):
        return False
    return any(isinstance(part, template.Placeholder) for part in template.parse(value, roots, strict=False))


# Loops: a check or an action for each item of a list, which is in the rule or in the data.
#
# An object is one item, as in the Bare Metal API. Placeholders in literal items are rendered; items from data are not,
# even if they contain braces.


def compile_loop(loop: Any, roots: Collection[str]) -> template.Render | None:
    """Return the renderer of the items; None without a loop. ``InvalidRuleError``."""
    if loop in (None, [], {}):
        return None
    if isinstance(loop, list) and len(loop) > MAX_LOOP:
        raise InvalidRuleError([f"loop has {many(len(loop), 'item')}; at most {MAX_LOOP}"])
    if not isinstance(loop, list | dict) and not is_variable(loop, roots):
        raise InvalidRuleError(["loop must be a list, an object, or a placeholder such as {inventory[interfaces]}"])
    try:
        return template.plan(loop, set(roots) - {"item"})
    except InvalidRuleError as exc:
        raise InvalidRuleError([f"loop: {problem}" for problem in exc.problems]) from None


def loop_items(loop: template.Render, data: RuleData) -> Iterator[RuleData]:
    """Yield the data for each item; ``RuleError`` if the loop is not over a list."""
    items = loop(data)
    if isinstance(items, dict):
        items = [items]
    if not isinstance(items, list):
        raise RuleError(f"loop must be over a list, not {type(items).__name__}")
    if len(items) > MAX_LOOP:
        raise RuleError(f"the loop has {many(len(items), 'item')}; at most {MAX_LOOP}")
    for item in items:
        yield data.with_item(item)
