"""What must never be shown again once it is stored: passwords, tokens, keys.

Masks by the names of fields, at any depth. Source: the Bare Metal API shows six asterisks.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final

MASK: Final = "******"

_SECRET: Final = re.compile(
    r"passw|secret|token|private_key|auth_key|priv_key|kg_key|key_contents|community|credential|configdrive",
    re.IGNORECASE,
)
_USER_INFO: Final = re.compile(r"(?<=://)[^/?#\s]{1,1024}@")


@lru_cache(maxsize=4096)
def is_secret(name: str) -> bool:
    """Whether what is kept under this name must not be shown."""
    return _SECRET.search(name) is not None


def without_user(text: str) -> str:
    """Return ``text`` with user and password masked in every URL."""
    return _USER_INFO.sub(f"{MASK}@", text) if "@" in text and "://" in text else text


def mask(document: dict[str, Any]) -> dict[str, Any]:
    """Return a copy in which the value of every field with a telling name is masked."""
    return {key: MASK if value and is_secret(key) else _inner(value) for key, value in document.items()}


def _inner(value: Any) -> Any:
    if isinstance(value, dict):
        return mask(value)
    return [_inner(item) for item in value] if isinstance(value, list) else value


def unmask(given: dict[str, Any], stored: dict[str, Any]) -> dict[str, Any]:
    """Return ``given`` with what is stored in place of every mask: what was shown may be written back.

    Raises ``KeyError``, with the field's name, where a mask stands for nothing that is stored.
    """
    return {key: _restored(key, value, stored.get(key)) for key, value in given.items()}


def _restored(key: str, value: Any, stored: Any) -> Any:
    if isinstance(value, dict):
        return unmask(value, stored if isinstance(stored, dict) else {})
    if value != MASK or not is_secret(key):
        return value
    if not stored:
        raise KeyError(key)
    return stored
