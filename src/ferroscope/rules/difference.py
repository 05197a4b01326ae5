"""What differs between two documents, as a list of paths that a person reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from ferroscope.core.values import MASK, is_secret

MAX_CHANGES: Final = 1000


class Change(msgspec.Struct, frozen=True, omit_defaults=True):
    """One value that is another one afterwards; what was or is not there is left out. Secrets are masked."""

    path: str
    before: Any | msgspec.UnsetType = msgspec.UNSET
    after: Any | msgspec.UnsetType = msgspec.UNSET


def changes(before: Any, after: Any) -> list[Change]:
    """Return the changes between two JSON documents, at most ``MAX_CHANGES`` of them."""
    found: list[Change] = []
    for change in _walk("", before, after):
        found.append(change)
        if len(found) == MAX_CHANGES:
            break
    return found


def _walk(path: str, before: Any, after: Any) -> Iterator[Change]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in [*before, *(key for key in after if key not in before)]:
            below = f"{path}/{key}"
            if key not in after:
                yield Change(below, before=_shown(key, before[key]))
            elif key not in before:
                yield Change(below, after=_shown(key, after[key]))
            elif is_secret(key) and before[key] != after[key]:
                yield Change(below, before=MASK, after=MASK)
            else:
                yield from _walk(below, before[key], after[key])
    elif before != after:
        yield Change(path, before=_shown("", before), after=_shown("", after))


def _shown(key: str, value: Any) -> Any:
    if value and is_secret(key):
        return MASK
    if isinstance(value, dict):
        return {name: _shown(name, item) for name, item in value.items()}
    return [_shown("", item) for item in value] if isinstance(value, list) else value
