"""The mirror that this host's own apt uses is that of a build: its files of sources, as apt itself reads them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ferroscope.contrib.ramdisk import mirrors
from ferroscope.contrib.ramdisk.manifest import RamdiskError
from ferroscope.contrib.ramdisk.mirrors import Mirrors
from ferroscope.contrib.ramdisk.plan import BuildPlan

_LINES = """\
deb [arch=amd64] https://mirror.example.org/debian bookworm main contrib
deb-src https://source.example.org/debian bookworm main
deb https://mirror.example.org/debian bookworm-updates main
deb https://mirror.example.org/debian-security/ bookworm-security main
"""
_PARAGRAPHS = """\
Types: deb
Enabled: no
URIs: https://off.example.org/debian
Suites: bookworm bookworm-updates
Components: main

Types: deb-src deb
URIs: https://mirror.example.org/debian
Suites: bookworm bookworm-updates
Components: main non-free-firmware

Types: deb
URIs: https://mirror.example.org/debian-security
Suites: bookworm-security
Components: main
"""


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory for this host's sources, of which the real apt-get says what it reads in them."""
    place = tmp_path / "sources.list.d"
    place.mkdir()
    program = tmp_path / "bin" / "apt-get"
    program.parent.mkdir()
    settings = f"-oDir::Etc::sourcelist=/dev/null -oDir::Etc::sourceparts={place} -oDir::State={tmp_path}"
    program.write_text(f'#!/bin/sh\nexec /usr/bin/apt-get {settings} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    return place


@pytest.mark.parametrize(("name", "text"), [("a.list", _LINES), ("a.sources", _PARAGRAPHS)])
def test_both_kinds_of_files_are_read(host: Path, name: str, text: str) -> None:
    (host / name).write_text(text)
    found = mirrors.of(BuildPlan())
    assert found == Mirrors("https://mirror.example.org/debian", "https://mirror.example.org/debian-security")


def test_sources_that_apt_cannot_read_are_said_in_one_line(host: Path) -> None:
    (host / "a.list").write_text("deb http://me:hush@mirror.example.org\n")
    with pytest.raises(RamdiskError) as caught:
        mirrors.of(BuildPlan())
    assert "--mirror URL" in caught.value.advice
    assert "\n" not in caught.value.summary
    assert "hush" not in caught.value.summary


def test_so_is_a_host_without_apt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirrors, "search_path", lambda: str(tmp_path))
    with pytest.raises(RamdiskError) as caught:
        mirrors.of(BuildPlan())
    assert "--mirror URL" in caught.value.advice
