"""A session of a browser: the credentials of a login, sealed with a key that only the cookie has.

Neither the database nor the cookie alone reveals the credentials. Each request is authenticated with them anew, so a
session never outlives a password, a role or a token.
"""

from __future__ import annotations

import msgspec


class WebSession(msgspec.Struct, kw_only=True, frozen=True):
    """``id`` is a digest of the cookie's secret; ``sealed`` the encrypted credentials; ``user`` is for people."""

    id: str
    sealed: str
    user: str
    created_at: float
    expires_at: float
