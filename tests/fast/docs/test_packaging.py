"""What the packages get from the declarations: man pages, shell completion and the commented configuration."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ferroscope.cli.main import commands
from ferroscope.config.load import load, unknown_options
from ferroscope.config.sections import options as declared_options
from tools.docs.declarations import sample
from tools.packaging import contents, man_pages

MACROS = {".TH", ".SH", ".SS", ".B", ".BR", ".I", ".TP", ".PP"}
SET = re.compile(r"^#(\w+) = (?=.)", re.MULTILINE)


@pytest.fixture(scope="module")
def share(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("share")
    man_pages.write(directory, 0)
    return directory


def test_every_command_has_a_man_page_with_its_options(share: Path) -> None:
    names = {page.stem for page in (share / "man/man1").iterdir()}
    assert names == {"ferroscope", *(f"ferroscope-{name}" for name in commands())}
    node = (share / "man/man1/ferroscope-node.1").read_text()
    assert '.SS "ferroscope node create' in node
    assert "\\-\\-dry\\-run" in node


def test_no_text_in_a_man_page_is_taken_for_a_macro(share: Path) -> None:
    for page in (share / "man/man1").iterdir():
        for line in page.read_text().splitlines():
            assert not line.startswith("'"), f"{page.name}: {line}"
            assert not line.startswith(".") or line.split()[0] in MACROS, f"{page.name}: {line}"


def test_the_commented_configuration_changes_nothing_and_names_every_option(tmp_path: Path) -> None:
    file = tmp_path / "ferroscope.conf"
    file.write_text(sample())
    assert load([str(file)]) == load([])
    for section, options in declared_options().items():
        body = sample().partition(f"\n[{section}]\n")[2].partition("\n[")[0]
        assert [option.name for option in options if f"\n#{option.name} =" not in body] == []


def test_its_defaults_are_valid_values_that_mean_the_same(tmp_path: Path) -> None:
    file = tmp_path / "ferroscope.conf"
    file.write_text(SET.sub(r"\1 = ", sample()))
    assert unknown_options([str(file)]) == []
    assert load([str(file)]) == load([])


def test_the_packages_are_those_for_debians_python_whichever_python_builds() -> None:
    names = {pin.partition("==")[0] for pin in contents.pins() if not pin.startswith("#")}
    assert "async-timeout" in names  # before Python 3.11.3
    assert "legacy-cgi" not in names  # since Python 3.13
    assert all("--hash=sha256:" in pin and ";" not in pin for pin in contents.pins() if "==" in pin)
