"""A result of the store that may not have been fetched yet.

Request several before getting the first: all of them are then fetched in one round trip.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T_co = TypeVar("T_co", covariant=True)


class Later(Generic[T_co]):
    """``get`` returns the result, and fetches it if necessary."""

    def __init__(self, get: Callable[[], T_co]) -> None:
        self.get = get
