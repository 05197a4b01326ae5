"""What one section of the configuration leaves to another one."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from ferroscope.config import load as loading
from ferroscope.config.load import load
from ferroscope.config.options import DatabaseSettings
from ferroscope.db import location


@pytest.mark.parametrize(
    ("text", "unknown"),
    [
        ("", "deny"),
        ("[auto_discovery]\nenabled = true\n", "allow"),
        ("[pxe_filter]\nunknown_hosts = allow\n", "allow"),
        ("[pxe_filter]\nunknown_hosts = deny\n[auto_discovery]\nenabled = true\n", "deny"),
    ],
)
def test_unknown_machines_boot_where_they_are_discovered_unless_the_pxe_filter_is_told_otherwise(
    tmp_path: Path, text: str, unknown: str
) -> None:
    file = tmp_path / "f.conf"
    file.write_text(text)
    assert load([str(file)]).pxe_filter.unknown_hosts == unknown


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return where the system's own service would have its state; we are an ordinary user with a home directory."""
    monkeypatch.setattr(loading, "STATE_DIRECTORY", tmp_path / "var")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("HOME", str(tmp_path / "me@corp"))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    return tmp_path / "var"


def test_without_a_connection_each_user_has_one_database_wherever_a_command_is_run(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert load([]).database.connection == f"sqlite:///{tmp_path}/me@corp/.local/state/ferroscope/ferroscope.db"
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    assert loading.default_database() == tmp_path / "me@corp/.local/state/ferroscope/ferroscope.db"
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg"))
    assert loading.default_database() == tmp_path / "xdg/ferroscope/ferroscope.db"
    state.mkdir()  # as the service's user, whose directory this is
    assert loading.default_database() == state / "ferroscope.db"
    state.rmdir()
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert loading.default_database() == state / "ferroscope.db"


@pytest.mark.parametrize("end", ["\n", "\r", " \r\n"])
def test_the_end_of_the_line_that_a_variable_was_made_of_is_no_part_of_its_value(
    monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """As of a secret that was made with echo, or of a file of variables that was written on Windows."""
    for name, value in (("DATABASE__CONNECTION", "sqlite:////data/f.db"), ("API__AUTH_STRATEGY", "http_basic"),
                        ("API__HOST", "192.0.2.1, 192.0.2.2"), ("API__BARE_METAL_PORT", "1")):  # fmt: skip
        monkeypatch.setenv(f"OS_{name}", f" {value}{end}")
    settings = load([])
    assert settings.database.connection == "sqlite:////data/f.db"
    assert (settings.api.auth_strategy, settings.api.bare_metal_port) == ("http_basic", 1)
    assert settings.api.host == ("192.0.2.1", "192.0.2.2")
    assert location.file_of(DatabaseSettings(connection=f"sqlite:////data/f.db{end}")) == Path("/data/f.db")


def test_a_user_without_a_home_is_told_what_to_set(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container whose user is a number, and in the unit of such a user."""
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)
    database = load([]).database
    assert database.connection == f"sqlite:///{state}/ferroscope.db"
    state.write_text("")  # where nobody can make a directory, not even root
    with pytest.raises(OSError, match=rf"{state}: File exists; set \[database\] connection"):
        location.make_directory(database)
    elsewhere = DatabaseSettings(connection="sqlite:////data/f.db")
    location.make_directory(elsewhere)
    assert location.left_behind(elsewhere) is None


def test_a_database_of_an_earlier_release_in_this_directory_is_named_and_not_used(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ferroscope.db").touch()
    settings = load([]).database
    location.make_directory(settings)
    assert (tmp_path / "me@corp/.local/state/ferroscope").stat().st_mode & 0o777 == 0o700
    assert location.left_behind(settings) == tmp_path / "ferroscope.db"
    found = load([], {"database.connection": f"sqlite:///{tmp_path}/other.db"}).database
    assert location.left_behind(found) is None, "whoever names a database knows what they want"
    state.mkdir()
    monkeypatch.chdir(state)  # as the units' WorkingDirectory: what was the default is the default
    (state / "ferroscope.db").touch()
    assert location.left_behind(load([]).database) is None


@pytest.mark.usefixtures("state")
def test_a_working_directory_that_was_deleted_has_no_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert location.left_behind(load([]).database) is None
    assert location.left_behind(DatabaseSettings(connection="sqlite:////data/f.db")) is None


@pytest.mark.parametrize(
    ("lines", "silent"),
    [
        ("", True),
        ("[inspector]\nrequire_managed_boot = false\n", False),
        ("[inspector]\nrequire_managed_boot = true\n", False),
        ("[inspector]\nramdisk_iso = http://192.0.2.1/r.iso\n", False),
        ("[boot]\nmachine_script_url = http://192.0.2.1:6385/v1/boot.ipxe\n", False),
        ("[boot]\nhosts = boot1\n", False),
        ("[pxe_filter]\ninterfaces = eth1\n", False),
    ],
)
def test_an_unmanaged_boot_is_silent_only_where_no_option_says_who_serves_the_network(
    tmp_path: Path, lines: str, silent: bool
) -> None:
    (tmp_path / "f.conf").write_text(lines)
    assert load([str(tmp_path / "f.conf")]).boots_unmanaged_by_silence is silent


@pytest.mark.parametrize(
    ("lines", "hidden"),
    [
        ("", True),
        ("[api]\nhost = 192.0.2.1\n", False),
        ("[api]\nhost = localhost,192.0.2.1\n", False),
        ("[api]\nhost = ::1, 127.0.0.2\n", True),
        ("[api]\npublic_url = https://bmc.example.com/\n", False),
        ("[inspector]\ncallback_endpoint_override = http://127.0.0.1:6385\n", True),
    ],
)
def test_ramdisks_reach_the_api_only_where_it_listens_for_them_or_a_url_says_so(
    tmp_path: Path, lines: str, hidden: bool
) -> None:
    (tmp_path / "f.conf").write_text(lines)
    assert load([str(tmp_path / "f.conf")]).hidden_from_ramdisks is hidden
