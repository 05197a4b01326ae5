"""Audit of logins to the web page: logins, logouts, failures, and sessions that ended by themselves.

Events of a login and a logout are written in the transaction that adds or deletes the session.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import falcon
import msgspec

from ferroscope.api.auth.identity import Identity
from ferroscope.api.http.arrivals import REQUEST_ID
from ferroscope.api.http.audit import IDENTITY, event_of
from ferroscope.api.http.context import ApiContext
from ferroscope.api.http.dispatch import on_behalf_of
from ferroscope.contracts.store import Audited, CallContext, Receipt
from ferroscope.core.audit import LOGIN, LOGOUT, AuditEvent
from ferroscope.http_server.agreed import SOURCE


class LoginAudit:
    """One login or logout: ``begin`` before it is written, ``end`` with the response's status."""

    def __init__(self, context: ApiContext, req: falcon.Request, call: str, claims: str = "") -> None:
        self._context, self._req, self._call, self._claims = context, req, call, claims
        self._audited: Audited | None = None
        self._identity: Identity | None = None
        self._admitted = False

    def begin(self, identity: Identity) -> ApiContext:
        """Return the context in which the session of this user is to be written."""
        self._identity = identity
        log = self._context.access.audit
        if log is None:
            return self._context
        self._admitted = self._call == LOGOUT or log.admits_login(identity.user, identity.method)
        if self._admitted:
            self._audited = Audited(self._event(303))
            return on_behalf_of(self._context, CallContext(audited=self._audited, receipt=Receipt()))
        log.count(self._req.env[SOURCE])
        return self._context

    def oldest_ended(self) -> None:
        """The login has ended the user's oldest session."""
        if self._context.access.audit is not None and self._admitted:
            event = _event(self._req, LOGOUT, 200, identity=self._identity)
            self._context.access.audit.append(msgspec.structs.replace(event, target="oldest session"))

    def end(self, status: int) -> None:
        """The session has been written, or not."""
        if (log := self._context.access.audit) is not None:
            log.write_outcome(self._audited, status, lambda: self._event(status))

    def _event(self, status: int) -> AuditEvent:
        return _event(self._req, self._call, status, identity=self._identity, claims=self._claims)


def record_failure(context: ApiContext, req: falcon.Request, status: int) -> None:
    """Record that the credentials in the header of a request were wrong."""
    LoginAudit(context, req, LOGIN, context.access.authentication.claimed_name(req.env)).end(status)


def session_ended(context: ApiContext, req: falcon.Request, credentials: Mapping[str, str]) -> None:
    """Record that a session ended because its credentials are not valid any more."""
    if context.access.audit is not None:
        claims = context.access.authentication.claimed_name(credentials)
        context.access.audit.write_refusal(_event(req, LOGOUT, 401, claims=claims))


def _event(
    req: falcon.Request,
    call: str,
    status: int,
    *,
    identity: Identity | None = None,
    claims: str = "",
) -> AuditEvent:
    environ: dict[str, Any] = {} if identity is None else {IDENTITY: identity}
    return event_of(
        environ,
        request_id=req.env[REQUEST_ID],
        source=req.env[SOURCE],
        policy="",
        call=call,
        target="web page",
        status=status,
        claims=claims,
    )
