"""A test of many small things reports all that is wrong at once, each in a line of its own."""

from __future__ import annotations

from collections.abc import Iterable

import pytest


def none(misses: Iterable[object]) -> None:
    """Fail with the list of what is wrong, unless it is empty."""
    found = list(map(str, misses))
    if found:
        pytest.fail("\n".join((f"{len(found)} wrong:", *found)), pytrace=False)
