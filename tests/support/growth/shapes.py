"""Texts that are bad for a regular expression, made from the pieces that it repeats.

An expression is slow if it reads the same characters again: because it restarts at each of them, or because two of its
repetitions share them. So each shape is a run of something that the expression repeats, behind what has to stand before
it, with an end that does not fit.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

Shape = Callable[[int], Any]

_parser: Any = importlib.import_module("re._parser")
_COMMON: Final = " \t\n\x00!-0aZ_\\\"'\xe9"
_CATEGORIES: Final[dict[str, Callable[[str], bool]]] = {
    "DIGIT": str.isdecimal,
    "SPACE": str.isspace,
    "WORD": lambda char: char.isalnum() or char == "_",
}
_MIN_REPEATS: Final = 8
# What follows a run: nothing, or something that few expressions accept.
_ENDS: Final = ("", "\n\x00")


def make_shapes(expression: re.Pattern[Any]) -> dict[str, Shape]:
    """Return functions that make a text of a length, by their description."""
    tree = _parser.parse(expression.pattern, expression.flags & ~re.UNICODE)
    alphabet = _alphabet(tree)
    units = {("", char) for char in alphabet}
    for prefix, body in _repetitions(tree, alphabet):
        for unit in _variants(body, alphabet):
            units |= {(prefix, unit), ("", prefix + unit), ("", prefix)}
    shapes = {(prefix, unit, end) for prefix, unit in units if unit for end in _ENDS}
    raw = isinstance(expression.pattern, bytes)
    return {
        f"{prefix!r} + {unit!r} * n + {end!r}": partial(_repeat, prefix, unit, end, raw)
        for prefix, unit, end in sorted(shapes)
    }


def _repeat(prefix: str, unit: str, end: str, raw: bool, length: int) -> Any:
    text = prefix + unit * (length // len(unit)) + end
    return text.encode("latin-1", "replace") if raw else text


def _leaves(tree: Any) -> Iterator[tuple[str, Any]]:
    """Yield all parts that stand for one character."""
    for op, value in tree:
        if op.name in ("LITERAL", "NOT_LITERAL", "IN", "ANY"):
            yield op.name, value
        for body in _bodies(op.name, value):
            yield from _leaves(body)


def _bodies(op: str, value: Any) -> list[Any]:
    """Return the sequences within a part."""
    match op:
        case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
            return [value[2]]
        case "SUBPATTERN":
            return [value[3]]
        case "ASSERT" | "ASSERT_NOT":
            return [value[1]]
        case "ATOMIC_GROUP":
            return [value]
        case "BRANCH":
            return list(value[1])
        case "GROUPREF_EXISTS":
            return [body for body in value[1:] if body is not None]
        case _:
            return []


def _alphabet(tree: Any) -> list[str]:
    """Return one character of each kind that the expression tells apart."""
    leaves = list(_leaves(tree))
    spans = [item for op, value in leaves if op == "IN" for item in value]
    codes = [value for op, value in leaves if op.endswith("LITERAL")]
    codes += [value for op, value in spans if op.name == "LITERAL"]
    codes += [value[0] for op, value in spans if op.name == "RANGE"]
    kinds: dict[tuple[bool, ...], str] = {}
    for char in [*_COMMON, *map(chr, codes)]:
        kinds.setdefault(tuple(_fits(op, value, char) for op, value in leaves), char)
    return list(kinds.values())


def _fits(op: str, value: Any, char: str) -> bool:
    match op:
        case "LITERAL":
            return ord(char) == value
        case "NOT_LITERAL":
            return ord(char) != value
        case "RANGE":
            return bool(value[0] <= ord(char) <= value[1])
        case "CATEGORY":
            name = value.name.removeprefix("CATEGORY_")
            return _CATEGORIES[name.removeprefix("NOT_")](char) != name.startswith("NOT_")
        case "IN":
            negated = value[0][0].name == "NEGATE"
            return any(_fits(item.name, span, char) for item, span in value[negated:]) != negated
        case _:
            return True


def _sample(tree: Any, alphabet: list[str]) -> str:
    """Return a text that the sequence accepts, mostly."""
    text = ""
    for op, value in tree:
        if op.name in ("LITERAL", "NOT_LITERAL", "IN", "ANY"):
            text += chr(value) if op.name == "LITERAL" else _chars(op.name, value, alphabet)[0]
        elif op.name.endswith("REPEAT"):
            text += _sample(value[2], alphabet) * value[0]
        elif op.name != "ASSERT_NOT" and (bodies := _bodies(op.name, value)):
            text += _sample(bodies[0], alphabet)
    return text


def _chars(op: str, value: Any, alphabet: list[str]) -> list[str]:
    return [char for char in alphabet if _fits(op, value, char)] or ["a"]


def _repetitions(tree: Any, alphabet: list[str], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield what the expression repeats, behind a text that leads to it."""
    for part in tree:
        op, value = part
        if op.name.endswith("REPEAT") and value[1] >= _MIN_REPEATS:
            yield prefix, value[2]
        for body in _bodies(op.name, value):
            yield from _repetitions(body, alphabet, prefix)
        prefix += _sample([part], alphabet)


def _variants(tree: Any, alphabet: list[str]) -> Iterator[str]:
    """Yield texts that the sequence accepts: with each alternative, and each character of each class."""
    samples = [_sample([part], alphabet) for part in tree]
    for place, (op, value) in enumerate(tree):
        if op.name in ("IN", "ANY", "NOT_LITERAL"):
            choices = _chars(op.name, value, alphabet)
        else:
            choices = [text for body in _bodies(op.name, value) for text in _variants(body, alphabet)]
        for text in choices or samples[place : place + 1]:
            yield "".join([*samples[:place], text, *samples[place + 1 :]])
