"""The links in answers: where a thing is to be found, with and without the API's version."""

from __future__ import annotations

import msgspec


class Link(msgspec.Struct, frozen=True, omit_defaults=True):
    """A link; ``type`` is the media type where it is not this API's own."""

    href: str
    rel: str
    type: str | None = None


def pair(url: str, path: str) -> list[Link]:
    """Return the ``self`` and the ``bookmark`` link of ``path``, which is relative to ``/v1``."""
    return [Link(href=f"{url}/v1/{path}", rel="self"), Link(href=f"{url}/{path}", rel="bookmark")]


def own(url: str, path: str) -> list[Link]:
    """Return only the ``self`` link."""
    return [Link(href=f"{url}/v1/{path}", rel="self")]
