"""Every configuration option that the documentation names exists, and every example can be loaded."""

from __future__ import annotations

import configparser
import re
from collections.abc import Iterator
from pathlib import Path

from ferroscope.config.load import ConfigurationError, load
from ferroscope.config.sections import options as declared_options
from tests.fast.docs.pages import Page, pages
from tests.support import misses

_NAMED = re.compile(r"\[([a-z_]+)\] ([a-z_]+)")
_ENVIRONMENT = re.compile(r"\bOS_([A-Z]+)__([A-Z_]+)\b")
# What stands for any section and option, and one of a part that a page writes.
_PLACEHOLDERS = {("section", "option"), ("greeter", "word")}
# Options of ironic.conf; those of [ferroscope] are declared in ironic-interface.
_OF_IRONIC = {
    ("conductor", "inspect_wait_timeout"), ("ferroscope", "outage_timeout"), ("ferroscope", "status_check_period"),
}  # fmt: skip

NAMES = {(section, option.dest) for section, options in declared_options().items() for option in options}


def _parser() -> configparser.ConfigParser:
    return configparser.ConfigParser(interpolation=None, strict=False)  # some options may be repeated


def _named() -> Iterator[tuple[Page, str, str]]:
    """Yield page, section and option of each mention, in a text or as an environment variable."""
    for source in pages():
        found = _NAMED.findall(source.text)
        found += [(section.lower(), option.lower()) for section, option in _ENVIRONMENT.findall(source.text)]
        for section, option in dict.fromkeys(found):
            if (section, option) not in _PLACEHOLDERS | _OF_IRONIC:
                yield source, section, option


def _examples() -> Iterator[tuple[Page, str]]:
    """Yield page and text of each example of our own configuration file."""
    for source in pages():
        for block in source.blocks:
            if block.language == "ini" and _sections(block.text) & declared_options().keys():
                yield source, block.text


def _sections(text: str) -> set[str]:
    parser = _parser()
    parser.read_string(text)
    return set(parser.sections())


def test_options_that_are_named_exist() -> None:
    misses.none(
        f"{source.at(f'[{section}] {option}')}: there is no option [{section}] {option}"
        for source, section, option in _named()
        if (section, option) not in NAMES
    )


def test_examples_have_known_options_and_can_be_loaded(tmp_path: Path) -> None:
    file = tmp_path / "ferroscope.conf"
    misses.none(f"{source.at(text)}: {wrong}" for source, text in _examples() for wrong in _refused(text, file))


def test_a_value_or_an_option_that_is_not_possible_is_found(tmp_path: Path) -> None:
    file = tmp_path / "ferroscope.conf"
    assert list(_refused("[worker]\ninterrupted = never\n", file))
    assert list(_refused("[worker]\nno_such_option = 1\n", file))
    assert not list(_refused("[worker]\ninterrupted = error\n", file))


def _refused(text: str, file: Path) -> Iterator[str]:
    """Tell why an example cannot be the configuration, which is written to ``file``."""
    file.write_text(text, encoding="utf-8")
    try:
        load([str(file)])
    except ConfigurationError as exc:
        yield str(exc)
