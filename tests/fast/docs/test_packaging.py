"""What the packages get from the declarations: man pages, shell completion and the commented configuration."""

from __future__ import annotations

import os
import re
import tarfile
import tomllib
from collections import Counter
from pathlib import Path

import click
import pytest

from ferroscope.config.load import load, unknown_options
from ferroscope.config.sections import options as declared_options
from ferroscope_client.cli.main import commands
from tests.fast.docs.pages import pages
from tools.docs.declarations import sample
from tools.packaging import contents, licenses, man_pages
from tools.packaging.archive import archive

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
    for manual in (share / "man/man1").iterdir():
        controls = [line for line in manual.read_text().splitlines() if line.startswith((".", "'"))]
        assert {line.split()[0] for line in controls} <= MACROS, manual.name


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
    newer = {pin.partition("==")[0] for pin in contents.pins("3.13") if not pin.startswith("#")}
    assert newer - names == {"legacy-cgi"}
    assert names - newer == {"async-timeout"}


def test_every_package_has_a_license_that_debians_tools_can_read() -> None:
    paragraphs = licenses.copyright_file(Path(click.__file__).parents[1]).split("\n\n")
    packages = {text for text in paragraphs if text.startswith("Files: ")}
    names = {re.search(r"^License: (.*)$", text, re.MULTILINE)[1] for text in packages}
    assert len(packages) > 50
    assert {"unknown", "UNKNOWN", ""} & names == set()
    assert [name for name in names if not re.fullmatch(r"[\w.-]+( (or|and) [\w.-]+)*", name)] == []
    patterns = [word for text in packages for word in text.partition("\nCopyright:")[0].split()[1:]]
    assert [pattern for pattern, count in Counter(patterns).items() if count > 1] == []
    assert {text.partition("\n")[0] for text in paragraphs} >= {"License: Apache-2.0", "License: MPL-2.0"}


def test_an_unpacked_source_distribution_is_built_with_the_time_of_its_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    monkeypatch.setattr(contents, "ROOT", tmp_path)
    (tmp_path / "PKG-INFO").touch()
    os.utime(tmp_path / "PKG-INFO", (1000000000, 1000000000))
    assert contents.build_time() == 1000000000


def test_an_archive_depends_on_names_and_contents_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1000000000")
    archives = []
    for number, umask in enumerate((0o022, 0o077)):
        before = os.umask(umask)
        root = tmp_path / str(number) / "site"
        (root / "below").mkdir(parents=True)
        (root / "below/page.html").write_text("text")
        os.umask(before)
        archives.append(tmp_path / f"{number}.tar.gz")
        archive(root, archives[-1])
    assert archives[0].read_bytes() == archives[1].read_bytes()
    with tarfile.open(archives[0]) as tar:
        assert tar.getnames() == ["site/below", "site/below/page.html"]


def test_the_packages_beside_this_one_are_of_the_same_release() -> None:
    """They are released in its source distribution only."""
    beside = {path.parent.name: tomllib.loads(path.read_text()) for path in contents.ROOT.glob("*/pyproject.toml")}
    assert {"client-plugin", "ironic-interface"} <= set(beside)
    versions = {one["project"].get("version", contents.VERSION) for one in beside.values()}
    assert versions == {contents.VERSION}  # the client's is also the service's


def test_the_source_distribution_has_every_package_that_pages_install_from_it() -> None:
    kept = re.findall(r"^graft (\S+)$", (contents.ROOT / "MANIFEST.in").read_text(), re.MULTILINE)
    installed = {name for one in pages() for name in re.findall(r"pip install \./([a-z-]+)(?=[`\s])", one.text)}
    assert installed
    assert installed <= set(kept)
