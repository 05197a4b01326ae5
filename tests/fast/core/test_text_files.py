"""Files that people write: as editors on Windows save them, they say the same."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ferroscope.api.auth import certificate, http_basic, policy
from ferroscope.cli.user_file import read_lines as users_of
from ferroscope.config import followed
from ferroscope.config.load import ConfigurationError, files_with_secrets, load
from ferroscope.contracts.plugins import SecretOptions
from ferroscope.contrib.boot.setup import setup_file
from ferroscope.contrib.openstack import import_command
from ferroscope.contrib.openstack.imports.inspector_source import connection_of
from ferroscope.contrib.ramdisk import inputs
from ferroscope.contrib.ramdisk.manifest import RamdiskError
from ferroscope.hooks import pci
from ferroscope.secrets.file import FileSource
from ferroscope.secrets.keys import KeyRing
from ferroscope_client import credentials
from ferroscope_client.cli.node import bulk
from ferroscope_client.core.text_files import NotTextError, lines_of, text_of
from ferroscope_client.errors import Failure

Saved = Callable[[str], bytes]
SAVED: dict[str, Saved] = {
    "UTF-8 with a mark": lambda text: text.encode("utf-8-sig"),
    "UTF-8 with a mark, CRLF": lambda text: text.replace("\n", "\r\n").encode("utf-8-sig"),
    "UTF-16": lambda text: text.replace("\n", "\r\n").encode("utf-16"),
    "UTF-16 without a mark": lambda text: text.encode("utf-16-le"),
}
HASH = "$2y$05$" + "a" * 53
KEY = base64.urlsafe_b64encode(bytes(32)).decode()
CONFIGURATION = "[api]\nbare_metal_port = 7385\n[database]\nconnection = postgresql://a:b@c/d\n"
PCI = "pci_devices:\n- vendor_id: '10de'\n  device_id: '1eb8'\n  type: GPU\n  device_info: Tesla\n"


def _users(file: Path) -> Any:
    return sorted(http_basic.parse(followed.read_text(file))), users_of(file)


def _roles(file: Path) -> Any:
    return sorted(certificate.parse(followed.read_text(file)))


def _settings(file: Path) -> Any:
    settings = load([str(file)])
    return settings.api.bare_metal_port, settings.database.connection, files_with_secrets([str(file)]) == [file]


def _token(file: Path) -> Any:
    found = credentials.from_environment("http://localhost", {"FERROSCOPE_TOKEN_FILE": str(file), "HOME": "/x"})
    return found.headers()


def _from_credentials_file(file: Path) -> Any:
    return credentials._from_file(file, "http://localhost:6385").headers()


def _nodes(file: Path) -> Any:
    with file.open("rb") as stream:
        return [(row.fields, row.macs) for row in bulk._read_rows(stream, "csv", None)]


READERS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "configuration": (_settings, CONFIGURATION),
    "set-up": (lambda file: setup_file.old_text(file, add=True, replace=False)[1] is not None, CONFIGURATION),
    "inspector's configuration": (lambda file: connection_of(str(file)), CONFIGURATION),
    "users": (_users, f"admin:{HASH}:admin\nother:{HASH}\n"),
    "roles of certificates": (_roles, "DNS:a.example.org:admin\n# x\nCN:b:reader\n"),
    "policy": (lambda file: policy.overrides(str(file)), "a:b: role:admin\n'c': '!'\n"),
    "keys": (lambda file: [key.id for key in KeyRing(file).keys], f"{KEY}\n"),
    "token": (_token, "frs_abc\n"),
    "credentials": (_from_credentials_file, "[http://localhost:6385]\nusername = u\npassword = p\n"),
    "driver_info": (import_command._driver_info, "node-1,ipmi_password,secret\nnode-2,ipmi_password,s\n"),
    "nodes": (_nodes, "name;driver;macs\nä;redfish;52:54:00:00:00:01\n"),
    "accelerators": (lambda file: sorted(pci._known_accelerators(str(file))), PCI),
    "secret": (lambda file: FileSource(SecretOptions(file_directory=str(file.parent))).resolve(file.name), "pa55\n"),
}


@pytest.mark.parametrize("saved", SAVED.values(), ids=SAVED)
@pytest.mark.parametrize("name", READERS)
def test_a_file_says_the_same_however_an_editor_saves_it(tmp_path: Path, name: str, saved: Saved) -> None:
    read, text = READERS[name]
    found = []
    for content in (text.encode(), saved(text)):
        file = tmp_path / "file"
        file.write_bytes(content)
        file.chmod(0o600)
        os.utime(file)
        found.append(read(file))
    assert found[1] == found[0]
    assert found[0]


def test_a_file_in_another_encoding_says_in_which_line(tmp_path: Path) -> None:
    file = tmp_path / "ferroscope.conf"
    file.write_bytes(b"[api]\n# Caf\xe9\nhost = 127.0.0.1\n")
    with pytest.raises(ConfigurationError, match=r"ferroscope\.conf: line 2 is not in UTF-8 or UTF-16"):
        load([str(file)])
    with pytest.raises(followed.ConfigFileError, match="line 2"):
        followed.read_text(file)
    with pytest.raises(Failure, match="line 2"):
        _token(file)
    with pytest.raises(NotTextError, match="line 1"):
        text_of(b"\xff\xfea")


def test_what_is_unknown_in_a_file_with_a_mark_is_said_at_its_line(tmp_path: Path) -> None:
    file = tmp_path / "ferroscope.conf"
    file.write_bytes(b"\xef\xbb\xbf[apis]\r\nhost = 127.0.0.1\r\n")
    with pytest.raises(ConfigurationError, match=r"ferroscope\.conf:1: unknown section \[apis\]; did you mean \[api\]"):
        load([str(file)])


def test_only_line_breaks_end_lines() -> None:
    assert lines_of("a\x0cb\u2028c\r\nd\re\n".encode()) == ["a\x0cb\u2028c", "d", "e"]
    assert lines_of(b"") == []


@pytest.mark.parametrize("content", [b"\xef\xbb\xbf#!/bin/sh\necho\n", b"#!/bin/sh\r\necho\r\n"])
def test_a_script_that_no_kernel_runs_is_refused_before_it_is_in_a_ramdisk(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "10-settings").write_bytes(content)
    with pytest.raises(RamdiskError, match="Windows") as caught:
        inputs.hooks(tmp_path)
    assert "dos2unix" in caught.value.advice


def test_a_public_key_with_a_mark_is_one(tmp_path: Path) -> None:
    file = tmp_path / "key.pub"
    file.write_bytes(b"\xef\xbb\xbfssh-ed25519 AAAA me@example.org\r\n")
    assert inputs.ssh_key(file).content.startswith(b"ssh-ed25519 ")
