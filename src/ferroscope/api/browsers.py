"""Refuses what web pages make browsers send: without authentication, a page could else reboot machines.

Browsers say where a call comes from in headers that no page can forge, and that no client, ramdisk or
BMC sends. Whoever follows a link to a document comes through. Source: the Fetch standard, Fetch Metadata.
"""

from __future__ import annotations

from typing import Final

import falcon

from ferroscope.api.errors import ForbiddenError

_SAFE: Final = ("GET", "HEAD", "OPTIONS")
_ELSEWHERE: Final = ("cross-site", "same-site")


def refuse_pages(req: falcon.Request) -> None:
    """Raise ``ForbiddenError`` where a browser sent this on behalf of a page."""
    environ, safe = req.env, req.method in _SAFE
    follows_link = safe and environ.get("HTTP_SEC_FETCH_MODE") == "navigate"
    elsewhere = environ.get("HTTP_SEC_FETCH_SITE") in _ELSEWHERE and not follows_link
    if elsewhere or (not safe and "HTTP_ORIGIN" in environ):
        raise ForbiddenError("A web page sent this (Origin, Sec-Fetch-Site); this API is not for pages of browsers.")
