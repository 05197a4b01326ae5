"""Adds options to the text of a configuration file and keeps everything else."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Final

_SECTION: Final = re.compile(r"\s*\[([^\]]+)\]\s*")
_OPTION: Final = re.compile(r"([A-Za-z0-9_]+)\s*[=:]\s*(.*)")


class MergeError(ValueError):
    """The file has other values; ``conflicts``: a message about each."""

    def __init__(self, conflicts: list[str]) -> None:
        super().__init__("; ".join(conflicts))
        self.conflicts = conflicts


def merge_options(text: str, sections: Mapping[str, Mapping[str, str]]) -> str:
    """Return the text with these options; ``MergeError`` if it has one of them with another value.

    An option that has this value already stays in place; a new one is added at the end of its section.
    """
    lines = text.splitlines()
    for section, options in missing_options(text, sections).items():
        added = [f"{name} = {value.replace('$', '$$')}" for name, value in options.items()]
        ends = [stop for _, stop in _blocks(lines, section)]
        if not ends:
            lines += ["", f"[{section}]", *added] if lines else [f"[{section}]", *added]
            continue
        end = ends[-1]
        while not lines[end - 1].strip():  # before the empty lines that end the section
            end -= 1
        lines[end:end] = added
    return "\n".join(lines) + "\n" if lines else ""


def missing_options(text: str, sections: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, str]]:
    """Return the options that the text lacks, by section; ``MergeError`` if it has one of them with another value."""
    lines = text.splitlines()
    conflicts: list[str] = []
    missing: dict[str, dict[str, str]] = {}
    for section, options in sections.items():
        left = dict(options)
        for start, stop in _blocks(lines, section):
            for name, value in _options(lines[start:stop]):
                if name in left and value != _plain(left.pop(name)):
                    conflicts.append(f"[{section}] {name} is {value!r}, not {options[name]!r}")
        if left:
            missing[section] = left
    if conflicts:
        raise MergeError(conflicts)
    return missing


def added_lines(old: str, new: str) -> str:
    """Return the lines that ``merge_options`` has added to the old text, each below the name of its section."""
    rest = iter(old.splitlines())
    expected = next(rest, None)
    section, shown = "", list[str]()
    for line in new.splitlines():
        if _SECTION.fullmatch(line):
            section = line
        if line == expected:
            expected = next(rest, None)
        elif line.strip() and line != section:
            shown += [*([section] if section and section not in shown else []), line]
    return "".join(f"{line}\n" for line in shown)


def _blocks(lines: list[str], section: str) -> Iterator[tuple[int, int]]:
    """Yield the lines of the section, first and last one, which may be in several places."""
    heads = [(number, match[1]) for number, line in enumerate(lines) if (match := _SECTION.fullmatch(line))]
    for (number, name), (following, _) in pairwise([*heads, (len(lines), "")]):
        if name == section:
            yield number + 1, following


def _options(lines: list[str]) -> Iterator[tuple[str, str]]:
    """Yield names and values; lines that begin with a space continue the value."""
    name = ""
    parts: list[str] = []
    for line in [*lines, "end ="]:
        option_match = _OPTION.match(line)
        if name and (option_match or not line.strip() or line[0] in "#;"):
            yield name, _plain(" ".join(parts))
            name = ""
        if option_match:
            name, parts = option_match[1], [option_match[2]]
        elif name and line[:1].isspace():
            parts.append(line)


def _plain(value: str) -> str:
    """Return the value without differences that have no meaning."""
    return " ".join(value.replace("$$", "$").replace(",", " , ").split())
