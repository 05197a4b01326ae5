"""What was asked of the store, and has perhaps not arrived yet.

Several of these are asked for before the first is got: then they come together, in one round trip.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T_co = TypeVar("T_co", covariant=True)


class Later(Generic[T_co]):
    """``get`` returns it, and waits for it where it is not there."""

    def __init__(self, get: Callable[[], T_co]) -> None:
        self.get = get
