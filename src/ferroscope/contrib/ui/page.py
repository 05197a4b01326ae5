"""The parts of a page: the visit, the calls that it makes, and the rendered result."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Mapping
from functools import lru_cache
from typing import Any, Final, TypeVar

import msgspec

from ferroscope.api.auth import access
from ferroscope.api.auth.identity import Identity
from ferroscope.api.errors import ForbiddenError, MissingError
from ferroscope.api.http.context import ApiContext
from ferroscope.api.http.in_process import Caller, perform
from ferroscope.api.http.route import Route
from ferroscope.api.routes import ROUTES
from ferroscope.contrib.ui.session import Seal
from ferroscope.core.model import Node

T = TypeVar("T")


class SharedData(msgspec.Struct, frozen=True):
    """Data that many viewers share, with its digest: encoding a list of machines takes half of the time of a view."""

    data: dict[str, Any]
    digest: str

    @classmethod
    def of(cls, data: dict[str, Any]) -> SharedData:
        return cls(data, hashlib.sha256(msgspec.json.encode(data)).hexdigest())


class ViewerPart(msgspec.Struct, frozen=True):
    """A part of a page that differs by viewer; a mark stands for it in the template of the page."""

    template: str
    data: dict[str, Any]


class HtmlPage(msgspec.Struct, frozen=True, kw_only=True):
    """A template with its data; two pages with equal data have the same ETag.

    What is ``shared`` is rendered together with ``data``, once for all who see the same; ``own`` for each viewer.
    """

    template: str
    title: str
    data: dict[str, Any] = {}
    shared: SharedData = SharedData({}, "")
    own: ViewerPart | None = None
    status: int = 200


class Redirect(msgspec.Struct, frozen=True):
    """The answer to a form: look at this path of ours; ``view``: what the browser remembers of the list."""

    location: str
    view: str = ""


class FileDownload(msgspec.Struct, frozen=True, kw_only=True):
    """A file for the browser to save."""

    name: str
    body: bytes
    media: str


class Visit(msgspec.Struct, frozen=True, kw_only=True):
    """A request of a known caller. ``query`` and ``form`` have all values of each parameter.

    ``seal`` encrypts data that the browser sends back. ``again``: an open page polls for changes, and its data may be a
    moment old. ``view``: the browser's settings for the list of machines.
    """

    context: ApiContext
    caller: Caller
    path: Mapping[str, str] = {}
    query: Mapping[str, list[str]] = {}
    form: Mapping[str, list[str]] = {}
    seal: Seal
    again: bool = False
    view: str = ""

    def remembered(self, name: Hashable, seconds: float, make: Callable[[], T]) -> T:
        """Return what ``make`` returned at most this many seconds ago, to any caller with the same ``name``."""
        return self.context.data.recent.get(name, seconds, make)

    def shared(self, name: str, seconds: float, make: Callable[[], dict[str, Any]]) -> SharedData:
        """Return the data of a page that polls for changes, shared by viewers with the same rights; or new data."""
        if not self.again:
            return SharedData.of(make())
        asked = tuple(sorted((name, tuple(values)) for name, values in self.query.items()))
        return self.remembered((name, self.rights, self.view, asked), seconds, lambda: SharedData.of(make()))

    @property
    def rights(self) -> Hashable:
        """The rights that decide what the caller sees: equal for callers who see the same."""
        return self.context.access.policy.rights_of(self.identity)

    @property
    def identity(self) -> Identity:
        return self.caller.identity

    def asked(self, name: str, default: str = "") -> str:
        """Return a parameter of the query."""
        return (self.query.get(name) or [default])[0].strip()

    def given(self, name: str, default: str = "") -> str:
        """Return a field of the form."""
        return (self.form.get(name) or [default])[0].strip()

    def may(self, policy: str, node: Node | None = None) -> bool:
        """Whether the caller is allowed to do it, with this node or with any."""
        if node is None:
            return self.context.access.policy.allows(policy, self.identity)
        return access.may(self.context.access.policy, policy, self.identity, access.target_of(node))

    def call(self, endpoint: str, path: Mapping[str, str] | None = None, *, body: Any = None, **query: Any) -> Any:
        """Return the reply of a route of the API as built-in data; ``ApiError``."""
        reply = perform(self.context, _routes()[endpoint], self.caller, path=path or {}, query=query, body=body)
        body_value = reply.body
        if isinstance(body_value, bytes):
            return body_value
        return msgspec.to_builtins(body_value)

    def call_if_possible(self, endpoint: str, path: Mapping[str, str] | None = None, **query: Any) -> Any:
        """Return the reply of a route; None if the caller may not call it, or if nothing exists."""
        try:
            return self.call(endpoint, path, **query)
        except (ForbiddenError, MissingError):
            return None


@lru_cache(maxsize=1)
def _routes() -> dict[str, Route]:
    return {f"{route.method} {route.path}": route for route in ROUTES}


STATE_KINDS: Final = {
    "available": "good",
    "manageable": "good",
    "inspecting": "busy",
    "inspect wait": "busy",
    "verifying": "busy",
    "inspect failed": "bad",
    "enroll": "idle",
}
"""How each provision state is colored; its text is always beside the color."""
