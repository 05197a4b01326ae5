"""Authentication: who makes a call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from ferroscope.api.auth.identity import Identity


class Method(Protocol):
    """A way to authenticate. One instance serves all threads.

    ``headers`` are those of the request with lower-case names, such as ``authorization`` and ``x-auth-token``.
    """

    def known(self, headers: Mapping[str, str]) -> Identity | None:
        """Return who sent these credentials if that costs nothing, because they were right recently; otherwise None.

        Sources that have failed too often are limited to these.
        """

    def identify(self, headers: Mapping[str, str]) -> Identity | None:
        """Return who sent the request; None if it has no credentials of this kind.

        ``UnauthorizedError`` for wrong ones, ``UnavailableError`` if they cannot be checked now.
        """
