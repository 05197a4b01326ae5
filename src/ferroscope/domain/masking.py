"""What must never be shown again once it is stored: passwords, tokens, keys.

Masks by the names of fields, at any depth, and what URLs hold beside their place.
Source: the Bare Metal API shows six asterisks.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final

MASK: Final = "******"
WITHHELD: Final = "its message is not shown, because the password is too short to be masked in it"

_MASKABLE: Final = 4

_SECRET: Final = re.compile(
    r"passw|passphrase|passcode|(?:\b|_|admin|root|user|bmc)pass(?![a-z])|pwd|pswd|secret|token|community|credential"
    r"|configdrive|key_contents|(?:api|access|account|auth|encrypt\w{0,8}|fernet|host|kg|priv|private|shared|ssh|ssl)[_-]?key",
    re.IGNORECASE,
)
# In a URL whose query is a permission by itself.
_SIGNATURE: Final = re.compile(r"sig(?:nature)?\Z", re.IGNORECASE)
_QUERY: Final = re.compile(r"(?<=[?&;])([^=&;#\s]{1,64})=[^&;#\s]+")
_USER_INFO: Final = re.compile(r"(?<=://)[^/?#\s]{1,1024}@")


@lru_cache(maxsize=4096)
def is_secret(name: str) -> bool:
    """Whether what is kept under this name must not be shown."""
    return _SECRET.search(name) is not None


def is_too_short(secret: str | None) -> bool:
    """Whether the secret stands in so many words that those around its mask would tell it."""
    return bool(secret) and len(secret or "") < _MASKABLE


def without_user(text: str) -> str:
    """Return ``text`` with user and password masked in every URL."""
    return _USER_INFO.sub(f"{MASK}@", text) if "@" in text and "://" in text else text


def mask(document: dict[str, Any]) -> dict[str, Any]:
    """Return a copy in which is masked what has a telling name, and what a URL holds beside its place."""
    return {key: MASK if value and is_secret(key) else _shown(value) for key, value in document.items()}


def _shown(value: Any) -> Any:
    if isinstance(value, str):
        return _QUERY.sub(_parameter, without_user(value)) if "://" in value else value
    if isinstance(value, dict):
        return mask(value)
    return [_shown(item) for item in value] if isinstance(value, list) else value


def _parameter(found: re.Match[str]) -> str:
    name = found[1]
    return f"{name}={MASK}" if is_secret(name) or _SIGNATURE.search(name) else found[0]


def unmask(given: dict[str, Any], stored: dict[str, Any]) -> dict[str, Any]:
    """Return ``given`` with what is stored in place of every mask: what was shown may be written back.

    Raises ``KeyError``, with the field's name, where a mask stands for nothing that is stored.
    """
    return {key: _restored(key, value, stored.get(key)) for key, value in given.items()}


def _restored(key: str, value: Any, stored: Any) -> Any:
    if value == stored:
        return value
    if isinstance(value, dict):
        return unmask(value, stored if isinstance(stored, dict) else {})
    if isinstance(value, list):
        kept = stored if isinstance(stored, list) else []
        return [_item(key, number, item, kept) for number, item in enumerate(value)]
    if stored and value == (MASK if is_secret(key) else _shown(stored)):
        return stored
    if _holds_mask(key, value):
        raise KeyError(key)
    return value


def _holds_mask(key: str, value: Any) -> bool:
    if is_secret(key) and value == MASK:
        return True
    return isinstance(value, str) and "://" in value and (f"://{MASK}@" in value or f"={MASK}" in value)


def _item(key: str, number: int, value: Any, stored: list[Any]) -> Any:
    """Return the item that was shown so, at its place if it is there; a changed one must bring its secrets."""
    for kept in [*stored[number : number + 1], *stored]:
        if value == _shown(kept):
            return kept
    return _restored(key, value, None)
