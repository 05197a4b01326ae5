"""A call as a handler sees it, and the answer that it returns.

Everything in a call has been checked against the route's types already; what a handler still
checks is meaning. A reply's body is a struct, a dict, or JSON bytes that are sent as they are.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec

from ferroscope.api.microversions import Version

Q = TypeVar("Q")
B = TypeVar("B")


class NoQuery(msgspec.Struct, frozen=True):
    """The route takes no query parameters."""


class Call(msgspec.Struct, Generic[Q, B], frozen=True, kw_only=True):
    """One call of a route.

    ``path``: the path's parameters. ``version``: the microversion, of which ``minor`` is the part
    that matters. ``url``: how the caller reaches this API, without a slash at its end. ``raw``: the
    body's bytes. ``introspection``: whether it came in by that API's listener. ``source``: the caller's
    address, "" where it is unknown.
    """

    path: dict[str, str]
    query: Q
    body: B
    version: Version
    url: str
    raw: bytes = b""
    introspection: bool = False
    source: str = ""

    @property
    def minor(self) -> int:
        return self.version[1]

    @property
    def node(self) -> str:
        return self.path["node"]


class Reply(msgspec.Struct, frozen=True):
    """The answer; ``body`` None is an answer without one."""

    status: int
    body: Any = None
    headers: dict[str, str] = {}
