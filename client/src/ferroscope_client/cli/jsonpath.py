"""``-o jsonpath=TEMPLATE``: the subset of kubectl's templates that scripts use.

``{.items[*].name}`` inserts values, separated by blanks, and ``{"\\n"}`` text; ``{range .items[*]}...{end}`` repeats
its content for each value. All other text is printed unchanged. The paths are those of inspection rules: names, ``*``,
``[2]``, ``[1:3]``, ``[*]`` and ``..``. Missing values are empty.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from ferroscope_client.core import json_safety
from ferroscope_client.core.json_path import InvalidPathError, JsonPath

_PART: Final = re.compile(r"""\{((?:"(?:[^"\\]|\\.)*"|'[^']*'|[^{}"'])*)\}|([^{}]+)|(.).*""", re.DOTALL)


class TemplateError(ValueError):
    """The template is invalid; the message says where."""


class Literal:
    """Text."""

    def __init__(self, text: str) -> None:
        self._text = text

    def render(self, _value: Any) -> str:
        return self._text


class Values:
    """The values at a path."""

    def __init__(self, path: JsonPath) -> None:
        self._path = path

    def render(self, value: Any) -> str:
        return " ".join(_text(match) for match in self._path.find(value, mask=False))


class Range:
    """A part that is repeated for each value at a path."""

    def __init__(self, path: JsonPath, parts: Sequence[Part]) -> None:
        self._path = path
        self._parts = parts

    def render(self, value: Any) -> str:
        return "".join(part.render(match) for match in self._path.find(value, mask=False) for part in self._parts)


Part = Literal | Values | Range


class Template:
    """A template; ``TemplateError``. Without braces, the whole text is a path."""

    def __init__(self, text: str) -> None:
        words = _PART.finditer(text if "{" in text else f"{{{text}}}")
        self._parts = _parse(words, nested=False)

    def render(self, data: Any) -> str:
        """Return the text for this data; a list is the object ``{"items": [...]}``."""
        root = {"items": data} if isinstance(data, list) else data
        return "".join(part.render(root) for part in self._parts)


def _parse(words: Iterator[re.Match[str]], *, nested: bool) -> list[Part]:
    parts: list[Part] = []
    for word in words:
        expression, text, wrong = word.groups()
        if wrong is not None:
            raise TemplateError(f"{wrong} at position {word.start()} is not closed")
        if text is not None:
            parts.append(Literal(text))
            continue
        expression = expression.strip()
        if expression == "end":
            if not nested:
                raise TemplateError("{end} without {range}")
            return parts
        if expression.startswith("range "):
            path = _path(expression.removeprefix("range "))
            parts.append(Range(path, _parse(words, nested=True)))
        elif expression[:1] in ('"', "'"):
            parts.append(Literal(_unquote(expression)))
        else:
            parts.append(Values(_path(expression)))
    if nested:
        raise TemplateError("{range} without {end}")
    return parts


def _path(text: str) -> JsonPath:
    try:
        return JsonPath(text.strip().removeprefix("@"))
    except InvalidPathError as exc:
        raise TemplateError(str(exc)) from None


def _unquote(text: str) -> str:
    try:
        return str(json_safety.decode_own(text)) if text[0] == '"' else text[1:-1]
    except ValueError:
        raise TemplateError(f"invalid text {text}") from None


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False)
