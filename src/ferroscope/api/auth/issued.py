"""Access tokens as ``ferroscope token`` manages them: in the database, so no running service and no login is needed.

``audited``: an audit event is written with the change.
"""

from __future__ import annotations

import os
import pwd
import secrets
import socket
from collections.abc import Sequence
from typing import NamedTuple

from ferroscope.contracts.errors import NotFoundError
from ferroscope.core import credentials
from ferroscope.core.audit import AuditEvent
from ferroscope.core.credentials import AccessToken
from ferroscope.db import Store, Transaction


class Issued(NamedTuple):
    """A new token: its record, and the text that is shown only now."""

    token: AccessToken
    text: str


def create(
    store: Store,
    name: str,
    roles: Sequence[str],
    *,
    project: str | None = None,
    lifetime: float | None = None,
    expires_at: float | None = None,
    audited: bool,
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
        if audited:
            _record(tx, "token create", token, 201)
        return token

    return Issued(store.write(work), credentials.token_text(ident, secret))


def read_tokens(store: Store) -> tuple[Sequence[AccessToken], float]:
    """Return all tokens, oldest first, and the time by the database's clock."""
    return store.read(lambda tx: (tx.access_tokens.list(), tx.now))


def revoke(store: Store, ident: str, *, audited: bool) -> AccessToken:
    """Revoke the active token with this ID or name, and return it; ``NotFoundError``."""

    def work(tx: Transaction) -> AccessToken:
        active = [token for token in tx.access_tokens.active() if ident in (token.id, token.name)]
        # Two tokens that were created at the same time can have one name. Both are revoked.
        if not [token for token in active if tx.access_tokens.revoke(token.id)]:
            raise NotFoundError("token", ident)
        for token in active if audited else ():
            _record(tx, "token revoke", token, 200)
        return active[0]

    return store.write(work)


def _record(tx: Transaction, command: str, token: AccessToken, status: int) -> None:
    """Append the audit event of a command of this host, in the transaction of the change."""
    target = f"{token.name} (ID {token.id})"
    tx.audit.append(
        AuditEvent(request_id="", user=_creator(), method="host", call=command, target=target, status=status)
    )


def _creator() -> str:
    """Return the login name of the person at this host, also if they use sudo."""
    try:
        user = os.environ.get("SUDO_USER") or pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"[:255]
