"""The key file, and what its keys encrypt."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest

from ferroscope.config.followed import ConfigFileError
from ferroscope.contracts.errors import SecretKeyError
from ferroscope.secrets.keys import DecryptionError, KeyRing, key_id, new_key, place

NODE, OTHER = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"
FIELD = ("driver_info", "redfish_password")


def key_file(directory: Path, *lines: str, mode: int = 0o600) -> Path:
    file = directory / "keys"
    file.write_text("".join(f"{line}\n" for line in lines))
    file.chmod(mode)
    return file


@pytest.mark.parametrize("value", ["geheim", "pässwörd\n", 123456, {"user": "a", "keys": [1]}, ["x"]])
def test_what_was_encrypted_is_decrypted_as_it_was(tmp_path: Path, value: object) -> None:
    ring = KeyRing(key_file(tmp_path, "# a comment", new_key()))
    text = ring.encrypt(value, NODE, FIELD)
    assert ring.decrypt(text, NODE, FIELD) == value
    assert ring.encrypt(value, NODE, FIELD) != text
    assert key_id(text) == ring.keys[0].id
    assert "geheim" not in text


def test_a_ciphertext_is_of_no_use_on_another_node_or_in_another_field(tmp_path: Path) -> None:
    ring = KeyRing(key_file(tmp_path, new_key()))
    text = ring.encrypt("geheim", NODE, FIELD)
    for uuid, position in ((OTHER, FIELD), (NODE, ("driver_info", "note")), (NODE, ("instance_info", FIELD[1]))):
        with pytest.raises(DecryptionError):
            ring.decrypt(text, uuid, position)


def test_a_changed_ciphertext_is_refused(tmp_path: Path) -> None:
    ring = KeyRing(key_file(tmp_path, new_key()))
    version, ident, data = ring.encrypt("geheim", NODE, FIELD).split(".")
    raw = bytearray(base64.urlsafe_b64decode(data))
    raw[20] ^= 1
    for text in (f"{version}.{ident}.{base64.urlsafe_b64encode(raw).decode()}", f"{version}.{ident}.", f"v9.{ident}.x"):
        with pytest.raises(DecryptionError):
            ring.decrypt(text, NODE, FIELD)


def test_every_key_decrypts_and_the_first_one_encrypts(tmp_path: Path) -> None:
    old, new = new_key(), new_key()
    text = KeyRing(key_file(tmp_path, old)).encrypt("geheim", NODE, FIELD)
    ring = KeyRing(key_file(tmp_path, new, old))
    assert ring.decrypt(text, NODE, FIELD) == "geheim"
    assert ring.encrypt("geheim", NODE, FIELD).split(".")[1] == ring.keys[0].id != key_id(text)


def test_a_key_that_is_missing_is_named(tmp_path: Path) -> None:
    text = KeyRing(key_file(tmp_path, new_key())).encrypt("geheim", NODE, FIELD)
    for ring in (KeyRing(key_file(tmp_path, new_key())), KeyRing()):
        with pytest.raises(SecretKeyError, match=key_id(text)):
            ring.decrypt(text, NODE, FIELD)
        with pytest.raises(SecretKeyError, match=key_id(text)):
            ring.check([key_id(text)])


def test_a_change_of_the_file_needs_no_restart_and_a_broken_one_changes_nothing(tmp_path: Path) -> None:
    first = new_key()
    file = key_file(tmp_path, first)
    ring = KeyRing(file)
    old = ring.keys
    file.write_text("broken\n" * 5)
    assert ring.keys == old
    file.unlink()
    assert ring.keys == old
    key_file(tmp_path, new_key(), first)
    assert [key.id for key in ring.keys][1:] == [key.id for key in old]


def test_identity_first_decrypts_without_encrypting(tmp_path: Path) -> None:
    line = new_key()
    text = KeyRing(key_file(tmp_path, line)).encrypt("geheim", NODE, FIELD)
    ring = KeyRing(key_file(tmp_path, "identity", line))
    assert ring.active is None
    assert ring.decrypt(text, NODE, FIELD) == "geheim"


@pytest.mark.parametrize("content", ["", "# nothing\n", "c2hvcnQ=\n", "not base64!\n", "\u00e4\n"])
def test_a_file_without_a_valid_key_is_refused_and_not_quoted(tmp_path: Path, content: str) -> None:
    file = key_file(tmp_path, content.rstrip("\n"))
    with pytest.raises(ConfigFileError) as caught:
        KeyRing(file)
    assert not content.strip() or content.strip() not in str(caught.value)
    assert caught.value.advice


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666])
def test_a_file_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(ConfigFileError):
        KeyRing(key_file(tmp_path, new_key(), mode=mode))


def test_a_systemd_credential_is_found_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key_file(tmp_path, new_key(), mode=0o440)  # as systemd may create it, in a directory of the service's own
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", os.fspath(tmp_path))
    assert len(KeyRing(place("keys")).keys) == 1
    assert place("/etc/ferroscope/keys") == Path("/etc/ferroscope/keys")
