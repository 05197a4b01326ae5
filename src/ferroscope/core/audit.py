"""Audit events: who called the API, and what it changed; as stored, and in the form of CADF. Pure.

Source of the form: the DMTF's Cloud Auditing Data Federation (DSP0262), as OpenStack services use it.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

import msgspec

LOGIN: Final = "login"
LOGOUT: Final = "logout"
REFUSED: Final = "refused"
"""Events without a route: a login, its end, and the number of refused calls without an event of their own."""

UNKNOWN: Final = "unknown"
# Characters of a user name that a caller claims.
_MAX_CLAIMED_CHARACTERS: Final = 64
_ACTIONS: Final = {
    "POST": "create",
    "PUT": "update",
    "PATCH": "update",
    "DELETE": "delete",
    "GET": "read",
    LOGIN: "authenticate",
    LOGOUT: "authenticate",
}


class AuditEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A call that changed something, or was refused.

    ``user`` is the name of the user, token or certificate, ``method`` how it was authenticated. If that failed (401, or
    429 for too many failures), ``user`` is what the caller claimed to be, and ``method`` is ``none``. ``policy`` is the
    name of the policy, ``call`` method and route. ``target`` is the name or UUID in the path, ``node`` the UUID of the
    node that was changed, if it was only one. ``source`` is the caller's address. Texts are cut to what can be stored.
    """

    request_id: str
    user: str
    method: str
    project: str | None = None
    source: str = ""
    policy: str = ""
    call: str = ""
    target: str = ""
    node: str | None = None
    status: int = 0
    at: float = 0.0
    id: int = 0

    @property
    def refused(self) -> bool:
        return self.status in (401, 403, 429)


def shown_claim(name: str) -> str:
    """Return the name that a caller claimed in a failed login: cut, and with printable characters only."""
    shown = "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in name[:_MAX_CLAIMED_CHARACTERS]
    )
    return (
        shown[:_MAX_CLAIMED_CHARACTERS] + "..." if max(len(name), len(shown)) > _MAX_CLAIMED_CHARACTERS else shown
    ) or UNKNOWN


def cadf(event: AuditEvent, observer: str) -> dict[str, Any]:
    """Return the event in the form of CADF; ``observer`` is the name of the process."""
    verb, _, path = event.call.partition(" ")
    target = event.node or event.target
    initiator = {
        "typeURI": "service/security/account/user",
        "id": event.user,
        "name": event.user,
        "host": {"address": event.source},
        "credential": {"type": event.method},
    }
    return {
        "typeURI": "http://schemas.dmtf.org/cloud/audit/1.0/event",
        "eventType": "control" if event.refused else "activity",
        "id": event.request_id,
        "eventTime": datetime.fromtimestamp(event.at, UTC).isoformat(timespec="milliseconds"),
        "action": f"authenticate/{verb}"
        if verb in (LOGIN, LOGOUT)
        else f"{_ACTIONS.get(verb, UNKNOWN)}/{event.policy}",
        "outcome": "success" if event.status < 400 else "failure",
        "initiator": initiator | ({"project_id": event.project} if event.project else {}),
        "target": {"typeURI": "service/baremetal", "id": target or "service", "name": event.target or "service"},
        "observer": {"typeURI": "service/baremetal", "id": observer},
        "reason": {"reasonType": "HTTP", "reasonCode": str(event.status), "policyId": event.policy},
        "requestPath": path,
    }
