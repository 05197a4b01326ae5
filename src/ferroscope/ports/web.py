"""HTTP requests to others, on behalf of rules: one try each, with a deadline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class WebError(Exception):
    """There was no answer: no connection, no valid certificate, or not in time. The message names no secret."""


class Web(Protocol):
    """Thread safe."""

    def get(self, url: str, *, headers: Mapping[str, str], timeout: float, proxy: str | None) -> int:
        """Return the status of the answer; ``WebError``.

        Never follows a redirect and never reads a body. ``timeout``: seconds for all of it.
        """
