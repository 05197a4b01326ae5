"""What a configuration says that nothing reads: unknown sections, options and environment variables.

oslo.config ignores them silently, so that a misspelt ``[database]`` would start a service with an empty database.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from ferroscope.config.sections import sections
from ferroscope.core.text_files import NotTextError, lines_of

_REFERENCE: Final = "see: ferroscope docs configuration"
_VARIABLE: Final = re.compile(r"OS_\w+", re.IGNORECASE)
# Anything else may be a piece of a password, on a line of its own by mistake.
_NAME: Final = re.compile(r"[\w.-]{1,64}", re.ASCII)


@cache
def _names() -> dict[str, tuple[str, ...]]:
    return {section: struct.__struct_fields__ for section, struct in sections().items()}


@cache
def option_variables() -> frozenset[str]:
    return frozenset(f"OS_{section}__{option}".upper() for section, names in _names().items() for option in names)


class UnknownOption(NamedTuple):
    """An unknown section, option or variable; ``closest`` is the known one that was probably meant, "" if none."""

    summary: str
    closest: str

    @property
    def advice(self) -> str:
        return f"did you mean {self.closest}?" if self.closest else _REFERENCE

    def __str__(self) -> str:
        return f"{self.summary}; {self.advice}"


class Written(NamedTuple):
    """A line of a file that begins a section (``option`` is "") or sets an option."""

    line: int
    section: str
    option: str


def written(file: str) -> Iterator[Written]:
    """Yield what a file that oslo.config could read says, in its order; nothing if it cannot be opened."""
    section = ""
    try:
        lines = lines_of(Path(file).read_bytes())
    except (OSError, NotTextError):
        return
    for number, line in enumerate(map(str.rstrip, lines), 1):
        if not line or line[0] in " \t#;":  # an indented line continues a value
            continue
        if line[0] == "[":
            section = line[1:-1]
            yield Written(number, section, "")
        else:
            yield Written(number, section, re.split("[:=]", line, maxsplit=1)[0].strip())


def unknown_options(files: Sequence[str]) -> list[UnknownOption]:
    """Return all that is unknown in ``files`` and in the environment."""
    return [*_in_files(files), *_in_environment()]


def _in_files(files: Iterable[str]) -> Iterator[UnknownOption]:
    for file in files:
        for line, section, option in written(file):
            where = f"{file}:{line}"
            if section not in _names():
                if not option:  # its options are unknown because of it
                    yield UnknownOption(
                        f"{where}: unknown section{_quoted(f'[{section}]', section)}", _closest_section(section)
                    )
            elif option and option not in _names()[section]:
                summary = f"{where}: unknown option{_quoted(option, option)} in [{section}]"
                yield UnknownOption(summary, _closest_option(section, option))


def _in_environment() -> Iterator[UnknownOption]:
    for name in sorted(os.environ):
        # OS_SECTION__OPTION: neither of them is empty.
        if "__" in name[4:-1] and _VARIABLE.fullmatch(name) and name not in option_variables():
            yield UnknownOption(f"unknown environment variable {name}", _closest(name.upper(), option_variables()))


def _quoted(text: str, name: str) -> str:
    return f" {text}" if _NAME.fullmatch(name) else ""


def _closest_section(section: str) -> str:
    found = _closest(section, _names())
    return f"[{found}]" if found else ""


def _closest_option(section: str, option: str) -> str:
    """Return the option of the section with a similar name or this end, or that of another section with this name."""
    here = _names()[section]
    if found := _closest(option, here) or " or ".join([name for name in here if name.endswith(f"_{option}")][:2]):
        return found
    elsewhere = [other for other, names in _names().items() if option in names]
    return f"{option} in [{elsewhere[0]}]" if len(elsewhere) == 1 else ""


def _closest(word: str, known: Iterable[str]) -> str:
    names = sorted(known)
    exactly = word.lower().replace("-", "_")
    found = [exactly] if exactly in names else difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    return found[0] if found else ""
