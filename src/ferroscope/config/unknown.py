"""Finds unknown sections, options and environment variables of a configuration.

oslo.config ignores them silently, so a misspelled ``[database]`` would start a service with an empty database.
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
from ferroscope_client.core.text_files import NotTextError, lines_of

_REFERENCE: Final = "see: ferroscope docs configuration"
_VARIABLE: Final = re.compile(r"OS_\w+", re.IGNORECASE)
# The share of letters that two spellings of a word have in common, in the same order.
_MIN_LIKENESS: Final = 0.75
# Other text may be part of a password that is on a line of its own by mistake.
_NAME: Final = re.compile(r"[\w.-]{1,64}", re.ASCII)


@cache
def _names() -> dict[str, tuple[str, ...]]:
    return {section: struct.__struct_fields__ for section, struct in sections().items()}


@cache
def option_variables() -> frozenset[str]:
    return frozenset(f"OS_{section}__{option}".upper() for section, names in _names().items() for option in names)


class UnknownOption(NamedTuple):
    """An unknown section, option or variable."""

    summary: str
    advice: str

    def __str__(self) -> str:
        return f"{self.summary}; {self.advice}"


class SettingLine(NamedTuple):
    """A line of a file that begins a section (``option`` is "") or sets an option."""

    line: int
    section: str
    option: str


def read_settings(file: str) -> Iterator[SettingLine]:
    """Yield the settings of a file that oslo.config could read, in order; nothing if it cannot be opened."""
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
            yield SettingLine(number, section, "")
        else:
            yield SettingLine(number, section, re.split("[:=]", line, maxsplit=1)[0].strip())


def unknown_options(files: Sequence[str]) -> list[UnknownOption]:
    """Return all that is unknown in ``files`` and in the environment."""
    return [*_in_files(files), *_in_environment()]


def _in_files(files: Iterable[str]) -> Iterator[UnknownOption]:
    for file in files:
        for line, section, option in read_settings(file):
            where = f"{file}:{line}"
            if section not in _names():
                if not option:  # its options are unknown for the same reason
                    yield UnknownOption(
                        f"{where}: unknown section{_quote(f'[{section}]', section)}", _advise_section(section)
                    )
            elif option and option not in _names()[section]:
                summary = f"{where}: unknown option{_quote(option, option)} in [{section}]"
                yield UnknownOption(summary, _advise_option(section, option))


def _in_environment() -> Iterator[UnknownOption]:
    for name in sorted(os.environ):
        # OS_SECTION__OPTION: neither of them is empty.
        if "__" in name[4:-1] and _VARIABLE.fullmatch(name) and name not in option_variables():
            meant = _find_respelled(name, option_variables())
            yield UnknownOption(f"unknown environment variable {name}", _ask(meant))


def _quote(text: str, name: str) -> str:
    return f" {text}" if _NAME.fullmatch(name) else ""


def _advise_section(section: str) -> str:
    meant = _find_respelled(section, _names())
    return _ask(meant and f"[{meant}]")


def _advise_option(section: str, option: str) -> str:
    """Ask for the option of the section with this spelling or this end, or say which other section has this name.

    That says no more than the name: a time limit of another section limits something else.
    """
    here = _names()[section]
    meant = _find_respelled(option, here)
    if meant := meant or " or ".join([name for name in here if name.endswith(f"_{option}")][:2]):
        return _ask(meant)
    elsewhere = [name for name, options in _names().items() if option in options]
    return f"[{elsewhere[0]}] has an option of this name" if len(elsewhere) == 1 else _REFERENCE


def _ask(meant: str) -> str:
    return f"did you mean {meant}?" if meant else _REFERENCE


def _find_respelled(name: str, names: Iterable[str]) -> str:
    """Return the known name with the same words in another spelling, "" if there is none.

    A name with another word means something else, however long the rest is: ``max_ports`` is not ``max_nodes``.
    """
    likeness, meant = max((_likeness(name, candidate), candidate) for candidate in names)
    return meant if likeness else ""


def _likeness(name: str, candidate: str) -> float:
    """Return the similarity of the least similar pair of words, up to 1; 0 if they differ."""
    words, others = _split(name), _split(candidate)
    if "".join(words) == "".join(others):
        return 1.0
    if len(words) != len(others):
        return 0.0
    ratios = (difflib.SequenceMatcher(None, *pair).ratio() for pair in zip(words, others, strict=True))
    least = min(ratios)
    return least if least >= _MIN_LIKENESS else 0.0


def _split(name: str) -> list[str]:
    return re.split("[_-]+", name.lower())
