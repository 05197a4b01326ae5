"""Access tokens that the service issues itself, and sessions of browsers: what is stored of them.

A session has the credentials of a login, sealed with a key that only the cookie has: neither the database nor the
cookie alone reveals them. Each request is authenticated with them again, so a session never outlives a password, a role
or a token.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from typing import Final

import msgspec

PREFIX: Final = "fst_"
"""Scanners for leaked secrets recognize a token by it, and the api knows that it is one of its own."""

_TEXT: Final = re.compile(r"fst_([0-9a-f]{12})_([A-Za-z0-9_-]{43})", re.ASCII)
_ID: Final = re.compile(r"[0-9a-f]{12}", re.ASCII)
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}", re.ASCII)
NAME: Final = "1 to 64 letters, digits, '.', '_', '@' or '-', not starting with a sign, and not the form of an ID"
"""The rule for names, for error messages."""


class AccessToken(msgspec.Struct, frozen=True, kw_only=True):
    """A stored token; its secret is not stored, only ``digest``, the SHA-256 of the secret in hexadecimal.

    ``project``: the roles hold for this project's nodes; None: for the whole service. ``created_by``: login name and
    host. ``expires_at`` None: never. ``last_used_at`` is up to an hour old.
    """

    id: str
    name: str
    digest: str
    roles: list[str]
    project: str | None = None
    created_at: float = 0.0
    created_by: str = ""
    expires_at: float | None = None
    revoked_at: float | None = None
    last_used_at: float | None = None

    def state(self, now: float) -> str:
        """Return ``active``, ``expired`` or ``revoked``."""
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.expires_at is not None and self.expires_at <= now else "active"

    def is_secret(self, secret: str) -> bool:
        """Whether this is the token's secret; takes the same time for any wrong one."""
        return hmac.compare_digest(self.digest, token_digest(secret))


def token_digest(secret: str) -> str:
    """Return what is stored of a secret. The secret is random, so a slow hash with a salt would add nothing."""
    return hashlib.sha256(secret.encode()).hexdigest()


def token_text(ident: str, secret: str) -> str:
    """Return the text of a token; ``ident``: 12 hexadecimal digits, ``secret``: 32 random bytes in base64url."""
    return f"{PREFIX}{ident}_{secret}"


def parse_token(token: str) -> tuple[str, str] | None:
    """Return ID and secret, None if the text is not a token of this service."""
    match = _TEXT.fullmatch(token)
    return None if match is None else (match[1], match[2])


def is_token_name(name: str) -> bool:
    """Whether this is a valid name of a token; see ``NAME``."""
    return _NAME.fullmatch(name) is not None and _ID.fullmatch(name) is None


class WebSession(msgspec.Struct, kw_only=True, frozen=True):
    """``id``: a digest of the cookie's secret; ``sealed``: the encrypted credentials; ``user``: the principal."""

    id: str
    sealed: str
    user: str
    created_at: float
    expires_at: float
