"""What a build takes from the environment of its caller, and what it says of a program that failed."""

from __future__ import annotations

import os
from collections.abc import Mapping

import pytest

from ferroscope.contrib.ramdisk import agent
from ferroscope.contrib.ramdisk.programs import fixed_environment, known_advice, reason
from tests.support.rows import each

_OURS = {"PATH": "/usr/bin", "SOURCE_DATE_EPOCH": "1700000000"}


def _environment(monkeypatch: pytest.MonkeyPatch, variables: Mapping[str, str]) -> dict[str, str]:
    for name in list(os.environ):
        monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return fixed_environment(_OURS)


def test_it_is_the_same_for_everybody(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = _environment(monkeypatch, {"HOME": "/root"})
    others = {
        "HOME": "/home/other", "TZ": "Asia/Kolkata", "LANG": "tr_TR", "LC_ALL": "tr_TR", "APT_CONFIG": "/etc/other",
        "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "7", "SOURCE_DATE_EPOCH": "5", "PATH": "/opt/bin",
    }  # fmt: skip
    assert _environment(monkeypatch, others) == mine
    assert mine["SOURCE_DATE_EPOCH"] == _OURS["SOURCE_DATE_EPOCH"]


@pytest.mark.parametrize("name", ["http_proxy", "https_proxy", "no_proxy", "HTTPS_PROXY", "SSL_CERT_FILE"])
def test_how_servers_are_reached_is_passed_on(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    assert _environment(monkeypatch, {name: "http://proxy:3128"})[name] == "http://proxy:3128"


@each("name", ["PIP_INDEX_URL", "PIP_CONFIG_FILE", "HOME", "REQUESTS_CA_BUNDLE"])
def test_pip_has_its_settings_too(name: str) -> None:
    assert agent.SETTINGS.fullmatch(name)
    assert not agent.SETTINGS.fullmatch(f"X{name}")


@each("name", ["PYTHONPATH", "TZ", "PIP_"])
def test_and_not_those_of_others(name: str) -> None:
    assert not agent.SETTINGS.fullmatch(name)


@each(
    ("printed", "why"),
    [
        (
            "I: extracting\nE: Failed to fetch http://m/x  404  Not Found\nE: run exited\n",
            "Failed to fetch http://m/x 404 Not Found",
        ),
        ("ERROR: No version for x==99 (from versions: 1.0, 2.0)\nERROR: nothing for x==99\n", "No version for x==99"),
        ("all was well\nbut not this\n", "but not this"),
        (
            "E: first\ntar: x: Cannot write: No space left on device\ntar: exiting\n",
            "tar: x: Cannot write: No space left on device",
        ),
        ("FATAL ERROR: cannot open it\nclosing\n", "cannot open it"),
        ("", "exit code 3"),
    ],
)
def test_the_reason_of_a_failure_is_a_full_disk_or_the_first_error_or_the_last_line(printed: str, why: str) -> None:
    assert reason(printed, 3) == why


@each(
    ("why", "word"),
    [
        ("Unable to locate package fio2", "--extra-package"),
        ("Version '9' for 'fio' was not found", "--extra-package"),
        ("Failed to fetch http://m/fio.deb 404 Not Found [IP: 192.0.2.1 80]", "--mirror"),
        ("cannot write: No space left on device", "room"),
        ("You don't have enough free space in /var/cache/apt/archives/.", "room"),
    ],
)
def test_what_is_known_of_a_reason_is_said(why: str, word: str) -> None:
    assert word in known_advice(why)
    assert not known_advice("command failed: chroot")
