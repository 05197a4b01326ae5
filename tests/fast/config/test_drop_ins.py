"""Drop-ins: FILE.d/*.conf beside a configuration file override it, in the order of their names."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ferroscope.config import load as loading
from ferroscope.config.load import ConfigurationError, files_with_secrets, load, unknown_options


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "ferroscope.conf.d").mkdir()
    return tmp_path / "ferroscope.conf"


def _write(path: Path, *lines: str) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def test_drop_ins_override_the_file_in_the_order_of_their_names(file: Path) -> None:
    _write(file, "[worker]", "graceful_timeout = 11", "[api]", "bare_metal_port = 1001")
    _write(Path(f"{file}.d", "20-later.conf"), "[worker]", "graceful_timeout = 13")
    _write(
        Path(f"{file}.d", "10-earlier.conf"), "[worker]", "graceful_timeout = 12", "[boot]", "callback_url = http://a/"
    )
    settings = load([str(file)])
    assert (settings.worker.graceful_timeout, settings.api.bare_metal_port) == (13, 1001)
    assert settings.boot.callback_url == "http://a/"


def test_they_belong_to_the_file_before_the_next_one_of_the_command_line(file: Path, tmp_path: Path) -> None:
    _write(Path(f"{file}.d", "a.conf"), "[worker]", "graceful_timeout = 12")
    own = _write(tmp_path / "own.conf", "[worker]", "graceful_timeout = 14")
    _write(file)
    assert load([str(file), str(own)]).worker.graceful_timeout == 14
    assert load([str(own), str(file)]).worker.graceful_timeout == 12


def test_the_default_file_need_not_exist_beside_its_drop_ins(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "CONFIG_FILES", (str(file),))
    assert load() == load([])
    _write(Path(f"{file}.d", "a.conf"), "[worker]", "graceful_timeout = 12")
    assert load().worker.graceful_timeout == load([str(file)]).worker.graceful_timeout == 12
    shutil.rmtree(f"{file}.d")
    with pytest.raises(ConfigurationError, match="no such configuration file"):
        load([str(file)])


@pytest.mark.parametrize("name", ["a.conf.dpkg-dist", "a.conf~", ".a.conf", "a"])
def test_editors_and_packages_leave_files_there_that_are_not_read(file: Path, name: str) -> None:
    _write(file)
    _write(Path(f"{file}.d", name), "[worker]", "graceful_timeout = 12")
    assert load([str(file)]) == load([])


def test_errors_name_the_file_and_the_line(file: Path) -> None:
    _write(file, "[worker]", "graceful_timeout = 12")
    drop_in = _write(Path(f"{file}.d", "a.conf"), "", "[worker]", "graceful_timeout = soon", "graceful_timout = 1")
    with pytest.raises(ConfigurationError) as refusal:
        load([str(file)])
    assert [f"{drop_in}:{line}" in problem for line, problem in zip((4, 3), refusal.value.problems, strict=True)] == [
        True,
        True,
    ]
    assert [f"{drop_in}:4" in option.summary for option in unknown_options([str(file)])] == [True]
    _write(drop_in, "[worker")
    with pytest.raises(ConfigurationError, match=rf"{drop_in}:1"):
        load([str(file)])


def test_a_password_in_a_drop_in_is_noticed(file: Path) -> None:
    _write(file)
    drop_in = _write(Path(f"{file}.d", "a.conf"), "[database]", "connection = postgresql://u:secret@h/n")
    assert files_with_secrets([str(file)]) == [drop_in]


def test_a_directory_that_cannot_be_listed_is_an_error_and_not_an_empty_one(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Path) -> None:
        raise PermissionError(13, "Permission denied")

    _write(file)
    monkeypatch.setattr(Path, "iterdir", refuse)
    with pytest.raises(ConfigurationError, match=r"ferroscope\.conf\.d: Permission denied"):
        load([str(file)])
