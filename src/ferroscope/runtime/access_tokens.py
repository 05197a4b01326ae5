"""What ``ferroscope token`` does, on the service's own database: no running service and no login is needed."""

from __future__ import annotations

import os
import pwd
import secrets
import socket
from collections.abc import Sequence
from typing import NamedTuple

from ferroscope.config.options import Settings
from ferroscope.contracts.errors import NotFoundError
from ferroscope.contracts.store import Transaction
from ferroscope.core import credentials
from ferroscope.core.credentials import AccessToken
from ferroscope.runtime.backend import opened


class Issued(NamedTuple):
    """A new token: its record, and the text that is shown only now."""

    token: AccessToken
    text: str


def create(
    settings: Settings,
    name: str,
    roles: Sequence[str],
    *,
    project: str | None = None,
    lifetime: float | None = None,
    expires_at: float | None = None,
) -> Issued:
    """Store a new token, which expires after ``lifetime`` seconds or at ``expires_at``; ``ConflictError``."""
    ident, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
    creator = _creator()

    def work(tx: Transaction) -> AccessToken:
        token = AccessToken(
            id=ident,
            name=name,
            digest=credentials.token_digest(secret),
            roles=list(dict.fromkeys(roles)),
            project=project,
            created_at=tx.now,
            created_by=creator,
            expires_at=expires_at if lifetime is None else tx.now + lifetime,
        )
        tx.access_tokens.add(token)
        return token

    with opened(settings) as backend:
        return Issued(backend.store.write(work), credentials.token_text(ident, secret))


def listed(settings: Settings) -> tuple[Sequence[AccessToken], float]:
    """Return all tokens, oldest first, and the time by the database's clock."""
    with opened(settings) as backend:
        return backend.store.read(lambda tx: (tx.access_tokens.list(), tx.now))


def revoke(settings: Settings, ident: str) -> AccessToken:
    """Revoke the active token with this ID or name, and return it; ``NotFoundError``."""

    def work(tx: Transaction) -> AccessToken:
        active = [token for token in tx.access_tokens.active() if ident in (token.id, token.name)]
        # Two tokens can have one name if they were created at the same time: both are meant.
        if not [token for token in active if tx.access_tokens.revoke(token.id)]:
            raise NotFoundError("token", ident)
        return active[0]

    with opened(settings) as backend:
        return backend.store.write(work)


def _creator() -> str:
    """Return the login name of the person at this host, also if they use sudo."""
    try:
        user = os.environ.get("SUDO_USER") or pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"[:255]
