"""The keys of ``[secrets] key_file``: encryption and decryption of the secrets in nodes.

AES-256-GCM. The associated data is the node's UUID and the value's position in it, so a ciphertext that is copied to
another node or field cannot be decrypted there. A stored value names its format and its key: ``v1.KEYID.DATA``, where
DATA is nonce and ciphertext in base64url. Source: NIST SP 800-38D.

The file is read again when it changes. A file that is then missing or invalid is ignored: the keys stay in use.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import msgspec

from ferroscope.config.errors import SetupError
from ferroscope.config.followed import ConfigFileError, Followed
from ferroscope.config.options import Settings
from ferroscope.contracts.errors import SecretKeyError
from ferroscope.core.secrets import Path as Position
from ferroscope_client.core import json_safety
from ferroscope_client.core.text_files import NotTextError, text_of

# The line of the key file that stands for "do not encrypt"; as the first one, it makes ``db rekey`` decrypt.
IDENTITY: Final = "identity"
_VERSION: Final = "v1"
_KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12
_CREDENTIALS: Final = "CREDENTIALS_DIRECTORY"


class DecryptionError(Exception):
    """The value was not encrypted for this node and field, or it was modified."""


class Key(msgspec.Struct, frozen=True):
    """A key and its ID, a digest of it; ``secret`` None stands for "do not encrypt"."""

    id: str
    secret: bytes | None = None

    def __repr__(self) -> str:
        return f"Key({self.id})"


def new_key() -> str:
    """Return a new key as a line of a key file."""
    return base64.urlsafe_b64encode(os.urandom(_KEY_BYTES)).decode()


def place(name: str) -> Path:
    """Return the path of the key file: a relative name is a systemd credential of this service, if it has any."""
    return Path(os.environ.get(_CREDENTIALS, ""), name)


def parse(text: str) -> tuple[Key, ...]:
    """Return the keys in the order of the lines; ``ConfigFileError``, which quotes nothing of the text."""
    keys = []
    for number, line in enumerate(text.splitlines(), 1):
        word = line.strip()
        if word and not word.startswith("#"):
            keys.append(Key(IDENTITY) if word == IDENTITY else _key(word, number))
    if not keys:
        raise ConfigFileError("the key file has no key", "create one: ferroscope secret generate-key FILE")
    return tuple(keys)


def _key(word: str, number: int) -> Key:
    try:
        secret = base64.urlsafe_b64decode(word.encode("ascii"))
    except (binascii.Error, UnicodeError, ValueError):
        secret = b""
    if len(secret) != _KEY_BYTES:
        raise ConfigFileError(
            f"line {number} of the key file is not a key", f"expected {_KEY_BYTES} bytes in base64url, or {IDENTITY}"
        )
    return Key(hashlib.sha256(b"ferroscope secret key" + secret).hexdigest()[:12], secret)


class KeyRing:
    """Thread-safe. Without a ``file`` there are no keys: nothing is encrypted, and nothing can be decrypted."""

    def __init__(self, file: Path | None = None) -> None:
        self.has_file = file is not None
        self._ciphers: dict[str, Any] = {}
        # Another process may use a new key at once, so each use checks the file.
        self._followed = None if file is None else Followed("keys", [file], lambda: _read(file), interval=0.0)

    @property
    def keys(self) -> tuple[Key, ...]:
        """The keys, in the order of the file."""
        return () if self._followed is None else self._followed.value

    @property
    def active(self) -> Key | None:
        """The key that encrypts; None if secrets are stored in plain text."""
        keys = self.keys
        return keys[0] if keys and keys[0].secret is not None else None

    def missing(self, used: Iterable[str]) -> list[str]:
        """Return those of the key IDs that are not in the key file."""
        present = {key.id for key in self.keys}
        return sorted(set(used) - present)

    def check(self, used: Iterable[str]) -> None:
        """Raise ``SecretKeyError`` if a key in use is missing: then the file is not the one of the other processes."""
        if missing := self.missing(used):
            raise SecretKeyError(missing, "the secret was not stored")

    def encrypt(self, value: Any, uuid: str, position: Position) -> str:
        """Return the value encrypted with the first key, which must exist."""
        key, nonce = self.keys[0], os.urandom(_NONCE_BYTES)
        sealed = self._cipher(key).encrypt(nonce, msgspec.json.encode(value), _bound_to(uuid, position))
        return f"{_VERSION}.{key.id}.{base64.urlsafe_b64encode(nonce + sealed).decode()}"

    def decrypt(self, text: str, uuid: str, position: Position) -> Any:
        """Return the value; ``SecretKeyError`` if its key is missing, else ``DecryptionError``."""
        version, _, rest = text.partition(".")
        ident, _, data = rest.partition(".")
        if version != _VERSION:
            raise DecryptionError(f"unknown format {version[:8]!r}: a newer release may have encrypted it")
        key = next((key for key in self.keys if key.id == ident and key.secret is not None), None)
        if key is None:
            raise SecretKeyError([ident[:64]], "the secret cannot be decrypted")
        from cryptography.exceptions import InvalidTag

        try:
            raw = base64.urlsafe_b64decode(data.encode())
            plain = self._cipher(key).decrypt(raw[:_NONCE_BYTES], raw[_NONCE_BYTES:], _bound_to(uuid, position))
        except (InvalidTag, ValueError) as exc:
            raise DecryptionError("it was encrypted for another node or field, or it was modified") from exc
        return json_safety.decode_own(plain)

    def _cipher(self, key: Key) -> Any:
        cipher = self._ciphers.get(key.id)
        if cipher is None:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # costs memory, so only when needed

            cipher = self._ciphers[key.id] = AESGCM(key.secret or b"")
        return cipher


def _read(file: Path) -> tuple[Key, ...]:
    try:
        mode = file.stat().st_mode
        if mode & (stat.S_IRWXG | stat.S_IRWXO) and file.parent != place(""):
            raise ConfigFileError(f"{file} is accessible to users other than its owner", f"chmod go= {file}")
        return parse(text_of(file.read_bytes()))
    except NotTextError:
        raise ConfigFileError(f"{file} is not a key file", "create one: ferroscope secret generate-key FILE") from None
    except OSError as exc:
        raise ConfigFileError(
            f"cannot read the key file {file}: {exc.strerror or exc}",
            "correct [secrets] key_file, or create the file: ferroscope secret generate-key FILE",
        ) from exc


def key_id(text: str) -> str:
    """Return the ID of the key that encrypted the value."""
    return text.split(".", 2)[1] if text.count(".") >= 2 else ""


def _bound_to(uuid: str, position: Position) -> bytes:
    return msgspec.json.encode([uuid, *position])


def key_ring(settings: Settings) -> KeyRing:
    """Return the keys of ``[secrets] key_file``; ``SetupError``: without its keys, a process must not start."""
    name = settings.secrets.key_file
    try:
        return KeyRing(place(name) if name else None)
    except ConfigFileError as exc:
        raise SetupError(str(exc), exc.advice) from exc
