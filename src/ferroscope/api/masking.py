"""What must never be shown again once it is stored: passwords, tokens, keys.

Masks by the names of fields, at any depth. Source: the Bare Metal API shows six asterisks.
"""

from __future__ import annotations

import re
from typing import Any, Final

MASK: Final = "******"

_SECRET: Final = re.compile(
    r"passw|secret|kg_key|token|private_key|auth_key|priv_key|credential|configdrive", re.IGNORECASE
)


def mask(document: dict[str, Any]) -> dict[str, Any]:
    """Return a copy in which the value of every field with a telling name is masked."""
    return {key: MASK if value and _SECRET.search(key) else _inner(value) for key, value in document.items()}


def _inner(value: Any) -> Any:
    if isinstance(value, dict):
        return mask(value)
    return [_inner(item) for item in value] if isinstance(value, list) else value
