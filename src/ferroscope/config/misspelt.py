"""Options that are written down but do not exist: oslo.config ignores them, an operator should know.

A warning and no error: while a new release is rolled out, one configuration serves two releases.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from oslo_config import cfg

_VARIABLE: Final = re.compile(r"OS_([A-Z_]+?)__([A-Z0-9_]+)")


class Misspelt(NamedTuple):
    """What does not exist, and what may have been meant."""

    summary: str
    advice: str

    def __str__(self) -> str:
        return f"{self.summary}; {self.advice}"


def misspelt(
    files: Iterable[str], environment: Mapping[str, str], known: Mapping[str, Iterable[str]]
) -> Iterator[Misspelt]:
    """Yield each section or option that is not ``known`` (section -> its options)."""
    for file in files:
        for section, options in parsed(file).items():
            if section not in known:
                yield Misspelt(f"{file}: there is no section [{section}]", _closest(section, known, "[{}]"))
                continue
            for option in options:
                if option not in known[section]:
                    yield Misspelt(
                        f"{file}: [{section}] has no option {option}", _closest(option, known[section], "{}")
                    )
    for name in sorted(environment):
        found = _VARIABLE.fullmatch(name)
        section, option = (found[1].lower(), found[2].lower()) if found else ("", "")
        if section in known and option not in known[section]:
            yield Misspelt(f"{name}: [{section}] has no option {option}", _closest(option, known[section], "{}"))


def parsed(file: str) -> dict[str, dict[str, Any]]:
    """Return what a file says: section -> option -> its values as they are written; nothing where there is none."""
    if not Path(file).is_file():
        return {}
    sections: dict[str, dict[str, Any]] = {}
    cfg.ConfigParser(file, sections).parse()
    return {section: options for section, options in sections.items() if options}


def _closest(word: str, known: Iterable[str], form: str) -> str:
    found = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"did you mean {form.format(found[0])}?" if found else "see docs/reference/configuration.md"
