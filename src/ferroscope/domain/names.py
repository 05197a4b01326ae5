"""What nodes, ports and conductor groups may be called: one rule for callers and for inspection rules. Pure.

A path of the API holds a UUID, a name or one of its own words, so a name is neither of the others.
Source: the Bare Metal API reference; names may hold RFC 3986's unreserved characters.
"""

from __future__ import annotations

import re
from typing import Final

_NUMBERS: Final = re.compile(r"([0-9]{1,18})")
_UUID: Final = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}\Z", re.ASCII)
_NAME: Final = re.compile(r"[A-Za-z0-9._~-]{1,255}\Z", re.ASCII)
_GROUP: Final = re.compile(r"[a-z0-9._-]{0,255}\Z", re.ASCII)
# Clients take these for steps of a path, and never send them.
_STEPS: Final = frozenset({".", ".."})
_RESERVED: Final = frozenset({"detail", "maintenance", "management", "states", "validate", "vendor_passthru"})

NAME: Final = (
    f"1 to 255 letters, digits, '-', '.', '_' or '~', no UUID, and none of {', '.join(sorted(_STEPS | _RESERVED))}"
)
"""What a name is, for messages."""


def natural(text: str) -> tuple[tuple[int, int, str], ...]:
    """Return by what people order names: ``sim-2`` is before ``sim-10``, and letters' case is nothing."""
    return tuple(
        (0, int(part), part) if part.isdigit() else (1, 0, part) for part in _NUMBERS.split(text.lower()) if part
    )


def is_uuid(text: str) -> bool:
    """Whether this is a UUID, with or without its hyphens."""
    return _UUID.match(text.lower()) is not None


def is_spelled_as_name(text: str) -> bool:
    """Whether something could be called so, as far as its letters go."""
    return _NAME.match(text) is not None


def is_name(text: str) -> bool:
    """Whether a node or a port may be called so; see ``NAME``."""
    return is_spelled_as_name(text) and not is_uuid(text) and text not in _STEPS | _RESERVED


def is_group(text: str) -> bool:
    """Whether a conductor group may be called so; "" is the group of those that have none."""
    return _GROUP.match(text) is not None
