"""Every configuration option that the documentation names exists, and every example can be loaded."""

from __future__ import annotations

import configparser
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ferroscope.config.load import OPTIONS, ConfigurationError, load
from tests.fast.docs.pages import pages

_NAMED = re.compile(r"\[([a-z_]+)\] ([a-z_]+)")
_ENVIRONMENT = re.compile(r"\bOS_([A-Z]+)__([A-Z_]+)\b")
# What stands for any section and option.
_PLACEHOLDERS = {("section", "option")}
# Options of ironic.conf; those of [ferroscope] are declared in ironic-interface.
_OF_IRONIC = {
    ("conductor", "inspect_wait_timeout"), ("ferroscope", "outage_timeout"), ("ferroscope", "status_check_period"),
}  # fmt: skip

NAMES = {(section, option.dest) for section, options in OPTIONS.items() for option in options}


def _parser() -> configparser.ConfigParser:
    return configparser.ConfigParser(interpolation=None, strict=False)  # some options may be repeated


def _named() -> Iterator[tuple[str, str, str]]:
    """Yield page, section and option of each mention, in a text or as an environment variable."""
    for source in pages():
        found = _NAMED.findall(source.text)
        found += [(section.lower(), option.lower()) for section, option in _ENVIRONMENT.findall(source.text)]
        for section, option in dict.fromkeys(found):
            if (section, option) not in _PLACEHOLDERS | _OF_IRONIC:
                yield source.name, section, option


def _examples() -> Iterator[tuple[str, str]]:
    """Yield page and text of each example of our own configuration file."""
    for source in pages():
        for block in source.blocks:
            if block.language == "ini" and _sections(block.text) & OPTIONS.keys():
                yield source.name, block.text


def _sections(text: str) -> set[str]:
    parser = _parser()
    parser.read_string(text)
    return set(parser.sections())


@pytest.mark.parametrize(("name", "section", "option"), list(_named()))
def test_options_that_are_named_exist(name: str, section: str, option: str) -> None:
    assert (section, option) in NAMES, f"{name} names [{section}] {option}"


@pytest.mark.parametrize(("name", "text"), list(_examples()))
def test_examples_have_known_options_and_can_be_loaded(name: str, text: str, tmp_path: Path) -> None:
    parser = _parser()
    parser.read_string(text)
    used = {(section, option) for section in parser.sections() for option in parser[section]}
    assert used <= NAMES, f"{name}: {used - NAMES}"
    file = tmp_path / "ferroscope.conf"
    file.write_text(text, encoding="utf-8")
    load([str(file)])


def test_a_value_that_is_not_possible_is_found(tmp_path: Path) -> None:
    file = tmp_path / "ferroscope.conf"
    file.write_text("[worker]\ninterrupted = never\n", encoding="utf-8")
    with pytest.raises(ConfigurationError):
        load([str(file)])


def test_there_are_mentions_and_examples_to_check() -> None:
    assert len(list(_named())) > 20
    assert len(list(_examples())) >= 4
