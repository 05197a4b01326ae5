"""The secret of a notification target: the content of a file, or what a reference names.

It is read again for each event, so that it can be changed at any time.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from ferroscope.contracts.secrets import SecretSourceError

_MOST: Final = 4096

Resolve = Callable[[str], str]


def read(name: str, resolve: Resolve | None) -> str:
    """Return the secret; ``OSError`` or ``SecretSourceError``. ``resolve`` returns the secret of a reference."""
    if name.startswith("/"):
        with Path(name).open("rb") as stream:
            secret = stream.read(_MOST).decode(errors="replace").strip()
    else:
        secret = resolve(name).strip() if resolve is not None else ""
    if not secret:
        raise SecretSourceError("it is empty")
    return secret
