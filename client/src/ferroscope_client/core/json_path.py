"""Paths into JSON data, of introspection rules and of ``-o jsonpath``: ``inventory.interfaces[*].name``, ``$..serial``.

A subset of JSONPath: names (quoted if necessary), ``*``, ``[2]``, ``[1:3]``, ``[*]``, several names ``a,b`` and ``..``.
Filters, scripts and parents are not supported: a path is looked up, never evaluated.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from ferroscope_client.core.values import MASK, is_secret

MAX_LENGTH: Final = 512
MAX_VISITED: Final = 200_000

_NAME: Final = r"""(?:[A-Za-z_@][A-Za-z0-9_@-]*|'[^']{0,255}'|"[^"]{0,255}"|\*)"""
_NAMES: Final = rf"{_NAME}(?:,{_NAME})*"
_STEP: Final = re.compile(
    rf"(?P<deep>\.\.)?\.?(?:(?P<names>{_NAMES})|\[(?P<slice>\*|-?[0-9]{{1,9}}|-?[0-9]{{0,9}}:-?[0-9]{{0,9}})\]"
    rf"|\[(?P<quoted>{_NAMES})\])"
)
_ONE_NAME: Final = re.compile(_NAME)

_ALL: Final = slice(None)

Match = tuple[Any, bool]  # the value, and whether it is a secret
Step = Callable[[Any], Iterator[tuple[str | None, Any]]]


class InvalidPathError(ValueError):
    """The path is invalid; the message says where, and what is supported."""


class PathCostError(ValueError):
    """The data has more values to visit than a path may."""


class JsonPath:
    """One path; ``text`` is its source."""

    def __init__(self, text: str) -> None:
        """Raise ``InvalidPathError`` if the path is invalid."""
        self.text = text
        self._steps = _parse(text)

    def find(self, root: Any, *, mask: bool) -> list[Any]:
        """Return every value at the path, in the order of the data; with ``mask``, secrets are masked.

        ``PathCostError``.
        """
        matches: list[Match] = [(root, False)]
        visited = 0
        for step in self._steps:
            next_matches: list[Match] = []
            for value, secret in matches:
                for key, child in step(value):
                    visited += 1
                    if visited > MAX_VISITED:
                        raise PathCostError(f"the path {self.text} visits more than {MAX_VISITED} values")
                    next_matches.append((child, secret or (mask and key is not None and is_secret(key))))
            matches = next_matches
        return [MASK if secret and value else value for value, secret in matches]


def _parse(text: str) -> list[Step]:
    if len(text) > MAX_LENGTH:
        raise InvalidPathError(f"the path is longer than {MAX_LENGTH} characters")
    rest = text.strip()
    rest = rest[1:] if rest.startswith("$") else rest
    steps: list[Step] = []
    position = 0
    while position < len(rest):
        match = _STEP.match(rest, position)
        if match is None or (match["deep"] and rest.startswith("...", position)):
            raise InvalidPathError(
                f"invalid path {text!r} at {rest[position:][:40]!r}; supported: names, *, [2], [1:3], .."
            )
        if match["deep"]:
            steps.append(_descend)
        steps.append(_step(match))
        position = match.end()
    return steps


def _step(match: re.Match[str]) -> Step:
    names = match["names"] or match["quoted"]
    if names is not None:
        unquoted = [name if name == "*" else name.strip("'\"") for name in _ONE_NAME.findall(names)]
        return lambda value: _select_names(value, unquoted)
    text = match["slice"]
    if text == "*":
        return lambda value: _select_slice(value, _ALL)
    if ":" in text:
        start, _, stop = text.partition(":")
        part = slice(int(start) if start else None, int(stop) if stop else None)
        return lambda value: _select_slice(value, part)
    index = int(text)
    return lambda value: _select_index(value, index)


def _select_names(value: Any, names: list[str]) -> Iterator[tuple[str | None, Any]]:
    if isinstance(value, dict):
        for name in names:
            if name == "*":
                yield from value.items()
            elif name in value:
                yield name, value[name]


def _select_slice(value: Any, part: slice) -> Iterator[tuple[str | None, Any]]:
    # A value that is not a list counts as a list of one, as in ironic-inspector.
    for item in value[part] if isinstance(value, list) else [value][part]:
        yield None, item


def _select_index(value: Any, index: int) -> Iterator[tuple[str | None, Any]]:
    if isinstance(value, list) and -len(value) <= index < len(value):
        yield None, value[index]


def _descend(value: Any) -> Iterator[tuple[str | None, Any]]:
    pending: list[tuple[str | None, Any]] = [(None, value)]
    while pending:
        key, current = pending.pop()
        yield key, current
        inherited = key if key is not None and is_secret(key) else None
        if isinstance(current, dict):
            pending.extend((inherited or name, item) for name, item in reversed(current.items()))
        elif isinstance(current, list):
            pending.extend((inherited, item) for item in reversed(current))
